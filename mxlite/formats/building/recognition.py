"""Operators that a file spells out in smaller ones, found again by their last node.

A layer normalization of nine nodes keeps five arrays for backward where the operator keeps one, and an
attention of four keeps all scores. `recognized` looks back from a value through the nodes that made it; what
it finds replaces the value, and the nodes before it are left out of the graph if nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isclose, sqrt
from typing import Any

import numpy as np

from .value import GraphValue


def recognized(value: GraphValue) -> GraphValue:
    """A value by one operator where a pattern ends in it, else `value`."""
    look = None if value.entry is None or value.entry.node.op is None else _LOOK.get(_name(value))
    found = None if look is None else look(value)
    return value if found is None else found


def _name(value: GraphValue) -> str:
    """The operator that made a value; "" for a variable or a constant."""
    node = None if value.entry is None or value.array is not None else value.entry.node
    return node.op.op_name if node is not None and node.op is not None else ""


def _inputs(value: GraphValue, *names: str) -> list[GraphValue]:
    """The inputs of the operator that made `value` if it is one of `names`, else none."""
    if _name(value) not in names:
        return []
    assert value.entry is not None
    return [value.builder.value_of(e) for e in value.entry.node.inputs]


def _attrs(value: GraphValue) -> Any:
    assert value.entry is not None
    return value.entry.node.attrs


def _scalar(value: GraphValue, name: str) -> tuple[GraphValue, float] | None:
    """The data and the number of an operator with a number."""
    inputs = _inputs(value, name)
    return (inputs[0], float(_attrs(value).scalar)) if inputs else None


def _same(left: GraphValue, right: GraphValue) -> bool:
    return left.entry is not None and left.entry == right.entry


# -- layer normalization ---------------------------------------------------------------------------


def _layer_norm(value: GraphValue) -> GraphValue | None:
    """(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * gamma + beta, over the last axis."""
    for scaled, beta in _either(_inputs(value, "broadcast_add")):
        for normal, gamma in _either(_inputs(scaled, "broadcast_mul")):
            width = normal.shape[-1:]
            if gamma.shape != width or beta.shape != width or not _inputs(normal, "broadcast_div"):
                continue
            centred, deviation = _inputs(normal, "broadcast_div")
            found = _deviation(centred, deviation)
            if found is not None:
                x, eps = found
                return value.builder.op("LayerNorm", x, gamma, beta, axis=-1, eps=eps)
    return None


def _deviation(centred: GraphValue, deviation: GraphValue) -> tuple[GraphValue, float] | None:
    """The data and epsilon of the standard deviation of `centred`, which is data less its mean."""
    difference = _inputs(centred, "broadcast_sub")
    root = _inputs(deviation, "sqrt")
    added = _scalar(root[0], "_plus_scalar") if root else None
    if not difference or added is None or not _is_mean_of(difference[1], difference[0]):
        return None
    variance, eps = added
    square = _inputs(variance, "mean")
    if not square or not _is_mean_of(variance, square[0]) or not _is_square_of(square[0], centred):
        return None
    return (difference[0], eps) if eps > 0 else None


def _is_mean_of(value: GraphValue, x: GraphValue) -> bool:
    """True for the mean over the last axis, which stays."""
    inputs = _inputs(value, "mean")
    return bool(inputs) and _same(inputs[0], x) and value.shape == (*x.shape[:-1], 1) and x.rank > 1


def _is_square_of(value: GraphValue, x: GraphValue) -> bool:
    power = _scalar(value, "_power_scalar")
    if power is not None:
        return power[1] == 2 and _same(power[0], x)
    factors = _inputs(value, "elemwise_mul", "square")
    return bool(factors) and all(_same(v, x) for v in factors)


def _either(pair: list[GraphValue]) -> list[tuple[GraphValue, GraphValue]]:
    """Both orders of two inputs; none of anything else."""
    return [(pair[0], pair[1]), (pair[1], pair[0])] if len(pair) == 2 else []


# -- Gaussian error linear unit --------------------------------------------------------------------


def _gelu(value: GraphValue) -> GraphValue | None:
    """x (1 + erf(x / sqrt(2))) / 2, the half at either place."""
    half = _scalar(value, "_mul_scalar")
    product = value if half is None else half[0]
    for x, gate in _either(_inputs(product, "elemwise_mul")):
        if half is None:
            halved = _scalar(x, "_mul_scalar")
            if halved is None or halved[1] != 0.5:
                continue
            x = halved[0]
        elif half[1] != 0.5:
            continue
        added = _scalar(gate, "_plus_scalar")
        error = _inputs(added[0], "erf") if added is not None and added[1] == 1 else []
        if error and _is_over_root_two(error[0], x):
            return value.builder.op("gelu", x, approximate="none")
    return None


def _is_over_root_two(value: GraphValue, x: GraphValue) -> bool:
    by = _scalar(value, "_div_scalar")
    if by is None:
        times = _scalar(value, "_mul_scalar")
        by = None if times is None or not times[1] else (times[0], 1 / times[1])
    return by is not None and _same(by[0], x) and isclose(by[1], sqrt(2), rel_tol=1e-5)


# -- dropout ---------------------------------------------------------------------------------------


def _dropout(value: GraphValue) -> GraphValue | None:
    """Data times a drawn array of 0 and 1, which is divided by the probability of a 1."""
    for x, factor in _either(_inputs(value, "elemwise_mul", "broadcast_mul")):
        divided = _scalar(factor, "_div_scalar")
        times = None if divided is None else _scalar(divided[0], "_mul_scalar")
        drawn = [] if divided is None or times is None else _inputs(times[0], "Dropout")
        if divided is None or times is None or not drawn or x.shape != value.shape or factor.rank != x.rank:
            continue
        attrs = _attrs(times[0])
        if not attrs.axes and divided[1] == times[1] and isclose(times[1], 1 - attrs.p) and _is_one(drawn[0]):
            shared = tuple(i for i, length in enumerate(factor.shape) if length != x.shape[i])
            return value.builder.op("Dropout", x, p=attrs.p, mode=attrs.mode, axes=shared)
    return None


def _is_one(value: GraphValue) -> bool:
    if value.array is not None:
        return bool((value.array == 1).all())
    return _name(value) == "_full" and _attrs(value).value == 1


# -- attention -------------------------------------------------------------------------------------


def _attention(value: GraphValue) -> GraphValue | None:
    """softmax(scale * query @ key^T + mask) @ value, all of four axes (B, H, L, E)."""
    b, inputs = value.builder, _inputs(value, "batch_dot")
    if not inputs or not _is_plain(_attrs(value)) or value.rank != 4:
        return None
    softmax = _inputs(inputs[0], "softmax")
    if not softmax or not _is_over_last(inputs[0]):
        return None
    scores, mask = _masked(softmax[0])
    scores, scale = _scaled(scores)
    product = _inputs(scores, "batch_dot")
    if not product or _attrs(scores).transpose_a:
        return None
    query, by_query = _scaled(product[0])
    key, by_key = _scaled(product[1])
    key = key if _attrs(scores).transpose_b else _turned(key)
    if mask is not None and (mask.rank > 4 or mask.shape[-1:] != key.shape[2:3]):
        return None
    causal = mask is not None and _is_causal(mask)
    sides = [query, key, inputs[1]]
    if mask is not None and not causal:
        sides.append(b.reshape(mask, (1,) * (4 - mask.rank) + mask.shape))
    return b.op(
        "scaled_dot_product_attention", *sides,
        causal=causal, scale=scale * by_query * by_key, use_mask=len(sides) == 4,
    )  # fmt: skip


def _is_plain(attrs: Any) -> bool:
    return not attrs.transpose_a and not attrs.transpose_b


def _is_over_last(value: GraphValue) -> bool:
    attrs = _attrs(value)
    return attrs.axis in (-1, value.rank - 1) and attrs.temperature in (None, 1) and not attrs.use_length


def _scaled(value: GraphValue) -> tuple[GraphValue, float]:
    """What a number multiplies in `value`, and the number."""
    times, by = _scalar(value, "_mul_scalar"), _scalar(value, "_div_scalar")
    if times is not None:
        return times
    return (by[0], 1 / by[1]) if by is not None and by[1] else (value, 1.0)


def _masked(value: GraphValue) -> tuple[GraphValue, GraphValue | None]:
    """The scores and what is added to them."""
    pair = _inputs(value, "broadcast_add", "elemwise_add")
    for scores, mask in _either(pair):
        if _inputs(_scaled(scores)[0], "batch_dot"):
            return scores, mask
    return value, None


def _turned(value: GraphValue) -> GraphValue:
    """`value` with its last two axes exchanged, by one transposition with one that made it."""
    source, axes = value, list(range(value.rank))
    if inputs := _inputs(value, "transpose"):
        source, axes = inputs[0], list(_attrs(value).axes)
    axes[-2:] = reversed(axes[-2:])
    return value.builder.transpose(source, axes)


def _is_causal(mask: GraphValue) -> bool:
    """True for a constant that hides what comes later, and nothing else."""
    if mask.array is None or mask.size != mask.shape[-2] * mask.shape[-1] or mask.shape[-2] != mask.shape[-1]:
        return False
    length = mask.shape[-1]
    wanted = np.triu(np.full((length, length), -np.inf, mask.dtype), 1)
    return bool((mask.array.reshape(length, length) == wanted).all())


_LOOK: dict[str, Callable[[GraphValue], GraphValue | None]] = {
    "_mul_scalar": _gelu,
    "batch_dot": _attention,
    "broadcast_add": _layer_norm,
    "broadcast_mul": _dropout,
    "elemwise_mul": lambda value: _dropout(value) or _gelu(value),
}
"""By the operator of a pattern's last node."""
