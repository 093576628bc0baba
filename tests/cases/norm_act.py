"""Rows of `conformance.py` for the norm that is fused with what follows it. See `cases.py`."""

from __future__ import annotations

from math import prod
from typing import Any

from mxlite import ops
from tests.conformance.case import Case, positive


def _torch_norm_act(a: Any, data: Any, gamma: Any, beta: Any, mean: Any, var: Any, addend: Any = None) -> Any:
    import torch

    out = torch.nn.functional.batch_norm(
        data.movedim(a.axis, 1),
        mean.detach().clone(),
        var.detach().clone(),
        torch.ones_like(gamma) if a.fix_gamma else gamma,
        beta,
        training=not a.use_global_stats,
        eps=a.eps,
    ).movedim(1, a.axis)
    if addend is not None and a.plus != "behind":
        out = out + addend
    out = torch.nn.functional.leaky_relu(out, a.slope) if a.relu else out
    return out + addend if a.plus == "behind" else out


def _norm_act(data: tuple[int, ...], large: tuple[int, ...] | None = None, **attrs: Any) -> Case:
    channel = (data[attrs.get("axis", 1)],)
    many = large or (400_000 // prod(data[1:]), *data[1:])
    return Case(
        ops.NormAct,
        {"fix_gamma": False} | attrs,
        [data, *[channel] * 4, *([data] if attrs.get("plus") else [])],
        make={"moving_var": positive},
        grad_inputs=("data", "beta", "addend")[: 2 + bool(attrs.get("plus"))]
        if attrs.get("fix_gamma")
        else None,
        tolerance=1e-5,
        large=[many, *[channel] * 4, *([many] if attrs.get("plus") else [])],
        torch=_torch_norm_act,
    )


ROWS = {
    "norm-act": _norm_act((6, 3, 2, 2)),
    "norm-act-add": _norm_act((6, 3, 2, 2), plus="array"),
    "norm-act-add-only": _norm_act((6, 3, 2, 2), plus="array", relu=False),
    "norm-act-neither": _norm_act((6, 3, 2, 2), relu=False),
    "norm-act-fix-gamma": _norm_act((6, 3, 2), plus="array", fix_gamma=True),
    "norm-act-last-axis": _norm_act((5, 4, 3), (32768, 4, 3), axis=-1),
    "norm-act-last-axis-add": _norm_act((3, 4, 2, 17), (2048, 4, 2, 17), axis=3, plus="array"),
    "norm-act-many-positions": _norm_act((3, 2, 9, 10), (64, 2, 96, 96), plus="array"),
    "norm-act-large-planes": _norm_act((2, 2, 3, 30), (2, 2, 300, 300)),
    "norm-act-two-axes": _norm_act((9, 4)),
    "norm-act-leaky": _norm_act((6, 3, 2, 2), slope=0.25),
    "norm-act-leaky-last-axis-add": _norm_act(
        (3, 4, 2, 17), (2048, 4, 2, 17), axis=3, plus="array", slope=0.1
    ),
    "norm-act-global": _norm_act((5, 3, 2, 2), use_global_stats=True),
    "norm-act-global-add": _norm_act((5, 3, 4), use_global_stats=True, plus="array", axis=2),
    "norm-act-sum": _norm_act((3, 4, 2, 17), (2048, 4, 2, 17), axis=3, plus="behind"),
    "norm-act-sum-leaky": _norm_act((6, 3, 2, 2), (32768, 3, 2, 2), slope=0.25, plus="behind"),
    "norm-act-sum-global": _norm_act(
        (5, 3, 2), (65536, 3, 2), use_global_stats=True, fix_gamma=True, plus="behind"
    ),
}


def _norm_act_line(data: tuple[int, ...], large: tuple[int, ...], addend: str = "", **attrs: Any) -> Case:
    attrs = {"fix_gamma": False, "plus": addend, "axis": len(data) - 1} | attrs
    channel = (data[attrs["axis"]],)
    lined = addend in ("line", "relu")

    def shapes(of: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [of, *[channel] * 4, *([of] if addend else []), *([channel] * 2 if lined else [])]

    # Behind a line the gradient is that in what is added.
    return Case(
        ops.NormActLine,
        attrs,
        shapes(data),
        make={"moving_var": positive},
        grad_inputs=("data", "gamma", "beta")[:: 2 if attrs["fix_gamma"] else 1] if lined else None,
        tolerance=1e-5,
        large=shapes(large),
        torch=_torch_norm_act_line,
    )


def _torch_norm_act_line(a: Any, data: Any, gamma: Any, beta: Any, mean: Any, var: Any, *more: Any) -> Any:
    added = more[0] if more else None
    if more[1:]:
        shape = [1] * data.ndim
        shape[a.axis] = -1
        added = more[0] * more[1].reshape(shape) + more[2].reshape(shape)
        added = added.relu() if a.plus == "relu" else added
    return _torch_norm_act(a, data, gamma, beta, mean, var, added)


ROWS |= {
    "norm-act-line": _norm_act_line((5, 4, 3), (32768, 4, 3)),
    "norm-act-line-add": _norm_act_line((3, 4, 2, 17), (2048, 4, 2, 17), "array"),
    "norm-act-line-of-line": _norm_act_line((3, 4, 2, 17), (2048, 4, 2, 17), "line"),
    "norm-act-line-of-relu": _norm_act_line((3, 4, 2, 5), (4096, 4, 2, 5), "relu"),
    "norm-act-line-fix-gamma": _norm_act_line((9, 4), (32768, 4), "relu", fix_gamma=True),
    "norm-act-line-global": _norm_act_line((9, 4), (32768, 4), "line", use_global_stats=True, relu=False),
    "norm-act-line-planes": _norm_act_line((4, 3, 2, 2), (32768, 3, 2, 2), "relu", axis=1),
}


def _norm_again(data: tuple[int, ...], rows: int, plus: str = "", **attrs: Any) -> Case:
    attrs = {"fix_gamma": False, "plus": plus, "axis": len(data) - 1} | attrs
    channel = (data[attrs["axis"]],)

    def shapes(of: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [
            of,
            *[channel] * 4,
            *([of] if plus else []),
            *([channel] * 2 if plus in ("line", "relu") else []),
        ]

    return Case(
        ops.NormRemat,
        attrs,
        shapes(data),
        make={"var": positive},
        tolerance=1e-5,
        large=shapes((rows, *data[1:])),
        torch=_torch_norm_again,
    )


def _torch_norm_again(a: Any, data: Any, gamma: Any, beta: Any, mean: Any, var: Any, *more: Any) -> Any:
    """`var` is the inverse standard deviation."""
    from torch.nn.functional import leaky_relu

    shape = [1] * data.ndim
    shape[a.axis] = -1
    factor = (var if a.fix_gamma else gamma * var).reshape(shape)
    out = (data - mean.reshape(shape)) * factor + beta.reshape(shape)
    if a.plus == "behind":
        return leaky_relu(out, a.slope) + more[0]
    if more:
        added = more[0] * more[1].reshape(shape) + more[2].reshape(shape) if more[1:] else more[0]
        out = out + (added.relu() if a.plus == "relu" else added)
    return leaky_relu(out, a.slope) if a.relu else out


ROWS |= {
    "norm-again": _norm_again((5, 4, 3), 32768),
    "norm-again-add": _norm_again((3, 4, 2, 17), 2048, "array"),
    "norm-again-of-line": _norm_again((3, 4, 2, 17), 2048, "line"),
    "norm-again-of-relu": _norm_again((3, 4, 2, 5), 4096, "relu", relu=False),
    "norm-again-fix-gamma": _norm_again((9, 4), 32768, "relu", fix_gamma=True),
    "norm-again-leaky": _norm_again((3, 4, 2, 17), 2048, "array", slope=0.1),
    "norm-again-behind": _norm_again((5, 4, 3), 32768, "behind", slope=0.25),
    "norm-again-planes": _norm_again((4, 3, 2, 2), 32768, "array", axis=1),
}


def _fold(weight: tuple[int, ...], large: tuple[int, ...], **attrs: Any) -> Case:
    count = 4 if attrs.get("no_bias", True) else 5
    return Case(
        ops.FoldNorm,
        {"fix_gamma": False} | attrs,
        [weight, *[weight[:1]] * count],
        make={"moving_var": positive},
        large=[large, *[large[:1]] * count],
        torch=_torch_fold,
    )


def _torch_fold(a: Any, weight: Any, gamma: Any, beta: Any, mean: Any, var: Any, bias: Any = 0) -> Any:
    """What PyTorch's convolution and norm make of one pixel, as a weight and as a bias."""
    scale = (1 if a.fix_gamma else gamma) / (var + a.eps).sqrt()
    return weight * scale.reshape(-1, *[1] * (weight.ndim - 1)), (bias - mean) * scale + beta


def _factors(count: int, large: int, **attrs: Any) -> Case:
    inputs = 4 if attrs.get("no_bias", True) else 5
    return Case(
        ops.NormFactors,
        {"fix_gamma": False} | attrs,
        [(count,)] * inputs,
        make={"moving_var": positive},
        large=[(large,)] * inputs,
        torch=_torch_factors,
    )


def _torch_factors(a: Any, gamma: Any, beta: Any, mean: Any, var: Any, bias: Any = 0) -> Any:
    """What PyTorch's norm makes of 1 and of a bias."""
    scale = (1 if a.fix_gamma else gamma) / (var + a.eps).sqrt()
    return scale, (bias - mean) * scale + beta


ROWS |= {
    "norm-factors": _factors(5, 100_000),
    "norm-factors-bias": _factors(6, 100_000, no_bias=False),
    "norm-factors-fix-gamma": _factors(7, 100_000, no_bias=False, fix_gamma=True),
    "fold-norm": _fold((4, 3, 2, 2), (600, 100, 3, 3)),
    "fold-norm-bias": _fold((4, 3, 2), (600, 100, 3), no_bias=False),
    "fold-norm-fix-gamma": _fold((3, 5), (600, 400), no_bias=False, fix_gamma=True),
}


def _normalized(data: tuple[int, ...], rows: int, axis: int, fix_gamma: bool = False) -> Case:
    channel = (data[axis],)
    return Case(
        ops.Normalized,
        {"axis": axis, "fix_gamma": fix_gamma},
        [data, *[channel] * 4],
        make={"var": positive},
        tolerance=1e-5,
        large=[(rows, *data[1:]), *[channel] * 4],
        torch=_torch_normalized,
    )


def _torch_normalized(a: Any, data: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    shape = [1] * data.ndim
    shape[a.axis] = -1
    gain = (var if a.fix_gamma else gamma * var).reshape(shape)
    return (data - mean.reshape(shape)) * gain + beta.reshape(shape)


ROWS |= {
    "normalized": _normalized((3, 2, 5, 17), 2048, 3),
    "normalized-channels-first": _normalized((3, 4, 2, 5), 4096, 1),
    "normalized-fix-gamma": _normalized((9, 4), 32768, 1, fix_gamma=True),
}
