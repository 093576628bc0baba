"""The tape: calls of cells as a user's functions make them, in lists that become arrays.

A call costs Python about a microsecond, most of the time that a user's graph takes besides kernels. So
it checks little; what was recorded is checked as arrays, for all nodes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from ..core.errors import ArgumentError
from .cell import Cell, Kind


class Handle(int):
    """A result of a cell for one node: number of the node, and of the output in its lowest bits."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Handle {int(self)}>"


class Columns:
    """What is recorded of one cell: for each call its node's number, its states and its data."""

    def __init__(self, count: int) -> None:
        self.states: list[Handle] = []
        self.data: list[list[Any]] = [[] for _ in range(count)]


class Tape:
    """Nodes in the order of their calls: `level` is 0 without states, else one more than the highest of them.

    The first nodes stand for rows of zeros, one for each of `kinds`; they have level -1.
    """

    def __init__(self, cells: Sequence[Cell], kinds: Sequence[Kind]) -> None:
        self.kinds = list(kinds)
        self.bits = (max(len(c.outputs) for c in cells) - 1).bit_length()
        self.levels: list[int] = []
        self.cells: list[int] = []
        self.columns = [Columns(len(c.data)) for c in cells]
        self._recorders = [(c, self._recorder(i, c)) for i, c in enumerate(cells)]
        self.clear()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, calls of the cells are recorded here."""
        before = [cell.record for cell, _ in self._recorders]
        for cell, recorder in self._recorders:
            cell.record = recorder
        try:
            yield
        finally:
            for (cell, _), record in zip(self._recorders, before):
                cell.record = record

    def clear(self) -> None:
        """Forget all calls."""
        self.levels[:] = [-1] * len(self.kinds)
        self.cells[:] = [-1] * len(self.kinds)
        for columns in self.columns:
            for column in (columns.states, *columns.data):
                column.clear()

    def _recorder(self, number: int, cell: Cell) -> Callable[..., Any]:
        """What a call of the cell does."""
        bits, levels, cells = self.bits, self.levels, self.cells
        columns = self.columns[number]
        count, total = len(cell.states), len(cell.states) + len(cell.data)
        append_states = columns.states.extend
        appends = [column.append for column in columns.data]
        others = range(1, len(cell.outputs))

        def refused(operands: Sequence[Any]) -> ArgumentError:
            if len(operands) != total:
                return ArgumentError(f"{cell!r} takes {total} operands, got {len(operands)}.")
            known = len(levels) << bits
            pairs = zip(cell.states, operands)
            name, wrong = next((n, x) for n, x in pairs if not isinstance(x, int) or x >= known)
            return ArgumentError(
                f"Cell {cell.name!r}: {name!r} must be a result of a cell in the same mini-batch, "
                f"got {wrong!r}."
            )

        def record(*operands: Any) -> Any:
            if len(operands) != total:
                raise refused(operands)
            level = 0
            if count:
                states = operands[:count] if appends else operands
                try:
                    for handle in states:
                        at = levels[handle >> bits]
                        if at >= level:
                            level = at + 1
                except (TypeError, IndexError):
                    raise refused(operands) from None
                append_states(states)
            node = len(levels) << bits
            levels.append(level)
            cells.append(number)
            if appends:
                for append, value in zip(appends, operands[count:]):
                    append(value)
            if not others:
                return Handle(node)
            return (Handle(node), *[Handle(node | i) for i in others])

        return record

    def returned(self, results: Sequence[Any]) -> list[Handle]:
        """The handles that functions have returned, each one or several."""
        found = [r if isinstance(r, (list, tuple)) else (r,) for r in results]
        return list(chain.from_iterable(found))
