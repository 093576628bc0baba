"""Loops over samples (s..., t...) of distributions with parameters (s...): each serves a block of neighbours.

    each == 1     parameters lie beside the samples, and are read by vectors
    else          a unit is a piece of a block: its parameters are read once

Threads share units. Intermediate numbers are float64, whatever the types of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...onednn.primitive import address_of
from ..calls import team
from ..codegen.doubles import slot
from ..codegen.emitter import Function
from ..codegen.ir import Value
from ..codegen.traced import Traced, Tracer

PIECE = 4096  # samples of a block in one unit
SLOTS = 4  # of the arguments: units, units in a block, samples in a unit, in a block

Body = Callable[[Value, "Value | None", Sequence[Traced]], None]


class Parameters(NamedTuple):
    """Parameters that the code depends on: the dtype of each parameter, "" for a number; True if there is one
    for each sample."""

    kinds: tuple[str, ...]
    aligned: bool


def parameters_of(values: Sequence[Any], count: int) -> Parameters:
    """Parameters of arrays and numbers that serve `count` samples."""
    kinds = tuple(v.dtype.name if hasattr(v, "dtype") else "" for v in values)
    sizes = {v.size for v in values if hasattr(v, "dtype")}
    return Parameters(kinds, sizes == {count})


def arguments(p: Parameters, values: Sequence[Any], count: int, whole: bool = False) -> list[int]:
    """The first SLOTS arguments, then one for each parameter. whole: a unit is a whole block."""
    sizes = [v.size for v, kind in zip(values, p.kinds) if kind]
    each = 1 if p.aligned else count // sizes[0] if sizes else count
    pieces = 1 if whole else -(-each // PIECE)
    piece = -(-each // pieces)
    units = count if p.aligned else count // each * pieces
    return [units, pieces, piece, each, *(
        address_of(v) if kind else slot(float(v)) for v, kind in zip(values, p.kinds)
    )]  # fmt: skip


def threads_for(count: int, cost: int) -> int:
    """Threads for `count` samples that take as long as moving `cost` bytes each."""
    return team.threads_for(count * cost)


class Blocks:
    """Writes the loops into `f`."""

    def __init__(self, f: Function, xp: Tracer, p: Parameters) -> None:
        self.f, self.xp, self.p = f, xp, p
        self.units, self.pieces, self.piece, self.each = (f.integer(k) for k in range(SLOTS))
        self.pointers: list[Any] = [f.pointer(SLOTS + k) if kind else None for k, kind in enumerate(p.kinds)]
        self.numbers = [None if kind else xp.real(xp.d.number(SLOTS + k)) for k, kind in enumerate(p.kinds)]

    def sweep(self, body: Body) -> None:
        """`body(index, mask, parameters)` for every vector of samples."""
        if self.p.aligned:
            self.aligned(body)
        else:
            self.rows(lambda row, begin, end, values: self.f.sweep(
                begin, end, lambda i, mask: body(i, mask, [self.xp.real(v.value) for v in values])
            ))  # fmt: skip

    def aligned(self, body: Body) -> None:
        """Sweep in which each sample has its own parameters."""
        first, last = self.f.share(self.units, self.f.width)
        self.f.sweep(first, last, lambda i, mask: body(i, mask, self._at(i, mask)))

    def rows(self, body: Callable[[Value, Value, Value, Sequence[Traced]], object]) -> None:
        """`body(block, begin, end, parameters)` for every unit: samples [begin, end)."""
        f = self.f
        first, last = f.share(self.units)
        with f.loop(first, last) as unit:
            row = f.over(unit.index, self.pieces)
            part = f.rest(unit.index, self.pieces)
            start = f.times(row, self.each)
            stop = f.plus(start, self.each)
            begin = f.plus(start, f.times(part, self.piece))
            end = f.plus(begin, self.piece)
            end = f.least(end, stop)
            body(row, begin, end, self._at(row, None, one=True))

    def _at(self, index: Value, mask: Value | None, one: bool = False) -> list[Traced]:
        values = []
        for pointer, kind, number in zip(self.pointers, self.p.kinds, self.numbers):
            if number is not None:
                values.append(self.xp.real(number.value))
            elif one:
                values.append(self.xp.real(self.xp.d.load_one(pointer, index, kind)))
            else:
                values.append(self.xp.real(self.xp.d.load_as(pointer, index, kind, mask)))
        return values
