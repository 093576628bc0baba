"""Normalizations."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from ...building import GraphValue, NotSupportedError
from ..node import TorchNode


def batch_norm(n: TorchNode) -> GraphValue:
    """BatchNorm with its averages as auxiliary states; frozen where the module holds it in evaluation mode.

    MXNet moves the average of the biased variance, PyTorch that of the unbiased one, which
    is larger by the factor count / (count - 1).
    """
    b, x = n.builder, n["input"]
    mean, var = n.state("running_mean"), n.state("running_var")
    trains = bool(n.plain("training", n.plain("train", True)))
    gamma, beta = _affine(n, x.shape[1:2])
    shape = (x.shape[1], *(1,) * (x.rank - 2))
    if mean is None or var is None:
        n.ignore("momentum")
        return _by_batch(n, x, gamma, beta, shape)
    momentum = n.plain("momentum")
    if momentum is None:
        raise NotSupportedError(
            "batch normalization whose average weighs all batches equally (momentum=None)"
        )
    return b.op(
        "BatchNorm", x, gamma, beta, mean, var,
        eps=float(n.plain("eps")), momentum=1 - float(momentum), fix_gamma=False, use_global_stats=not trains,
    )  # fmt: skip


def functional_batch_norm(n: TorchNode) -> tuple[Any, ...]:
    """The same with more results: the statistics, and the moved averages, which the operator moves itself."""
    return batch_norm(n), None, None, None, None


def _by_batch(
    n: TorchNode, x: GraphValue, gamma: GraphValue, beta: GraphValue, shape: tuple[int, ...]
) -> GraphValue:
    """Statistics of the batch at hand, in training and after."""
    b = n.builder
    axes = [i for i in range(x.rank) if i != 1]
    centred = b.binary("sub", x, b.reduce("mean", x, axes))
    var = b.reduce("mean", b.op("square", centred), axes)
    out = b.binary("mul", centred, b.op("rsqrt", var + float(n.plain("eps"))))
    return b.binary("add", b.binary("mul", out, b.reshape(gamma, shape)), b.reshape(beta, shape))


def _affine(n: TorchNode, shape: tuple[int, ...], bias: str = "bias") -> tuple[GraphValue, GraphValue]:
    """Scale and shift; ones and zeros where the module has none."""
    b, x = n.builder, n.get("input")
    dtype = x.dtype if x is not None else n.dtype
    weight, shift = n.get("weight"), n.get(bias)
    return (
        b.full(shape, 1, dtype) if weight is None else weight,
        b.full(shape, 0, dtype) if shift is None else shift,
    )


def _last_axes(x: GraphValue, shape: tuple[int, ...]) -> GraphValue:
    """The normalized axes as one."""
    return x.builder.reshape(x, (*x.shape[: x.rank - len(shape)], prod(shape)))


def layer_norm(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["input"]
    shape = tuple(n.plain("normalized_shape"))
    gamma, beta = _affine(n, shape)
    flat = [b.reshape(v, (prod(shape),)) for v in (gamma, beta)]
    out = b.op("LayerNorm", _last_axes(x, shape), *flat, axis=-1, eps=float(n.plain("eps")))
    return b.reshape(out, x.shape)


def native_layer_norm(n: TorchNode) -> tuple[Any, ...]:
    return layer_norm(n), None, None


def rms_norm(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["input"]
    shape = tuple(n.plain("normalized_shape"))
    gamma, _ = _affine(n, shape)
    eps = n.plain("eps")
    eps = 1.1920928955078125e-07 if eps is None else float(eps)  # of float32
    out = b.op("RMSNorm", _last_axes(x, shape), b.reshape(gamma, (prod(shape),)), axis=-1, eps=eps)
    return b.reshape(out, x.shape)


def group_norm(n: TorchNode) -> GraphValue:
    """Scale and shift are one number a channel, which GroupNorm takes as well as MXNet's one a group."""
    b, x = n.builder, n["input"]
    gamma, beta = _affine(n, x.shape[1:2])
    return b.op("GroupNorm", x, gamma, beta, num_groups=n.plain("num_groups"), eps=float(n.plain("eps")))


def instance_norm(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["input"]
    n.ignore("use_input_stats", "running_var", "momentum")
    if n.plain("running_mean") is not None:
        raise NotSupportedError("instance normalization with moving averages")
    gamma, beta = _affine(n, x.shape[1:2])
    return b.op("InstanceNorm", x, gamma, beta, eps=float(n.plain("eps")))


def weight_norm(n: TorchNode) -> GraphValue:
    """A weight v * g / |v|, with one length g for each place of an axis."""
    b, v, g = n.builder, n["v"], n["g"]
    axis = b.axis(n.plain("dim", 0), v.rank)
    total = b.reduce("sum", b.op("square", v), [i for i in range(v.rank) if i != axis])
    return b.binary("mul", v, b.binary("mul", g, b.op("rsqrt", total)))


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "_native_batch_norm_legit": functional_batch_norm,
    "_native_batch_norm_legit_functional": functional_batch_norm,
    "_native_batch_norm_legit_no_training": functional_batch_norm,
    "_weight_norm": weight_norm,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "layer_norm": layer_norm,
    "native_batch_norm": functional_batch_norm,
    "native_layer_norm": native_layer_norm,
    "rms_norm": rms_norm,
}
