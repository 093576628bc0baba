"""Sliding windows of convolution and pooling over the spatial axes.

Element `k` of the window at output position `o` reads input position `o * stride - pad + k * dilate`, if
that is inside the input; the rest is padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from ...core.errors import OpAttributeError, ShapeError
from ...graph.ir import Shape

Slices = tuple[slice, ...]


def per_axis(name: str, value: Shape, rank: int, default: int) -> Shape:
    """`value`, or `default` for every one of `rank` axes if none was given.

    Raises OpAttributeError for another number of axes.
    """
    if not value:
        return (default,) * rank
    if len(value) != rank:
        raise OpAttributeError(f"{name} must have {rank} numbers as kernel has, got {value}.")
    return value


def output_size(
    size: Shape, kernel: Shape, stride: Shape, dilate: Shape, pad: Shape, ceil: bool = False
) -> Shape:
    """Window positions along each axis; with `ceil` the last window may reach beyond the padded input.

    Raises ShapeError if not one window fits.
    """
    sizes = []
    for n, k, s, d, p in zip(size, kernel, stride, dilate, pad):
        room = n + 2 * p - ((k - 1) * d + 1)
        if room < 0:
            raise ShapeError(
                f"kernel {kernel} does not fit data of {'x'.join(map(str, size))} padded by {pad}"
                + (f" at dilation {dilate}" if any(d != 1 for d in dilate) else "")
                + "; pad the data, or take a smaller kernel."
            )
        sizes.append((-(-room // s) if ceil else room // s) + 1)
    return tuple(sizes)


def window_slices(
    size: Shape, kernel: Shape, stride: Shape, dilate: Shape, pad: Shape, out: Shape
) -> Iterator[tuple[int, Slices, Slices]]:
    """For each window element, row by row: its number, the inputs it reads, and the outputs it is for.

    Elements that only ever see padding are left out.
    """
    axes: list[Sequence[tuple[slice, slice] | None]] = []
    for n, k, s, d, p, o in zip(size, kernel, stride, dilate, pad, out):
        ranges: list[tuple[slice, slice] | None] = []
        for i in range(k):
            shift = i * d - p
            first = max(0, -(shift // s))
            stop = min(o, (n - 1 - shift) // s + 1)
            inside = slice(first * s + shift, (stop - 1) * s + shift + 1, s), slice(first, stop)
            ranges.append(inside if first < stop else None)
        axes.append(ranges)
    for number, pairs in enumerate(product(*axes)):
        if all(p is not None for p in pairs):
            yield number, tuple(p[0] for p in pairs if p), tuple(p[1] for p in pairs if p)
