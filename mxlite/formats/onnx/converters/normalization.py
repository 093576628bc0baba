"""Normalizations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.errors import NotSupportedError
from ...building.moves import padded
from ...building.value import GraphValue
from ..node import OnnxNode


def batch_normalization(n: OnnxNode) -> Any:
    """BatchNorm if mean and variance are the model's own arrays; else the formula.

    Imported that way, a network can be trained: the moving averages are auxiliary states, which the operator
    moves itself. So it asks at run time whether it trains, whichever mode the model was exported in.
    """
    b, x = n.builder, n[0]
    scale, bias, mean, var = n[1], n[2], n[3], n[4]
    eps, momentum = n.real("epsilon", 1e-5), n.real("momentum", 0.9)
    if n.version < 9 and not n.whole("spatial", 1):
        raise NotSupportedError("spatial=0")
    shape = (scale.size, *(1,) * (x.rank - 2)) if x.rank > 1 else (scale.size,)
    training = n.flag("training_mode") if n.version >= 14 else n.names_outputs(1)
    alone = not any(n.wants(i) for i in range(1, 5))
    own = alone and all(v.entry is not None and v.entry.node.op is None for v in (mean, var))
    own = own and not (training and n.reader.as_written)
    if training and not own:
        if n.version < 14 and not alone:
            raise NotSupportedError("the averages that a training batch normalization of that opset returns")
        return _trained(n, shape, eps, momentum)
    if own and eps > 0 and x.rank > 1 and scale.dtype == mean.dtype == np.promote_types(x.dtype, np.float32):
        return b.op("BatchNorm", x, scale, bias, mean, var, eps=eps, momentum=momentum, fix_gamma=False)
    dtype = x.dtype
    wide = [b.reshape(b.cast(v, dtype), shape) for v in (scale, bias, mean, var)]
    return _normalized(x, wide[2], wide[3], eps, wide[0], wide[1])


def _normalized(
    x: GraphValue, mean: GraphValue, var: GraphValue, eps: float, scale: GraphValue, bias: GraphValue | None
) -> GraphValue:
    b = x.builder
    factor = b.binary("mul", b.op("rsqrt", var + eps), scale)
    out = b.binary("mul", b.binary("sub", x, mean), factor)
    return out if bias is None else b.binary("add", out, bias)


def moments(x: GraphValue, axes: Any) -> tuple[GraphValue, GraphValue]:
    """Mean and biased variance over `axes`, which stay as axes of length 1."""
    b = x.builder
    mean = b.reduce("mean", x, axes)
    centred = b.binary("sub", x, mean)
    return mean, b.reduce("mean", centred * centred, axes)


def _trained(n: OnnxNode, shape: tuple[int, ...], eps: float, momentum: float) -> tuple[GraphValue, ...]:
    b, x = n.builder, n[0]
    mean, var = moments(x, [i for i in range(x.rank) if i != 1])
    out = _normalized(x, mean, var, eps, b.reshape(n[1], shape), b.reshape(n[2], shape))

    def moved(old: GraphValue, batch: GraphValue) -> GraphValue:
        batch = b.cast(b.reshape(batch, old.shape), old.dtype)
        return old * momentum + batch * (1 - momentum)

    return out, moved(n[3], mean), moved(n[4], var)


def instance_normalization(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    shape = (x.shape[1], *(1,) * (x.rank - 2))
    eps = n.real("epsilon", 1e-5)
    if eps > 0 and x.rank > 2:
        return b.op("InstanceNorm", x, n[1], n[2], eps=eps)
    mean, var = moments(x, range(2, x.rank))
    return _normalized(x, mean, var, eps, b.reshape(n[1], shape), b.reshape(n[2], shape))


def layer_normalization(n: OnnxNode) -> Any:
    """Over all axes from `axis` on; mean and inverse deviation on demand, in float32 or wider."""
    b, x, scale, bias = n.builder, n[0], n[1], n.get(2)
    axis, eps = b.axis(n.whole("axis", -1), x.rank), n.real("epsilon", 1e-5)
    last = axis == x.rank - 1 and scale.shape == x.shape[-1:]
    if last and bias is not None and not n.wants(1) and not n.wants(2) and eps > 0:
        return b.op("LayerNorm", x, scale, bias, axis=-1, eps=eps)
    dtype = x.dtype
    wide = b.cast(x, np.promote_types(dtype, np.float32) if dtype.kind == "f" else np.float32)
    mean, var = moments(wide, range(axis, x.rank))
    inverse: GraphValue = b.op("rsqrt", var + eps)
    normal = b.cast(b.binary("mul", b.binary("sub", wide, mean), inverse), dtype)
    out = b.binary("mul", normal, scale)
    return (out if bias is None else b.binary("add", out, bias)), mean, inverse


def rms_normalization(n: OnnxNode) -> Any:
    b, x, scale = n.builder, n[0], n[1]
    axis, eps = b.axis(n.whole("axis", -1), x.rank), n.real("epsilon", 1e-5)
    if axis != x.rank - 1 or scale.shape != x.shape[-1:] or eps <= 0:
        return NotImplemented
    return b.op("RMSNorm", x, scale, axis=-1, eps=eps)


def group_normalization(n: OnnxNode) -> Any:
    """Scale and bias of each group before opset 21, of each channel since."""
    eps = n.real("epsilon", 1e-5)
    if eps <= 0 or n[0].rank < 3:
        return NotImplemented
    return n.builder.op("GroupNorm", n[0], n[1], n[2], num_groups=n.whole("num_groups"), eps=eps)


def local_response(n: OnnxNode) -> GraphValue:
    """x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta."""
    b, x, size = n.builder, n[0], n.whole("size")
    alpha, beta, bias = n.real("alpha", 1e-4), n.real("beta", 0.75), n.real("bias", 1.0)
    before = (size - 1) // 2
    if not 1 <= size <= 1024:
        raise FormatError(f"size must be between 1 and 1024, got {size}.")
    squares = padded(x * x, [(0, 0), (before, size - 1 - before)] + [(0, 0)] * (x.rank - 2))
    parts = [b.slice(squares, 1, i, i + x.shape[1]) for i in range(size)]
    total = b.op("add_n", *parts) if size > 1 else parts[0]
    return b.binary("mul", x, b.op("_power_scalar", total * (alpha / size) + bias, scalar=-beta))


def lp_normalization(n: OnnxNode) -> GraphValue:
    """Divided by the norm along an axis; zeros stay zeros."""
    b, x = n.builder, n[0]
    axis, p = b.axis(n.whole("axis", -1), x.rank), n.whole("p", 2)
    if p not in (1, 2):
        raise FormatError(f"p must be 1 or 2, got {p}.")
    size = b.reduce("sum", b.op("abs", x) if p == 1 else x * x, [axis])
    size = size if p == 1 else b.op("sqrt", size)
    return b.binary("div", x, b.binary("add", size, b.cast(size.equals(0), x.dtype)))


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "BatchNormalization": batch_normalization,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LRN": local_response,
    "LayerNormalization": layer_normalization,
    "LpNormalization": lp_normalization,
    "RMSNormalization": rms_normalization,
}
