"""The nine taps of kernels, which are contiguous in memory, as vectors of one tap of many kernels each."""

from __future__ import annotations

from collections.abc import Sequence

from ..compiled.codegen.ir import FLOAT, listed, poison, Value, zero
from ..compiled.codegen.routine import Int, Routine

TAPS = 9


def read_taps(f: Routine, pointer: Value, lane: Int) -> list[Value]:
    """Tap k of as many kernels as a vector has lanes, for every k; kernels are `lane` bytes apart."""
    rows = []
    at = [f.at(pointer, f.times(k, lane)) for k in range(f.width)]
    if f.width < TAPS:
        rows = [f.read(a) for a in at]
        last: Value = poison(f.vector)
        for k, a in enumerate(at):
            one = f.load_at(FLOAT, f.at(a, 4 * (TAPS - 1)), 4)
            last = f.with_lane(last, one, k)
        return [*transposed(f, rows), last]
    rows = [f.load(a, 0, mask=_first(f)) for a in at]
    return transposed(f, rows)[:TAPS]


def write_taps(f: Routine, taps: Sequence[Value], pointer: Value, adds: bool = False) -> None:
    """The inverse, to contiguous kernels; `adds`: accumulate."""
    at = [f.at(pointer, 4 * TAPS * k) for k in range(f.width)]
    if f.width < TAPS:
        for a, row in zip(at, transposed(f, taps[: f.width])):
            f.write(f.add(row, f.read(a)) if adds else row, a)
        for k, a in enumerate(at):
            one = f.lane(taps[-1], k)
            last = f.at(a, 4 * (TAPS - 1))
            if adds:
                one = f.binary("fadd", one, f.load_at(FLOAT, last, 4))
            f.store_at(one, last, 4)
        return
    rows = [*taps, *[zero(f.vector)] * (f.width - TAPS)]
    for a, row in zip(at, transposed(f, rows)):
        mask = _first(f)
        f.store(f.add(row, f.load(a, 0, mask=mask)) if adds else row, a, 0, mask=mask)


def transposed(f: Routine, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square matrix, given its rows: 8 or 16 of them.

    Registers exchange within their quarters of 4 numbers first, then whole quarters.
    """
    lanes = f.width
    quarters = range(0, lanes, 4)
    pairs = [
        _mixed(
            f,
            rows[k],
            rows[k + 1],
            [x for q in quarters for x in (q + s, lanes + q + s, q + s + 1, lanes + q + s + 1)],
        )
        for k in range(0, lanes, 2)
        for s in (0, 2)
    ]  # pairs[4 g + s]: of rows 4 g, 4 g + 1; then of the next two rows
    fours = []  # fours[g][q]: rows 4 g to 4 g + 3, columns q, q + 4, ...
    for g in range(lanes // 4):
        low, high = pairs[4 * g : 4 * g + 2], pairs[4 * g + 2 : 4 * g + 4]
        fours.append(
            [
                _mixed(
                    f,
                    a,
                    b,
                    [x for q in quarters for x in (q + s, q + s + 1, lanes + q + s, lanes + q + s + 1)],
                )
                for a, b in zip(low, high)
                for s in (0, 2)
            ]
        )
    found: list[Value] = [rows[0]] * lanes
    for q in range(4):
        for k, column in enumerate(_quarters(f, [four[q] for four in fours])):
            found[4 * k + q] = column
    return found


def _quarters(f: Routine, rows: list[Value]) -> list[Value]:
    """The transpose of a square matrix of quarters (2 halves with 8 lanes)."""

    def mixed(a: Value, b: Value, quarters: Sequence[int]) -> Value:
        return _mixed(f, a, b, [4 * q + k for q in quarters for k in range(4)])

    if len(rows) == 2:
        return [mixed(rows[0], rows[1], (0, 2)), mixed(rows[0], rows[1], (1, 3))]
    even = [mixed(rows[k], rows[k + 1], (0, 2, 4, 6)) for k in (0, 2)]
    odd = [mixed(rows[k], rows[k + 1], (1, 3, 5, 7)) for k in (0, 2)]
    orders = (0, 2, 4, 6), (1, 3, 5, 7)
    return [mixed(both[0], both[1], order) for order in orders for both in (even, odd)]


def _mixed(f: Routine, a: Value, b: Value, order: Sequence[int]) -> Value:
    return f.shuffle(a, b, order)


def _first(f: Routine) -> Value:
    """The mask of as many lanes as there are taps."""
    return listed(f.bits, (k < TAPS for k in range(f.width)))
