"""A cell with its kernels linked to the network's arrays: what it does with some nodes, and with all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..graph import Entry
from .cell import Cell, Kind
from .kernels import CellKernels, SizedPart
from .places import Arrays, NodePlaces
from .schedule import Arrivals, Indices, Run
from .sizes import padded


class BoundCell:
    """Forward and backward copy rows to the staging area, run kernels there, and copy rows back.

    Kernels compute a size's rows; those beyond the nodes are zeros, and their results are not used. For
    `total` they are the last node's, with gradients of zeros.
    """

    def __init__(
        self,
        number: int,
        cell: Cell,
        limit: int,
        kernels: CellKernels,
        places: NodePlaces,
        arrays: Arrays,
        parameters: Mapping[str, Any],
        gradients: Mapping[str, Any],
    ) -> None:
        cut = cell.cut
        self._of, staged = arrays.of[number], arrays.staged[number]
        self._state = arrays.state
        fixed = dict(zip(kernels.constant.makes, arrays.constants[number]))
        fixed |= {e: parameters[n] for n, e in cut.parameters.items()}
        here = {**staged, **fixed}
        ends = {g: gradients[n] for n, g in cut.gradients.items() if n in cut.parameters}
        slices = [
            arrays.results[kind][base : base + limit]
            for kind, (base, _) in zip(cell.outputs, places.results[number])
        ]
        whole = {**self._of, **dict(zip(cut.outputs, slices)), **fixed, **ends}
        arena, state = arrays.arena, arrays.state if kernels.draws else None

        self._constant = kernels.constant.link(fixed.__getitem__, arena, None, True)

        def linked(parts: Mapping[int, SizedPart], arrays: Mapping[Entry, Any], train: bool) -> Any:
            return {
                n: p.link(arrays.__getitem__, arena, state, train) for n, p in parts.items() if n <= limit
            }

        self._draws = kernels.draws
        modes = (True, False) if kernels.draws else (True,)  # only cells that draw differ in training
        self._forward = {train: linked(kernels.forward, here, train) for train in modes}
        self._backward = {train: linked(kernels.backward, here, train) for train in modes}
        self._total = linked(kernels.total, whole, True)

        # What forward reads and makes: (slot, pool, staged), (kept, staged).
        read = kernels.reads(kernels.forward)
        slots = {e: (k, arrays.results[cell.states[n]]) for k, (n, e) in enumerate(cut.states.items())}
        self._gathered = [(*slots[e], staged[e]) for e in slots if e in read]
        self._given = [(self._of[e], staged[e]) for e in cut.data if e in read]
        self._padded = [x for *_, x in (*self._gathered, *self._given)]
        self._results = [(x, staged[e]) for e, x in zip(cut.outputs, slices)]
        self._saved = [(x, staged[e]) for e, x in self._of.items() if e in kernels.forward[1].makes]
        # The same of backward.
        read = kernels.reads(kernels.backward)
        wanted = read.keys() | self._of.keys()
        self._heads = []
        for (base, _), kind, e in zip(places.results[number], cell.outputs, cut.heads):
            if e is not None and e in wanted:
                pool, scratch = arrays.gradients[kind], Scratch(*arrays.added[kind])
                self._heads.append((base, kind, pool, staged[e], self._of.get(e), scratch))
        self._gathered_back = [(*slots[e], staged[e]) for e in slots if e in read]
        self._loaded = [
            (x, staged[e])
            for e, x in whole.items()
            if e in read and e in cut.moving and e not in cut.heads and e not in slots
        ]
        self._padded_back = [x for *_, x in (*self._gathered_back, *self._loaded)]
        self._padded_back += [into for _, _, _, into, _, _ in self._heads]
        rising = [
            (arrays.gradients[kind][at : at + limit], staged[cut.gradients[name]])
            for at, (name, kind) in zip(places.gradients[number], cell.states.items())
            if at is not None
        ]
        made = [(x, staged[e]) for e, x in self._of.items() if e in kernels.backward[1].makes]
        self._made_back = [*rising, *made]
        # The same of total.
        read = kernels.reads(kernels.total)
        self._states_whole = [(*slots[e], self._of[e]) for e in slots if e in read]
        self._zeros = [x for e, x in whole.items() if e in read and cut.is_gradient(e)]
        self._lasts = [
            x for e, x in whole.items() if e in read and e in cut.moving and not cut.is_gradient(e)
        ]
        self.trained = [n for n in cut.parameters if n in cut.gradients]
        weights = kernels.weights()
        self.weight_bytes = sum(x.nbytes for e, x in fixed.items() if e in weights)

    def begin(self, rows: Indices, data: Sequence[np.ndarray], count: int) -> None:
        """Take the rows and data of a mini-batch, and compute what depends on parameters alone."""
        self._rows, self._count = rows, count
        for target, values in zip(self._of.values(), data):  # data come first
            target[:count] = values
        for call in self._constant:
            call()

    def forward(self, run: Run, train: bool, keep: bool) -> None:
        """Compute the results of some nodes, and with `keep` save what backward reads."""
        _, start, stop, draw = run
        n, size = stop - start, padded(stop - start)
        for k, pool, into in self._gathered:
            pool.take(self._rows[k][start:stop], 0, into[:n], "clip")
        for source, into in self._given:
            into[:n] = source[start:stop]
        if size > n:
            for into in self._padded:
                into[n:size] = 0
        if self._draws:
            self._state[:] = draw
        for call in self._forward[train or not self._draws][size]:
            call()
        for target, source in self._results:
            target[start:stop] = source[:n]
        if keep:
            for target, source in self._saved:
                target[start:stop] = source[:n]

    def backward(self, run: Run, train: bool, arrivals: Mapping[Kind, Arrivals], outer: Outer) -> None:
        """Compute the gradients of the states of some nodes, and of what meets parameters."""
        _, start, stop, draw = run
        n, size = stop - start, padded(stop - start)
        for base, kind, pool, into, kept, scratch in self._heads:
            arrive(arrivals.get(kind), base + start, base + stop, pool, into, scratch)
            outer.add(kind, base + start, base + stop, into, scratch)
            if kept is not None:
                kept[start:stop] = into[:n]
        if not self._made_back:
            return
        for k, pool, into in self._gathered_back:
            pool.take(self._rows[k][start:stop], 0, into[:n], "clip")
        for source, into in self._loaded:
            into[:n] = source[start:stop]
        if size > n:
            for into in self._padded_back:
                into[n:size] = 0
        if self._draws:
            self._state[:] = draw
        for call in self._backward[train or not self._draws][size]:
            call()
        for target, source in self._made_back:
            target[start:stop] = source[:n]

    def total(self) -> None:
        """Compute the gradients of the parameters, by all nodes."""
        count, size = self._count, padded(self._count)
        for k, pool, into in self._states_whole:
            pool.take(self._rows[k], 0, into[:count], "clip")
        if size > count:
            for x in self._zeros:
                x[count:size] = 0
            for x in self._lasts:
                x[count:size] = x[count - 1]
        for call in self._total[size]:
            call()


class Outer:
    """Gradients of a mini-batch's results: `head` has a row for each, None for ones.

    `at` says for each row of the pool `kind` which of them it is, -1 for none; `before` how many there are
    before it.
    """

    def __init__(self, kind: Kind, returned: Indices, length: int, head: Any) -> None:
        self.kind, self.head = kind, head
        self.at = np.full(length, -1, np.int64)
        self.at[returned] = np.arange(len(returned))
        self.before = np.zeros(length + 1, np.int64)
        np.cumsum(self.at >= 0, out=self.before[1:])

    def add(self, kind: Kind, start: int, stop: int, into: Any, scratch: Scratch) -> None:
        """Add those of rows `[start, stop)`."""
        if kind != self.kind or self.before[start] == self.before[stop]:
            return
        at = self.at[start:stop]
        here = np.flatnonzero(at >= 0)
        if self.head is None and len(here) == stop - start:
            into[: stop - start] += 1
        else:
            add_rows(into, here, self.head, at[here], scratch)


class Scratch(NamedTuple):
    """Two arrays for rows of one kind that are added."""

    here: Any
    there: Any


def add_rows(into: Any, here: Indices, source: Any, rows: Indices, scratch: Scratch) -> None:
    """Add rows of `source` (None: ones) to those of `into` that are `here`; none is twice."""
    n = len(here)
    into.take(here, 0, scratch.here[:n], "clip")
    if source is None:
        scratch.here[:n] += 1
    else:
        source.take(rows, 0, scratch.there[:n], "clip")
        scratch.here[:n] += scratch.there[:n]
    into[here] = scratch.here[:n]


def arrive(arrivals: Arrivals | None, start: int, stop: int, pool: Any, into: Any, scratch: Scratch) -> None:
    """Gather the gradients of rows `[start, stop)` of a pool's results: for each the sum of those that
    arrive.
    """
    n = stop - start
    if arrivals is None:
        into[:n] = 0
        return
    pool.take(arrivals.first[start:stop], 0, into[:n], "clip")
    if not arrivals.several:
        return
    counts, begins = arrivals.counts[start:stop], arrivals.begins[start:stop]
    for k in range(1, int(counts.max())):
        more = np.flatnonzero(counts > k)
        add_rows(into, more, pool, arrivals.rows[begins[more] + k], scratch)
