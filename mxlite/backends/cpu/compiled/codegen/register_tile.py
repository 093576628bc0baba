"""The loop of all matrix products: a tile of C stays in vector registers while the steps go by.

    C (n rows, v vectors) += A (n rows, steps) B (steps, v vectors)

A step reads v vectors of B and n single numbers of A, for n v multiplications of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TYPE_CHECKING

from .ir import Operand as Int, Value

if TYPE_CHECKING:
    from .routine import Routine


class Factors(NamedTuple):
    """Addresses of A and B: their first numbers, and bytes from one to the next row or step. The vectors of a
    step of B lie side by side; `masks`: the lanes of each that are there, None for all.
    """

    a: Value
    a_row: Int
    a_step: Int
    b: Value
    b_step: Int
    masks: Sequence[Value | None]


def multiplied(
    f: Routine,
    sums: Sequence[Value],
    x: Factors,
    start: Int,
    stop: Int,
    unroll: int = 1,
    ahead: Callable[[Value, Value, int], None] | None = None,
) -> list[Value]:
    """`sums` (row by row) and the products of the steps from `start` to `stop`, `unroll` in a round.

    `ahead(step, b, k)` is called before step k of a round is read: the round's first step, and B there.
    """
    v = len(x.masks)
    line = 4 * f.width
    rows = [f.times(r, x.a_row) for r in range(len(sums) // v)]
    with f.loop(start, stop, unroll, sums) as loop:
        values = list(loop.values)
        a = f.at(x.a, f.times(loop.index, x.a_step))
        b = f.at(x.b, f.times(loop.index, x.b_step))
        for k in range(unroll):
            if ahead is not None:
                ahead(loop.index, b, k)
            at = [f.plus(f.times(k, x.b_step), line * j) for j in range(v)]
            right = [f.load(f.at(b, there), 0, mask=mask) for there, mask in zip(at, x.masks)]
            for r, row in enumerate(rows):
                left = f.repeated(f.at(a, f.plus(f.times(k, x.a_step), row)))
                for j in range(v):
                    values[r * v + j] = f.fma(left, right[j], values[r * v + j])
        loop.again(*values)
    return list(loop.results)
