"""The same network in PyTorch, for the operators that both have: an oracle that shares no code with ours.

A network is held against it as far as its calls have a translation below, and read nothing that has none. Of
what is left, whatever nobody reads is an output. Both compute in float64: the reference kernels, by which all
else is judged, and PyTorch; outputs and gradients, of one pass with the batch's statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .network import Call, Network, Value
from .run import Numbers, oracle, run
from .setting import Setting
from .values import values

CLOSE = 1e-9
"""Of the largest number of an array: both are float64, and round in other orders."""


def common(network: Network) -> Network | None:
    """The part of a network that PyTorch has; None where there is none."""
    there = {v.name for v in network.variables}
    calls = []
    for call in network.calls:
        if all(v.name in there for v in call.inputs) and translation(call) is not None:
            calls.append(call)
            there.add(call.name)
    read = {v for call in calls for v in call.inputs}
    outputs = (Value(c.name, i) for c in calls for i in range(len(c.shapes)))
    found = tuple(v for v in outputs if v not in read)
    return replace(network, calls=tuple(calls), outputs=found).pruned() if found else None


def differs(network: Network) -> str:
    """What PyTorch has otherwise, "" where both agree."""
    setting = Setting(how="train", rounds=1)
    ours = run(network, oracle(setting)).numbers
    for name, theirs in _numbers(network, setting).items():
        x = ours[name]
        if not np.isfinite(x).all():
            continue
        error = float(np.abs(x - theirs).max(initial=0.0))
        if not error <= CLOSE * max(1.0, float(np.abs(x).max(initial=0.0))):
            return f"{name!r} is off by {error:.3g} from PyTorch"
    return ""


def _numbers(network: Network, setting: Setting) -> Numbers:
    """Outputs, and gradients of what may have one, by the names that `run` gives them."""
    import torch

    wanted = {v.name for v in network.variables if v.is_trained}
    made: dict[Value, Any] = {}
    for v in network.variables:
        number = torch.tensor(values(v, setting.values), requires_grad=v.name in wanted)
        made[Value(v.name)] = number if v.is_trained or v.kind in ("mean", "var") else number.long()
    for call in network.calls:
        work = translation(call)
        assert work is not None
        found = work(torch, *(made[v] for v in call.inputs))
        for i, one in enumerate(found if isinstance(found, (tuple, list)) else (found,)):
            made[Value(call.name, i)] = one
    outputs = [made[v] for v in network.outputs]
    rng = np.random.default_rng((5, 0))
    heads = [torch.tensor(rng.standard_normal(tuple(o.shape))) for o in outputs]
    pairs = [(o, h) for o, h in zip(outputs, heads) if o.requires_grad]
    if pairs:
        torch.autograd.backward(*zip(*pairs))
    numbers = {f"round 0 output {i}": o.detach().numpy() for i, o in enumerate(outputs)}
    for name in sorted(wanted):
        grad = made[Value(name)].grad
        zeros = np.zeros(made[Value(name)].shape)
        numbers[f"round 0 gradient {name}"] = zeros if grad is None else grad.numpy()
    return numbers


Translation = Callable[..., Any]
"""(torch, inputs) -> what the call gives."""


def translation(call: Call) -> Translation | None:
    """A call in PyTorch; None where it has none, or one with other gradients where numbers are equal."""
    made = TRANSLATIONS.get(call.op)
    return None if made is None else made(call)


def _by_name(name: str) -> Callable[[Call], Translation]:
    return lambda call: lambda torch, *x: getattr(torch, name)(*x)


def _with_scalar(work: Callable[[Any, float], Any]) -> Callable[[Call], Translation]:
    return lambda call: lambda torch, x: work(x, call.attrs["scalar"])


def _convolution(call: Call) -> Translation:
    a = {"stride": 1, "pad": 0, "dilate": 1, "num_group": 1} | dict(call.attrs)

    def work(torch: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        how = (a["stride"], a["pad"], a["dilate"], a["num_group"])
        return torch.nn.functional.conv2d(x, weight, bias, *how)

    return work


def _deconvolution(call: Call) -> Translation:
    a = call.attrs
    return lambda torch, x, weight, bias=None: torch.nn.functional.conv_transpose2d(
        x, weight, bias, a["stride"], a["pad"]
    )


def _dense(call: Call) -> Translation:
    def work(torch: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        x = x.flatten(1) if call.attrs.get("flatten", True) else x
        return torch.nn.functional.linear(x, weight, bias)

    return work


def _batch_norm(call: Call) -> Translation | None:
    a = call.attrs
    if len(call.shapes) > 1:
        return None

    def work(torch: Any, x: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
        gamma = torch.ones_like(gamma) if a.get("fix_gamma", True) else gamma
        old, axis = not a.get("use_global_stats", False), a.get("axis", 1)
        moved = x.movedim(axis, 1)
        made = torch.nn.functional.batch_norm(
            moved, mean.clone(), var.clone(), gamma, beta, old, 0.1, a.get("eps", 1e-3)
        )
        return made.movedim(1, axis)

    return work if np.prod(call.shapes[0]) > call.shapes[0][a.get("axis", 1)] else None


def _layer_norm(call: Call) -> Translation:
    eps = call.attrs["eps"]
    return lambda torch, x, gamma, beta: torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, eps)


def _activation(call: Call) -> Translation | None:
    name = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "softrelu": "softplus"}
    name["softsign"] = "softsign"
    found = name.get(call.attrs["act_type"])
    return None if found is None else lambda torch, x: getattr(torch.nn.functional, found)(x)


def _leaky(call: Call) -> Translation | None:
    kind, slope = call.attrs["act_type"], call.attrs.get("slope", 0.25)
    found: dict[str, Translation] = {
        "leaky": lambda torch, x: torch.nn.functional.leaky_relu(x, slope),
        "elu": lambda torch, x: torch.nn.functional.elu(x, slope),
        "gelu": lambda torch, x: torch.nn.functional.gelu(x),
    }
    return found.get(kind)


def _pooling(call: Call) -> Translation | None:
    """Means; of maxima PyTorch gives the gradient to one number where several are the largest."""
    a = call.attrs
    if a["pool_type"] != "avg" or a.get("pooling_convention", "valid") != "valid":
        return None
    if a.get("global_pool"):
        return lambda torch, x: x.mean((2, 3), keepdim=True)
    how = a["kernel"], a["stride"], a["pad"], False, a.get("count_include_pad", True)
    return lambda torch, x: torch.nn.functional.avg_pool2d(x, *how)


def _softmax(call: Call) -> Translation:
    axis = call.attrs["axis"]
    work = "log_softmax" if call.op == "log_softmax" else "softmax"
    sign = -1 if call.op == "softmin" else 1
    return lambda torch, x: getattr(torch, work)(sign * x, axis)


def _reduction(call: Call) -> Translation:
    axis = call.attrs.get("axis", ())
    return lambda torch, x: getattr(torch, call.op)(x, axis).reshape(call.shapes[0])


def _split(call: Call) -> Translation:
    axis, squeezed = call.attrs.get("axis", 1), call.attrs.get("squeeze_axis", False)

    def work(torch: Any, x: Any) -> Any:
        parts = x.chunk(call.attrs["num_outputs"], axis)
        return [p.squeeze(axis) for p in parts] if squeezed else list(parts)

    return work


def _batch_dot(call: Call) -> Translation:
    turned = call.attrs.get("transpose_b", False)
    return lambda torch, x, y: torch.bmm(x, y.transpose(1, 2) if turned else y)


def _attention(call: Call) -> Translation:
    causal = call.attrs.get("causal", False)
    return lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _slice_axis(call: Call) -> Translation:
    a = call.attrs

    def work(torch: Any, x: Any) -> Any:
        end = x.shape[a["axis"]] if a["end"] is None else a["end"]
        return x.narrow(a["axis"], a["begin"], end - a["begin"])

    return work


def _same_shape(call: Call) -> Translation:
    return lambda torch, x: x.reshape(call.shapes[0])


TRANSLATIONS: dict[str, Callable[[Call], Translation | None]] = {
    "Convolution": _convolution, "Deconvolution": _deconvolution, "FullyConnected": _dense,
    "BatchNorm": _batch_norm, "LayerNorm": _layer_norm, "Activation": _activation, "LeakyReLU": _leaky,
    "Pooling": _pooling, "softmax": _softmax, "log_softmax": _softmax, "softmin": _softmax,
    "mean": _reduction, "sum": _reduction, "SliceChannel": _split, "batch_dot": _batch_dot,
    "scaled_dot_product_attention": _attention, "slice_axis": _slice_axis,
    "reshape": _same_shape, "Flatten": _same_shape, "expand_dims": _same_shape, "squeeze": _same_shape,
    "gelu": lambda call: lambda torch, x: torch.nn.functional.gelu(
        x, approximate=call.attrs.get("approximate") or "none"
    ),
    "silu": lambda call: lambda torch, x: torch.nn.functional.silu(x),
    "softsign": lambda call: lambda torch, x: torch.nn.functional.softsign(x),
    "Concat": lambda call: lambda torch, *x: torch.cat(x, call.attrs["dim"]),
    "stack": lambda call: lambda torch, *x: torch.stack(x, call.attrs["axis"]),
    "add_n": lambda call: lambda torch, *x: sum(x[1:], x[0]),
    "clip": lambda call: lambda torch, x: x.clamp(call.attrs["a_min"], call.attrs["a_max"]),
    "transpose": lambda call: lambda torch, x: x.permute(call.attrs["axes"]),
    "SwapAxis": lambda call: lambda torch, x: x.transpose(call.attrs["dim1"], call.attrs["dim2"]),
    "tile": lambda call: lambda torch, x: x.tile(call.attrs["reps"]),
    "reverse": lambda call: lambda torch, x: x.flip(call.attrs["axis"]),
    "take": lambda call: lambda torch, x, ids: x.index_select(call.attrs["axis"], ids),
    "Embedding": lambda call: lambda torch, ids, table: table[ids],
    "BlockGrad": lambda call: lambda torch, x: x.detach(),
    "identity": lambda call: lambda torch, x: x * 1.0,
    "dot": _by_name("matmul"), "arctan": _by_name("atan"), "negative": _by_name("neg"),
    **{name: _by_name(name) for name in (
        "tanh", "sigmoid", "sin", "cos", "erf", "relu", "abs", "exp", "square", "log1p"
    )},
    **{f"{how}_{name}": _by_name(name)
       for how in ("broadcast", "elemwise") for name in ("add", "sub", "mul", "div")},
    "broadcast_hypot": _by_name("hypot"),
    "_plus_scalar": _with_scalar(lambda x, n: x + n), "_minus_scalar": _with_scalar(lambda x, n: x - n),
    "_mul_scalar": _with_scalar(lambda x, n: x * n), "_div_scalar": _with_scalar(lambda x, n: x / n),
    "_rminus_scalar": _with_scalar(lambda x, n: n - x),
    "_maximum_scalar": _with_scalar(lambda x, n: x.clamp(min=n)),
    "_minimum_scalar": _with_scalar(lambda x, n: x.clamp(max=n)),
}  # fmt: skip
"""By the name of an operator."""
