"""Pooling."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ....graph import Shape
from ...building import GraphValue
from ...building.matrices import along_axis
from ...building.moves import padded
from ..node import TorchNode
from .convolution import per_axis


class PoolWindows(NamedTuple):
    """The windows of a pooling, by axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, n: TorchNode, rank: int) -> PoolWindows:
        kernel = per_axis(n.plain("kernel_size"), rank)
        return cls(
            kernel,
            per_axis(n.plain("stride") or kernel, rank),
            per_axis(n.plain("padding", 0), rank),
            per_axis(n.plain("dilation", 1), rank),
        )

    def lacks(self, lengths: Shape) -> list[int]:
        """Elements that the last windows of `ceil_mode` lack; one that begins in the pad is left out."""
        more = []
        for d, k, s, p, step in zip(lengths, *self):
            k = (k - 1) * step + 1
            count = -(-(d + 2 * p - k) // s) + 1
            if (count - 1) * s >= d + p:
                count -= 1
            more.append(max(0, (count - 1) * s + k - d - 2 * p))
        return more

    def places(self, axis: int, count: int) -> np.ndarray:
        """(count, k): the places that each window covers on an axis with its pad."""
        starts = np.arange(count)[:, None] * self.stride[axis]
        return starts + np.arange(self.kernel[axis]) * self.dilation[axis]

    def shares(self, axis: int, length: int, count: int, whole: bool) -> np.ndarray:
        """(count,): 1 / the number of places that each window covers, with `whole` those of the pad too."""
        pad = self.pad[axis]
        at = self.places(axis, count) - pad
        low, high = (-pad, length + pad) if whole else (0, length)
        return 1 / np.maximum(((at >= low) & (at < high)).sum(1), 1)


def _pooled(kind: str, rank: int) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        b, x = n.builder, n["self"]
        alone = x.rank == rank + 1
        x = b.reshape(x, (1, *x.shape)) if alone else x
        windows = PoolWindows.of(n, rank)
        more = windows.lacks(x.shape[2:]) if n.plain("ceil_mode", False) else [0] * rank
        out = _averages(n, x, windows, more) if kind == "avg" else _maxima(x, windows, more)
        return b.reshape(out, out.shape[1:]) if alone else out

    return convert


def _averages(n: TorchNode, x: GraphValue, windows: PoolWindows, more: list[int]) -> GraphValue:
    b, whole, divisor = n.builder, bool(n.plain("count_include_pad", True)), n.plain("divisor_override")
    how = dict(kernel=windows.kernel, stride=windows.stride, pad=windows.pad)
    if divisor is None and not any(more):
        return b.op("Pooling", x, **how, pool_type="avg", count_include_pad=whole)
    longer = padded(x, [(0, 0), (0, 0), *((0, m) for m in more)])
    out = b.op("Pooling", longer, **how, pool_type="sum")
    if divisor is not None:
        return out * (1 / divisor)
    shares = [
        windows.shares(axis, d, count, whole)
        for axis, (d, count) in enumerate(zip(x.shape[2:], out.shape[2:]))
    ]
    return b.binary("mul", out, b.constant(reduce(np.multiply.outer, shares), x.dtype))


def _maxima(x: GraphValue, windows: PoolWindows, more: list[int]) -> GraphValue:
    x = padded(x, [(0, 0), (0, 0), *((0, m) for m in more)], fill=float("-inf"))
    if all(d == 1 for d in windows.dilation):
        how = dict(kernel=windows.kernel, stride=windows.stride, pad=windows.pad)
        return x.builder.op("Pooling", x, **how, pool_type="max")
    x = padded(x, [(0, 0), (0, 0), *((p, p) for p in windows.pad)], fill=float("-inf"))
    for i, (k, s, _, step) in enumerate(zip(*windows)):
        count = (x.shape[2 + i] - (k - 1) * step - 1) // s + 1
        x = _largest_at(x, 2 + i, windows.places(i, count))
    return x


def _largest_at(x: GraphValue, axis: int, places: np.ndarray) -> GraphValue:
    """The largest elements of one axis at each row of `places`."""
    b = x.builder
    return b.reduce("max", b.op("take", x, b.constant(places, np.int64), axis=axis), [axis + 1], False)


def _with_places(rank: int) -> Callable[[TorchNode], tuple[Any, ...]]:
    """max_pool2d_with_indices, with the place of each maximum in its picture where somebody reads it."""

    def convert(n: TorchNode) -> tuple[Any, ...]:
        out = _pooled("max", rank)(n)
        return out, _places_of_maxima(n, out, rank) if n.is_read(1) else None

    return convert


def _places_of_maxima(n: TorchNode, out: GraphValue, rank: int) -> GraphValue:
    """The windows are read as a whole, K elements for each of O results, and their largest elements found."""
    b, x, windows = n.builder, n.builder.op("BlockGrad", n["self"]), PoolWindows.of(n, rank)
    lead, lengths, counts = x.shape[:-rank], x.shape[-rank:], out.shape[-rank:]
    results, elements = (np.indices(s).reshape(rank, -1) for s in (counts, windows.kernel))
    at = [
        windows.places(i, count)[results[i][:, None], elements[i]] - windows.pad[i]
        for i, count in enumerate(counts)
    ]
    inside = np.all([(a >= 0) & (a < d) for a, d in zip(at, lengths)], 0)
    flat = np.ravel_multi_index(at, lengths, mode="clip")  # (O, K)
    taken = b.op("take", b.reshape(x, (*lead, prod(lengths))), b.constant(flat, np.int64), axis=len(lead))
    if not inside.all():
        taken = b.where(b.constant(inside), taken, b.full((), float("-inf"), x.dtype))
    best = b.cast(b.op("argmax", taken, axis=-1), np.int64)
    first = b.constant(np.arange(flat.shape[0]) * flat.shape[1], np.int64)
    found = b.op("take", b.constant(flat.reshape(-1), np.int64), b.binary("add", best, first), axis=0)
    return b.reshape(found, out.shape)


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
            out = x
            for axis, (d, w) in enumerate(zip(x.shape[2:], wanted), 2):
                out = _largest_at(out, axis, _parts(d, w))
        out = b.reshape(out, out.shape[1:]) if alone else out
        return (out, None) if kind == "max" else out

    return convert


def _parts(length: int, count: int) -> np.ndarray:
    """(count, k): the places of each adaptive window; a shorter one has its first place again."""
    ends = [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
    k = max(last - first for first, last in ends)
    return np.array([[*range(first, last), *[first] * (k - last + first)] for first, last in ends])


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
    **{f"max_pool{rank}d_with_indices": _with_places(rank) for rank in (1, 2, 3)},
}
