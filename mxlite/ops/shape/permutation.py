"""Permutations of axes, simplified."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.ir import Shape


def simplest(shape: Shape, axes: Sequence[int]) -> tuple[Shape, tuple[int, ...]]:
    """Shape and order of axes that move the same elements with the fewest axes.

    Axis i of the result of a permutation is axis `axes[i]` of `shape`. Axes of length 1 do not count, and
    those that stay side by side are one: (2, 3, 4, 5) by (0, 2, 3, 1) is (2, 3, 20) by (0, 2, 1).
    """
    kept = [i for i in axes if shape[i] != 1]
    groups: list[list[int]] = []
    for i in kept:
        # All axes between these two have length 1.
        if groups and i > groups[-1][-1] and all(shape[k] == 1 for k in range(groups[-1][-1] + 1, i)):
            groups[-1].append(i)
        else:
            groups.append([i])
    order = sorted(range(len(groups)), key=lambda g: groups[g][0])
    lengths = []
    for g in order:
        length = 1
        for i in groups[g]:
            length *= shape[i]
        lengths.append(length)
    place = {g: k for k, g in enumerate(order)}
    return tuple(lengths), tuple(place[g] for g in range(len(groups)))
