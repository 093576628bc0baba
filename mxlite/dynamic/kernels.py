"""The kernels of a cell, chosen and planned for each number of rows before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..backends import Backend
from ..backends.control_flow.part import Part, Run
from ..backends.rewrite import Stage, Step
from ..graph import Entry, Node
from ..ops.index.embedding import Embedding
from .cut import Cut, Piece


class SizedPart:
    """A piece of a cell's step for one number of rows; `reads` are the entries that its kernels read."""

    def __init__(
        self, backend: Backend, cut: Cut, piece: Piece, count: int, streams: Mapping[Node, int]
    ) -> None:
        self.cut, self.count, self.backend = cut, count, backend
        self.makes = piece.makes
        graph = cut.sized(piece, count)
        if graph.outputs and not streams:  # a pass may put another node in place of one that draws
            operators = sum(n.op is not None for n in graph.nodes)
            forward = operators if piece is cut.forward or piece is cut.constant else 0
            graph = backend.optimize().run(Stage.STEP, Step.of(graph, graph.outputs, forward)).graph
        wanted = {e.node for n in graph.nodes for e in n.inputs} | {e.node for e in graph.outputs}
        graph = replace(graph, order=tuple(n for n in graph.nodes if n.op is not None or n in wanted))
        self.reads = [piece.was.get(Entry(n), Entry(n)) for n in graph.variables]
        every = (e for n in graph.nodes if n.op is not Embedding for e in n.inputs)
        self.whole = {piece.was.get(e, e) for e in every}  # what is not looked up by rows
        self.part = Part(backend, graph, graph.variables, streams)
        self.nbytes = self.part.nbytes

    def link(self, array: Callable[[Entry], Any], arena: Any, state: Any, train: bool) -> list[Run]:
        """The calls, on the first rows of `array(entry)`."""

        def rows(e: Entry) -> Any:
            shape = self.cut.shape(e, self.count)
            whole = array(e)
            return whole if whole.shape == shape else whole[: self.count].reshape(shape)

        made = dict(zip(self.part.graph.outputs, self.makes))
        inputs, outputs = map(rows, self.reads), [rows(made[e]) for e in self.part.made.values()]
        calls, results = self.part.link(list(inputs), outputs, arena, state, train)
        copied = [(rows(e), x) for e, x in zip(self.makes, results)]
        run: list[Run] = [call for _, call in self.backend.join(calls)]
        return [*run, *(_copy(into, x) for into, x in copied if into.ctypes.data != x.ctypes.data)]


def _copy(target: Any, source: Any) -> Run:
    def copy() -> None:
        target[...] = source

    return copy


class CellKernels:
    """All parts of a cell: `constant`, and by numbers of rows `forward`, `backward` and `total`."""

    def __init__(self, backend: Backend, cut: Cut) -> None:
        self._backend, self.cut, self._streams = backend, cut, cut.streams()
        self.draws = bool(self._streams)
        self.constant = self._made(cut.constant, 1)
        self.forward: dict[int, SizedPart] = {}
        self.backward: dict[int, SizedPart] = {}
        self.total: dict[int, SizedPart] = {}

    def _made(self, piece: Piece, count: int) -> SizedPart:
        return SizedPart(self._backend, self.cut, piece, count, self._streams)

    def need(self, level: Iterable[int], total: Iterable[int]) -> None:
        """Make the parts of these sizes that are missing: those of a level, and of all nodes."""
        cut = self.cut
        with self._backend.running(self._backend.threads()):
            for n in level:
                if n not in self.forward:
                    self.forward[n] = self._made(cut.forward, n)
                    self.backward[n] = self._made(cut.backward, n)
            for n in total:
                if n not in self.total:
                    self.total[n] = self._made(cut.total, n)

    def reads(self, parts: Mapping[int, SizedPart]) -> dict[Entry, None]:
        """The entries that any of these parts reads."""
        return dict.fromkeys(e for p in parts.values() for e in p.reads)

    def weights(self) -> set[Entry]:
        """The parameters and constants that forward reads as a whole."""
        return {e for p in self.forward.values() for e in p.whole if e not in self.cut.moving}

    def arena_bytes(self, level: int, total: int) -> int:
        """Bytes of the largest part's temporaries, for `level` nodes that run together and `total` in all."""
        levels = (p for parts in (self.forward, self.backward) for p in parts.values() if p.count <= level)
        totals = (p for p in self.total.values() if p.count <= total)
        return max(p.nbytes for p in (self.constant, *levels, *totals))
