"""Places: where everything lies that a network computes, for so many nodes of each cell.

One block of memory holds it all:

    | pools: results | pools: gradients | arrays of each cell | staging | sums | arena |

A pool has a row of zeros, then a slice for each output (or each state) of each cell. Arrays of a cell have a
row for each of its nodes; forward and backward of a level work in the staging area, which all cells share,
with the temporaries of the kernels in the arena.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from ..core.dtype import as_dtype
from ..graph import Entry
from ..ops.scratch import carve, Piece, scratch_bytes
from .cell import Cell, Kind
from .kernels import CellKernels

_BYTE = as_dtype("uint8")
_STATE = np.dtype("uint64")


class NodePlaces:
    """`limits` are the most nodes of each cell; up to `most` of a cell run together.

    `results[cell]` has, for each output, its first row in its pool and the pool's number in `kinds`;
    `gradients[cell]` for each state the first row in the pool of gradients, None where there is no gradient.
    `summed` are parameters whose gradients are computed apart and then added: those of several cells, or to
    be added to what is there.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        kernels: Sequence[CellKernels],
        limits: Sequence[int],
        most: int,
        kinds: Sequence[Kind],
        summed: Set[str],
    ) -> None:
        self.lengths = dict.fromkeys(kinds, 1)
        self.gradient_lengths = dict.fromkeys(kinds, 1)
        self.results: list[list[tuple[int, int]]] = []
        self.gradients: list[list[int | None]] = []
        for cell, limit in zip(cells, limits):
            bases = []
            for kind in cell.outputs:
                bases.append((self.lengths[kind], kinds.index(kind)))
                self.lengths[kind] += limit
            self.results.append(bases)
            slots: list[int | None] = []
            for name, kind in cell.states.items():
                has_gradient = name in cell.cut.gradients
                slots.append(self.gradient_lengths[kind] if has_gradient else None)
                self.gradient_lengths[kind] += limit * has_gradient
            self.gradients.append(slots)
        self.kept = [_kept(k) for k in kernels]
        self.staged = [_staged(k) for k in kernels]
        self._pools: list[Piece] = [((n, *s), d) for (s, d), n in self.lengths.items()]
        self._pools += [((n, *s), d) for (s, d), n in self.gradient_lengths.items()]
        self._kept: list[list[Piece]] = [
            [((limit, *k.cut.row(e)), k.cut.dtype(e)) for e in kept]
            for k, kept, limit in zip(kernels, self.kept, limits)
        ]
        self._staged: list[list[Piece]] = [
            [((min(most, limit), *k.cut.row(e)), k.cut.dtype(e)) for e in staged]
            for k, staged, limit in zip(kernels, self.staged, limits)
        ]
        self._constants: list[list[Piece]] = [
            [(k.cut.shape(e, 1), k.cut.dtype(e)) for e in k.constant.makes] for k in kernels
        ]
        of = {n: (c.cut.shape(e, 1), c.cut.dtype(e)) for c in cells for n, e in c.cut.parameters.items()}
        self.summed = sorted(summed)
        self._sums: list[Piece] = [of[n] for n in self.summed]
        width = min(most, max(limits))
        self._added: dict[Kind, list[Piece]] = {kind: [((width, *kind[0]), kind[1])] * 2 for kind in kinds}
        self.staging = max(map(scratch_bytes, self._staged))
        self.adding = max(map(scratch_bytes, self._added.values()))
        self.arena = max(k.arena_bytes(min(most, n), n) for k, n in zip(kernels, limits))

    @property
    def breakdown(self) -> dict[str, int]:
        """Bytes by what they are for."""
        return {
            "pools": scratch_bytes(self._pools),
            "nodes": sum(map(scratch_bytes, self._kept)),
            "constants": sum(map(scratch_bytes, self._constants)),
            "staging": scratch_bytes([((self.staging,), _BYTE), ((self.adding,), _BYTE)]),
            "sums": scratch_bytes(self._sums),
            "arena": scratch_bytes([((self.arena,), _BYTE), ((2,), _STATE)]),
        }

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return sum(self.breakdown.values())

    def arrays(self, block: Any) -> Arrays:
        """The arrays in a block of `nbytes`, all zero."""
        return Arrays(self, block)


class Arrays:
    """The arrays of `NodePlaces`. `of[cell][entry]` are those for all nodes, `staged[cell][entry]` for those
    that run.
    """

    def __init__(self, places: NodePlaces, block: Any) -> None:
        block[:] = 0
        kept, constants = places._kept, places._constants
        pieces = [*places._pools, *(p for group in (*kept, *constants) for p in group), *places._sums]
        rest: list[Piece] = [((n,), _BYTE) for n in (places.staging, places.adding, places.arena)]
        taken = iter(carve(block, [*pieces, *rest, ((2,), _STATE)]))
        self.results = {kind: next(taken) for kind in places.lengths}
        self.gradients = {kind: next(taken) for kind in places.gradient_lengths}
        self.of: list[dict[Entry, Any]] = [{e: next(taken) for e in entries} for entries in places.kept]
        self.constants = [[next(taken) for _ in group] for group in constants]
        self.sums = {n: next(taken) for n in places.summed}
        staging, adding, self.arena, self.state = taken
        self.added = {kind: carve(adding, pieces) for kind, pieces in places._added.items()}
        self.staged: list[dict[Entry, Any]] = [
            dict(zip(entries, carve(staging, pieces)))
            for entries, pieces in zip(places.staged, places._staged)
        ]


def _kept(kernels: CellKernels) -> list[Entry]:
    """The entries of which a cell keeps the rows of all nodes, besides its results."""
    cut = kernels.cut
    total = [e for e in kernels.reads(kernels.total) if e in cut.moving]
    saved = [e for e in kernels.reads(kernels.backward) if e in cut.moving and e.node.op is not None]
    return [e for e in dict.fromkeys((*cut.data, *total, *saved)) if e not in cut.outputs]


def _staged(kernels: CellKernels) -> list[Entry]:
    """The entries that a cell's kernels for some nodes read and write."""
    cut = kernels.cut
    read = (e for parts in (kernels.forward, kernels.backward) for e in kernels.reads(parts))
    every = dict.fromkeys((*cut.rows, *read, *cut.forward.makes, *cut.backward.makes))
    return [e for e in every if e in cut.moving]
