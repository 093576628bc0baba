"""Pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import GraphValue, NotSupportedError
from ...building.matrices import along_axis
from ...building.moves import padded
from ..node import TorchNode
from .convolution import per_axis


def _pooled(kind: str, rank: int) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        b, x = n.builder, n["self"]
        alone = x.rank == rank + 1
        x = b.reshape(x, (1, *x.shape)) if alone else x
        kernel = per_axis(n.plain("kernel_size"), rank)
        stride = per_axis(n.plain("stride") or kernel, rank)
        pads = per_axis(n.plain("padding", 0), rank)
        if any(d != 1 for d in per_axis(n.plain("dilation", 1), rank)):
            raise NotSupportedError("pooling with a dilation")
        if n.plain("divisor_override") is not None:
            raise NotSupportedError("pooling with a divisor of its own")
        if n.plain("ceil_mode", False):
            x = _at_the_end(x, kind, kernel, stride, pads)
        whole = {"count_include_pad": bool(n.plain("count_include_pad", True))} if kind == "avg" else {}
        out = b.op("Pooling", x, kernel=kernel, stride=stride, pad=pads, pool_type=kind, **whole)
        return b.reshape(out, out.shape[1:]) if alone else out

    return convert


def _at_the_end(x: GraphValue, kind: str, kernel: Any, stride: Any, pads: Any) -> GraphValue:
    """Data with what the last window of `ceil_mode` lacks; a window that begins in the pad is left out."""
    more = []
    for d, k, s, p in zip(x.shape[2:], kernel, stride, pads):
        count = -(-(d + 2 * p - k) // s) + 1
        if (count - 1) * s >= d + p:
            count -= 1
        more.append(max(0, (count - 1) * s + k - d - 2 * p))
    if any(more) and kind == "avg":
        raise NotSupportedError("average pooling with ceil_mode whose last window is cut off")
    return padded(x, [(0, 0), (0, 0), *((0, m) for m in more)], fill=float("-inf"))


def with_places(n: TorchNode) -> tuple[Any, ...]:
    """max_pool2d_with_indices, whose places nobody reads."""
    return _pooled("max", 2)(n), None


def _adaptive(rank: int, kind: str) -> Callable[[TorchNode], Any]:
    """Window i covers [floor(i d / m), ceil((i + 1) d / m)) of an axis of length d with m results."""

    def convert(n: TorchNode) -> Any:
        b, x = n.builder, n["self"]
        alone = x.rank == rank + 1
        x = b.reshape(x, (1, *x.shape)) if alone else x
        wanted = [d if w is None else w for d, w in zip(x.shape[2:], per_axis(n.plain("output_size"), rank))]
        if all(w == 1 for w in wanted):
            out = b.op("Pooling", x, kernel=(1,) * rank, global_pool=True, pool_type=kind)
        elif all(d % w == 0 for d, w in zip(x.shape[2:], wanted)):
            kernel = tuple(d // w for d, w in zip(x.shape[2:], wanted))
            out = b.op("Pooling", x, kernel=kernel, stride=kernel, pool_type=kind)
        elif kind == "avg":
            out = x
            for axis, (d, w) in enumerate(zip(x.shape[2:], wanted), 2):
                out = along_axis(out, axis, _means(d, w))
        else:
            raise NotSupportedError(f"adaptive max pooling of lengths {x.shape[2:]} to {wanted}")
        out = b.reshape(out, out.shape[1:]) if alone else out
        return (out, None) if kind == "max" else out

    return convert


def _means(length: int, count: int) -> np.ndarray:
    matrix = np.zeros((count, length))
    for i in range(count):
        first, last = i * length // count, -(-(i + 1) * length // count)
        matrix[i, first:last] = 1 / (last - first)
    return matrix


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **{f"{kind}_pool{rank}d": _pooled(kind, rank) for kind in ("avg", "max") for rank in (1, 2, 3)},
    **{f"adaptive_{k}_pool{rank}d": _adaptive(rank, k) for k in ("avg", "max") for rank in (1, 2, 3)},
    "_adaptive_avg_pool2d": _adaptive(2, "avg"),
    "max_pool2d_with_indices": with_places,
}
