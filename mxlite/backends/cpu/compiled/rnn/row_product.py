"""The product of one row with a matrix in the order in which its numbers are wanted.

    c (rows) = or += weight (rows, steps) a (steps)

Vectors lie along the steps, so the matrix is read as it is, each number once: nothing has to be packed, which
for one row takes as long as a dozen such products. The lanes of as many sums as a vector has lanes are added
to one vector in the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..codegen import tile
from ..codegen.ir import Value
from ..codegen.routine import Program, Routine


def row_multiplier(p: Program, name: str, rows: int, row: int, adds: bool) -> str:
    """Write the routine `name(ptr a, ptr weight, ptr c, i64 steps)`, for at most a vector of rows; returns
    its name. row: bytes from one row of the weights to the next.
    """
    f = p.routine(name, a="ptr", weight="ptr", c="ptr", steps="i64")
    nothing = f.const(0.0)

    def step(index: Value, mask: Value | None, *sums: Value) -> list[Value]:
        left = f.load(f.arg("a"), index, mask=mask)
        each = (f.load(f.at(f.arg("weight"), row * k), index, mask=mask) for k in range(rows))
        return [f.fma(left, right, total) for right, total in zip(each, sums)]

    sums = f.sweep(0, f.arg("steps"), step, [nothing] * rows)
    total = _across(f, [*sums, *[nothing] * (f.width - rows)])
    mask = tile.first(rows) if rows < f.width else None
    if adds:
        total = f.add(f.load(f.arg("c"), 0, mask=mask), total)
    f.store(total, f.arg("c"), 0, mask=mask)
    f.done()
    return name


def _across(f: Routine, vectors: Sequence[Value]) -> Value:
    """The sum of the lanes of vector k in lane k, for as many vectors as lanes."""
    size = f.width  # of the groups of lanes that still belong to one vector
    while len(vectors) > 1:
        half, count = size // 2, len(vectors) // 2
        low = [lane for group in range(0, f.width, size) for lane in _two(group, half, f.width)]
        made = []
        for x, y in zip(vectors[:count], vectors[count:]):
            made.append(f.add(f.shuffle(x, y, low), f.shuffle(x, y, [lane + half for lane in low])))
        vectors, size = made, half
    return vectors[0]


def _two(group: int, half: int, width: int) -> list[int]:
    """The lanes of the first half of a group, in one vector and in the other."""
    return [side + group + lane for side in (0, width) for lane in range(half)]
