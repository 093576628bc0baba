"""How the code of a nest is written for the lengths of its axes (its schedule, which changes no bit of a
result), and how numbers are joined: sums, products, extremes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from ....nests.nest import Nest, PlacedNest
from ..codegen.emitter import Function, width
from ..codegen.instructions import NBYTES
from ..codegen.ir import FLOAT, number, Value

BLOCK = 4096  # numbers along a vector's axis that are added up before they are added to the rest
CACHE_NBYTES = 14 << 20
"""Bytes of a nest's arrays up to which two rows are read at a time. More come from memory, which takes a
fifth longer to send two rows at a time than one (on two cores that share 32 MB, 2026-11-27)."""


class Reduction:
    """How numbers are joined: `begin` is what joins to the other one."""

    def __init__(self, begin: float, join: str, across: Callable[[Function, Value], Value]) -> None:
        self.begin, self.across = begin, across
        self._join = join

    def join(self, f: Function, a: Value, b: Value) -> Value:
        return getattr(f, self._join)(a, b)


def _product(f: Function, a: Value) -> Value:
    name = f"llvm.vector.reduce.fmul.{a.type.short}"
    return f.every(f.call(FLOAT, name, number(FLOAT, 1.0), a, flags="reassoc"))


REDUCTIONS: Mapping[str, Reduction] = {
    "reduce_sum": Reduction(0.0, "add", Function.total),
    "reduce_prod": Reduction(1.0, "mul", _product),
    "reduce_max": Reduction(float("-inf"), "maximum", Function.largest),
    "reduce_min": Reduction(float("inf"), "minimum", Function.smallest),
}


_CARRIES = frozenset({*REDUCTIONS, "scan"})


@dataclass(frozen=True)
class NestSchedule:
    """What the code of a nest depends on besides the nest itself.

    `in_blocks`: more than BLOCK numbers along the vectors' axis are reduced. `rows`: kept points at a time,
    where there are sums over them, which are then loaded and stored less often. `columns`: vectors at a time
    where the last axis is kept. `unroll`: vectors at a time of a sweep that joins nothing; 0: two where there
    are few steps.
    """

    in_blocks: bool
    rows: int
    columns: int
    unroll: int = 0


def joins(nest: Nest) -> bool:
    """True if there is a reduction or a scan."""
    return any(step[0] in _CARRIES for step in nest.steps)


def schedule_of(placed: PlacedNest) -> NestSchedule:
    """The schedule of a nest, as far as registers and the cache have room."""
    nest, lengths = placed.nest, placed.lengths
    few, reduces = len(nest.steps) <= 4, joins(nest)
    rows = columns = 1
    if nest.across:
        nbytes = 0
        for x in (*nest.loads, *(x for _, x in nest.stores)):
            nbytes += NBYTES[x.dtype] * prod(n for n, there in zip(lengths, x.mask) if there)
        rows = 8 if few and not reduces else 2 if nbytes < CACHE_NBYTES else 1
    elif nest.kept[-1] and reduces:
        columns = 8 if few else 4 if len(nest.steps) <= 12 else 2
        while columns > 1 and columns * width() > lengths[-1]:
            columns //= 2
    return NestSchedule(not nest.kept[-1] and lengths[-1] > BLOCK, rows, columns)
