"""Axis collapsing: the fewest axes that suffice to walk arrays that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.ir import Shape


def collapsed(shape: Shape, inputs: Sequence[Shape]) -> tuple[Shape, tuple[Shape, ...]]:
    """(lengths of the fewest axes, strides of each input along them in elements, 0 where it is broadcast)."""
    rank = len(shape)
    aligned = [(1,) * (rank - len(s)) + tuple(s) for s in inputs]
    lengths: list[int] = []
    there: list[tuple[bool, ...]] = []  # for each remaining axis: which inputs have it
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        has = tuple(s[axis] == n for s in aligned)
        if there and there[-1] == has:
            lengths[-1] *= n
        else:
            lengths.append(n)
            there.append(has)
    if not lengths:
        lengths, there = [1], [(False,) * len(aligned)]
    strides = []
    for i in range(len(aligned)):
        step, own = 1, [0] * len(lengths)
        for axis in range(len(lengths) - 1, -1, -1):
            if there[axis][i]:
                own[axis], step = step, step * lengths[axis]
        strides.append(tuple(own))
    return tuple(lengths), tuple(strides)
