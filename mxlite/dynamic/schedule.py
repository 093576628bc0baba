"""The schedule of a mini-batch: which rows run together, and where each node's results lie.

The nodes of a cell are numbered level by level, so that a level is a slice of the cell's arrays:

    cell `leaf`   |0 0 0 0 0 0|                      level 0
    cell `join`               |1 1 1|2 2|3|          levels 1, 2, 3
    cell `loss`                            |3 3|     nobody reads it: it waits for the last level

Results lie in pools, one for each shape of a row; row 0 of a pool is zeros. The gradient of a result is
gathered: it is the sum of the rows that the cells reading it have written for it, in the order of their
nodes. All of this is computed with arrays; Python runs once for each level and cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import cpu
from ..core.errors import ArgumentError, DTypeError, ShapeError
from ..ndarray import random
from .cell import Cell, Kind, said
from .places import NodePlaces
from .tape import Handle, Tape

Indices = np.ndarray[Any, np.dtype[np.int64]]


class Run(NamedTuple):
    """Nodes `[start, stop)` of a cell, which run together; `draw` is the key of their random numbers."""

    cell: int
    start: int
    stop: int
    draw: tuple[int, int]


class Arrivals(NamedTuple):
    """The rows of gradients that arrive at each row of a pool.

    `first` is one of them, or 0 of which the gradient is zeros; the `counts[r]` of row r begin at `begins[r]`
    of `rows`. `several` is true if any row has more than one.
    """

    first: Indices
    counts: Indices
    begins: Indices
    rows: Indices
    several: bool


@dataclass(frozen=True)
class BatchSchedule:
    """`counts` and `levels` of each cell: its nodes, and the levels that it has nodes in. `rows[cell][i]` are
    rows in the pool of the cell's i-th state. `returned` are rows of the results, of `kind`. There are
    `arrivals` where gradients may be asked for, else None.
    """

    runs: tuple[Run, ...]
    counts: tuple[int, ...]
    levels: tuple[int, ...]
    rows: tuple[Indices, ...]
    data: tuple[list[np.ndarray], ...]
    arrivals: dict[Kind, Arrivals] | None
    returned: Indices
    kind: Kind


def nodes_of(tape: Tape, cells: Sequence[Cell]) -> list[int]:
    """The number of nodes of each cell."""
    found = np.bincount(np.array(tape.cells, np.int64) + 1, minlength=len(cells) + 1)
    return [int(n) for n in found[1:]]


def schedule(
    tape: Tape,
    cells: Sequence[Cell],
    places: NodePlaces,
    results: Sequence[Handle],
    most: int,
    draws: Sequence[bool],
    backward: bool,
) -> BatchSchedule:
    """The schedule of what was recorded, whose functions returned `results`. O(nodes log nodes).

    `draws` says of each cell if its nodes draw random numbers; `backward`, if gradients may be asked for.
    """
    bits = tape.bits
    level, cell = np.array(tape.levels, np.int64), np.array(tape.cells, np.int64)
    states = [_handles(c, column.states) for c, column in zip(cells, tape.columns)]
    returned = _returned(results, len(level) << bits)
    unread = np.ones(len(level), bool)
    for handles in states:
        unread[handles.reshape(-1) >> bits] = False
    unread[: len(tape.kinds)] = False
    level[unread] = level.max()

    # Where each result lies, and what kind of row it is.
    row = np.zeros(len(level) << bits, np.int64)
    kind = np.full(len(level) << bits, -1, np.int64)
    kind[np.arange(len(tape.kinds)) << bits] = np.arange(len(tape.kinds))
    orders, counts, levels, runs = [], [], [], list[tuple[int, Run]]()
    for i in range(len(cells)):
        nodes = np.flatnonzero(cell == i)
        order = np.argsort(level[nodes], kind="stable")
        nodes = nodes[order]
        for k, (base, number) in enumerate(places.results[i]):
            row[(nodes << bits) | k] = base + np.arange(len(nodes))
            kind[(nodes << bits) | k] = number
        per_level = np.bincount(level[nodes])
        start = 0
        for at in np.flatnonzero(per_level).tolist():
            stop = start + int(per_level[at])
            for first in range(start, stop, most):
                draw = random.next_step(cpu()) if draws[i] else (0, 0)
                runs.append((at, Run(i, first, min(first + most, stop), draw)))
            start = stop
        orders.append(order)
        counts.append(len(nodes))
        levels.append(int(np.count_nonzero(per_level)))
    runs.sort(key=lambda pair: pair[0])

    rows = []
    for c, handles, order in zip(cells, states, orders):
        handles = handles[:, order] if c.states else handles
        wanted = np.array([tape.kinds.index(k) for k in c.states.values()], np.int64)
        there = kind[handles]
        if (wrong := there != wanted[:, None]).any():
            k, node = np.argwhere(wrong)[0]
            name, found = list(c.states)[k], tape.kinds[there[k, node]]
            raise ShapeError(
                f"Cell {c.name!r}: {name!r} must be a row of {said(c.states[name])}, "
                f"got one of {said(found)}."
            )
        rows.append(row[handles])
    kinds = np.unique(kind[returned])
    if len(kinds) != 1:
        raise ShapeError(
            f"Functions must return results of one shape, got {[said(tape.kinds[k]) for k in kinds]}."
        )
    data = [
        [_values(c, n, k, column, order) for (n, k), column in zip(c.data.items(), tape.columns[i].data)]
        for i, (c, order) in enumerate(zip(cells, orders))
    ]
    return BatchSchedule(
        tuple(run for _, run in runs),
        tuple(counts),
        tuple(levels),
        tuple(rows),
        tuple(data),
        _arrivals(cells, places, rows, counts) if backward else None,
        row[returned],
        tape.kinds[int(kinds[0])],
    )


def _arrivals(
    cells: Sequence[Cell], places: NodePlaces, rows: Sequence[Indices], counts: Sequence[int]
) -> dict[Kind, Arrivals]:
    found = {}
    for kind, length in places.lengths.items():
        targets, sources = [], []
        for i, c in enumerate(cells):
            for k, wanted in enumerate(c.states.values()):
                base = places.gradients[i][k]
                if wanted == kind and base is not None:
                    targets.append(rows[i][k])
                    sources.append(base + np.arange(counts[i]))
        if not targets:
            continue
        target, source = np.concatenate(targets), np.concatenate(sources)
        order = np.argsort(target, kind="stable")
        per_row = np.bincount(target, minlength=length)
        begins = np.cumsum(per_row) - per_row
        arriving = np.append(source[order], 0)
        first = np.where(per_row > 0, arriving[begins], 0)
        found[kind] = Arrivals(first, per_row, begins, arriving, bool(per_row[1:].max(initial=0) > 1))
    return found


def _handles(cell: Cell, given: list[Handle]) -> Indices:
    """The handles that each state of a cell was given."""
    if not set(map(type, given)) <= {Handle}:
        wrong = next(i for i, h in enumerate(given) if type(h) is not Handle)
        name = list(cell.states)[wrong % len(cell.states)]
        raise ArgumentError(f"Cell {cell.name!r}: {name!r} must be a result of a cell, got {given[wrong]!r}.")
    count = len(cell.states)
    return np.array(given, np.int64).reshape(-1, count).T if count else np.empty((0, 0), np.int64)


def _returned(results: Sequence[Handle], end: int) -> Indices:
    if not results or not set(map(type, results)) <= {Handle}:
        raise ArgumentError(f"Functions must return results of cells, got {list(results)[:3]!r}.")
    found = np.array(results, np.int64)
    if len(np.unique(found)) != len(found):
        raise ArgumentError("Functions must return each result once in a mini-batch; one was returned twice.")
    return found


def _values(cell: Cell, name: str, kind: Kind, column: list[Any], order: Indices) -> np.ndarray:
    """The data of a cell's nodes in their order."""
    shape, dtype = kind
    try:
        values = np.asarray(column, dtype).reshape(len(column), *shape)
    except (TypeError, ValueError) as error:
        where = DTypeError if isinstance(error, TypeError) else ShapeError
        raise where(
            f"Cell {cell.name!r}: {name!r} must be {shape} of {dtype} for each node: {error}"
        ) from None
    return values[order]
