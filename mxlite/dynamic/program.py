"""Program: a plan in memory, and what it does with the schedule of a mini-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..backends import backend_of
from ..core import cpu, StateError
from ..engine import get_engine, Var
from ..ndarray import NDArray
from .bound import BoundCell, Outer
from .plan import Plan
from .schedule import BatchSchedule


class Program:
    """It allocates its block when it is made, and after that nothing but an array for each mini-batch's
    results, which is the caller's. Each pass over a mini-batch is one operation of the engine.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._backend = backend_of(cpu())
        self._threads = self._backend.threads()
        self._kind = "team" if self._backend.in_turn(self._threads) else "compute"
        self._parameters = {n: p.data() for n, p in plan.parameters.items()}
        self._trained = {n: p.grad() for n, p in plan.parameters.items() if p.grad_req != "null"}
        self._adds = {n for n, p in plan.parameters.items() if p.grad_req == "add"}
        self._linked = self._now()
        self._block = self._backend.arena(plan.places.nbytes)
        self._arrays = arrays = plan.places.arrays(self._block)
        self._var = Var("dynamic")
        self._reads = [a.var for a in self._parameters.values()]
        self._writes = [g.var for g in self._trained.values()]
        self._last: BatchSchedule | None = None
        self._versions: list[int] = []
        parameters = {n: a.storage for n, a in self._parameters.items()}
        gradients = {n: a.storage for n, a in self._trained.items()} | arrays.sums
        with self._backend.running(self._threads):
            self._cells = [
                BoundCell(i, c, limit, k, plan.places, arrays, parameters, gradients)
                for i, (c, limit, k) in enumerate(zip(plan.cells, plan.limits, plan.kernels))
            ]

    def _now(self) -> list[Any]:
        return [a.storage for a in (*self._parameters.values(), *self._trained.values())]

    @property
    def is_current(self) -> bool:
        """True if the parameters are still the arrays that kernels are linked to."""
        there = self.plan.parameters
        if any(p.data() is not self._parameters[n] for n, p in there.items()):
            return False
        trained = {n: p.data().grad for n, p in there.items() if p.grad_req != "null"}
        same = trained.keys() == self._trained.keys() and all(
            g is self._trained[n] for n, g in trained.items()
        )
        adds = {n for n, p in there.items() if p.grad_req == "add"}
        return same and adds == self._adds and all(a is b for a, b in zip(self._now(), self._linked))

    @property
    def measured_bytes(self) -> int:
        """Bytes that are allocated."""
        return int(self._block.nbytes) + sum(x.nbytes for x in self._linked)

    @property
    def weight_bytes(self) -> list[int]:
        """Bytes of the matrices that each cell's forward kernels read."""
        return [c.weight_bytes for c in self._cells]

    # -- passes --------------------------------------------------------------------------------

    def forward(self, call: BatchSchedule, train: bool) -> NDArray:
        """The results of a mini-batch. If its schedule has arrivals a backward pass may follow."""
        result = self._result(call)
        self._push(partial(self._forward, call, train, result.storage), (), (result.var,), "dynamic forward")
        self._last = call
        self._versions = [v.pushes for v in self._reads]
        return result

    def backward(self, call: BatchSchedule, train: bool, head: NDArray) -> None:
        """The gradients of the parameters, by those of the results, after a `forward` in the same mode."""
        if self._last is not call:
            raise StateError(
                "backward needs the values of its forward pass; the network has run again since."
            )
        if self._versions != [v.pushes for v in self._reads]:
            raise StateError(
                "A parameter has been written between the network's forward and its backward pass."
            )
        self._last = None
        self._push(
            partial(self._backward, call, train, head.storage), (head.var,), self._writes, "dynamic backward"
        )
        self._note_gradients()

    def forward_backward(self, call: BatchSchedule) -> NDArray:
        """The results of a mini-batch, and the gradients of their sum."""
        result = self._result(call)
        self._last = None

        def run() -> None:
            self._forward(call, True, result.storage)
            self._backward(call, True, None)

        self._push(run, (), (result.var, *self._writes), "dynamic step")
        self._note_gradients()
        return result

    def _result(self, call: BatchSchedule) -> NDArray:
        shape, dtype = call.kind
        return NDArray.fresh((len(call.returned), *shape), dtype, cpu())

    def _push(self, run: Callable[[], None], reads: Sequence[Var], writes: Sequence[Var], name: str) -> None:
        get_engine().push(run, (*self._reads, *reads), (self._var, *writes), name=name, kind=self._kind)

    def _note_gradients(self) -> None:
        for name in self._trained:
            self._parameters[name]._fresh_grad = True

    def _forward(self, call: BatchSchedule, train: bool, result: Any) -> None:
        keep = call.arrivals is not None
        with self._backend.running(self._threads), np.errstate(all="ignore"):
            for cell, rows, data, count in zip(self._cells, call.rows, call.data, call.counts):
                cell.begin(rows, data, count)
            for run in call.runs:
                self._cells[run.cell].forward(run, train, keep)
            self._arrays.results[call.kind].take(call.returned, 0, result, "clip")

    def _backward(self, call: BatchSchedule, train: bool, head: Any) -> None:
        assert call.arrivals is not None
        outer = Outer(call.kind, call.returned, self.plan.places.lengths[call.kind], head)
        written: set[str] = set()
        with self._backend.running(self._threads), np.errstate(all="ignore"):
            for run in reversed(call.runs):
                self._cells[run.cell].backward(run, train, call.arrivals, outer)
            for cell, count in zip(self._cells, call.counts):
                if count:
                    cell.total()
                    self._add(cell.trained, written)
            for name, gradient in self._trained.items():
                if name not in written and name not in self._adds:
                    gradient.storage[...] = 0

    def _add(self, names: Sequence[str], written: set[str]) -> None:
        """Bring the gradients that a cell has computed apart to where they belong."""
        for name in names:
            if (apart := self._arrays.sums.get(name)) is not None and name in self._trained:
                gradient = self._trained[name].storage
                if name in written or name in self._adds:
                    gradient += apart
                else:
                    gradient[...] = apart
            written.add(name)
