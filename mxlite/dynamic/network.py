"""Network: cells, and a function of samples that calls them; what is recorded runs in batches inside a
budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..core import cpu, parse_bytes
from ..core.errors import ArgumentError, DeviceError, ShapeError, UnknownNameError
from ..core.process.collection import no_collection
from ..core.wanted import wanted, wanted_function, whole
from ..gluon import ParameterDict, SymbolBlock
from ..graph import Shape
from ..module.initial import initializer
from ..ndarray import NDArray, zeros
from ..symbol import autograd, Variable
from .cell import Cell, Kind
from .plan import Plan, plan_within
from .program import Program
from .schedule import BatchSchedule, nodes_of, schedule
from .tape import Handle, Tape

MOST = 1024
"""Nodes of a cell that run together, unless `max_batch` says otherwise."""


class Network:
    """A function of a sample that calls cells, and all that it takes to train by mini-batches of samples.

        net = mx.dynamic.Network(classify, [leaf, join, loss], max_nodes=2048)
        net.initialize()
        trainer = mx.gluon.Trainer(net.collect_params(), "adam")
        for trees in batches:
            losses = net.forward_backward(trees)
            trainer.step(len(trees))

    function: takes a sample, calls cells, and returns the result (or a list of results) of a cell that is
    wanted of it: the losses, where it trains.  max_nodes: the most nodes of each cell in a mini-batch, by
    name, or one number for all; None: as many of each as the budget has room for.  memory_budget: bytes of
    parameters, gradients, and everything that is computed; MemoryBudgetError if `max_nodes` do not fit.
    max_batch: nodes of a cell that run together.

    Calls of one cell at one depth run together, whatever the shapes of the samples are. A parameter is shared
    by all cells whose symbols have one of its name.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        cells: Iterable[Cell],
        max_nodes: int | Mapping[str, int] | None = None,
        memory_budget: int | str | None = None,
        max_batch: int = MOST,
        params: ParameterDict | None = None,
    ) -> None:
        self._function = wanted_function("Network: function", function)
        self.cells: list[Cell] = list(wanted("Network: cells", cells, "a list of Cells", has=("__iter__",)))
        for cell in self.cells:
            wanted("Network: each of cells", cell, "a Cell", Cell)
        names = [c.name for c in self.cells]
        if not names or len(set(names)) < len(names):
            raise ArgumentError(f"Network: cells must have names of their own, got {names}.")
        kinds = [kind for c in self.cells for kind in (*c.outputs, *c.states.values())]
        self._tape = Tape(self.cells, list(dict.fromkeys(kinds)))
        self._params = ParameterDict() if params is None else params
        for cell in self.cells:
            inputs = [Variable(n) for n in (*cell.states, *cell.data)]
            self._params.update(SymbolBlock(cell.symbol, inputs, self._params).collect_params())
            for name, entry in cell.cut.parameters.items():
                self._params[name].shape = cell.cut.shape(entry, 1)
        self.budget = None if memory_budget is None else parse_bytes(memory_budget)
        if max_nodes is None and self.budget is None:
            raise ArgumentError("Network: max_nodes or memory_budget must say how many nodes there may be.")
        self._most = whole("Network: max_batch", max_batch, 1)
        self._asked = None if max_nodes is None else _limits(names, max_nodes)
        self._program: Program | None = None
        self._token = zeros((1,))
        self._token.attach_grad()

    def collect_params(self) -> ParameterDict:
        """The parameters of all cells, by name."""
        return self._params

    def initialize(self, init: Any = None) -> None:
        """Initialize the parameters on the CPU, by their names as a Module does; `init` is Uniform() unless
        given.
        """
        fill = initializer.create("uniform" if init is None else init)
        about = {n: a for c in self.cells for n, a in c.symbol.attr_dict().items()}
        with autograd.pause():
            for name, parameter in self._params.items():
                parameter.initialize(initializer.Zero(), cpu(), force_reinit=True)
                fill(initializer.InitDesc(name, about.get(name, {})), parameter.data())

    def zeros(self, shape: int | Shape) -> Handle:
        """A handle on a row of zeros, for states that nothing has been computed for yet."""
        kind: Kind = ((shape,) if isinstance(shape, int) else tuple(shape), np.dtype("float32"))
        if kind not in self._tape.kinds:
            raise ShapeError(
                f"No cell has a state of {kind[0]}; there are {[k[0] for k in self._tape.kinds]}."
            )
        return Handle(self._tape.kinds.index(kind) << self._tape.bits)

    # -- memory --------------------------------------------------------------------------------

    @property
    def program(self) -> Program:
        """The kernels and arrays, made when first needed: nothing is compiled or allocated after that."""
        if self._program is None or not self._program.is_current:
            if any(p.list_ctx() != [cpu()] for p in self._params.values()):
                raise DeviceError("mx.dynamic runs on the CPU; net.initialize() puts the parameters there.")
            self._program = None  # so that the old and the new block never exist together
            kinds, parameters = self._tape.kinds, dict(self._params.items())
            plan = plan_within(self.cells, kinds, parameters, self._asked, self._most, self.budget)
            self._program = Program(plan)
        return self._program

    @property
    def plan(self) -> Plan:
        """Room for nodes, in bytes; see `plan.breakdown`."""
        return self.program.plan

    @property
    def planned_bytes(self) -> int:
        """Bytes of parameters, gradients, and the block in which everything is computed."""
        return self.plan.nbytes

    @property
    def measured_bytes(self) -> int:
        """Bytes that are allocated for these."""
        return self.program.measured_bytes

    @property
    def max_nodes(self) -> dict[str, int]:
        """The most nodes of each cell in a mini-batch."""
        return dict(zip((c.name for c in self.cells), self.plan.limits))

    # -- running -------------------------------------------------------------------------------

    def __call__(self, samples: Iterable[Any]) -> NDArray:
        """The results for the samples, a row for each. Inside of `autograd.record()` they have gradients."""
        if autograd.is_recording():
            result: NDArray = _Recorded(self, samples)(self._token)
            return result
        training = autograd.is_training()
        program, call = self._recorded(samples, training, backward=False)
        return program.forward(call, training)

    def forward_backward(self, samples: Iterable[Any]) -> NDArray:
        """The results for the samples, and the gradients of their sum in the parameters' `grad()`."""
        program, call = self._recorded(samples, True, backward=True)
        return program.forward_backward(call)

    def count_nodes(self, samples: Iterable[Any]) -> dict[str, int]:
        """The nodes of each cell that the samples have: what `max_nodes` must allow for."""
        try:
            self._record(samples)
            return dict(zip((c.name for c in self.cells), nodes_of(self._tape, self.cells)))
        finally:
            self._tape.clear()

    def weight_bytes(self, samples: Iterable[Any]) -> tuple[int, int]:
        """Bytes of parameters that forward reads for a mini-batch, and those of one reading for each level in
        which a cell has nodes.
        """
        program, call = self._recorded(samples, False, backward=False)
        each = program.weight_bytes
        return sum(each[run.cell] for run in call.runs), sum(n * b for n, b in zip(call.levels, each))

    def _record(self, samples: Iterable[Any]) -> list[Handle]:
        function = self._function
        with self._tape.recording(), no_collection():  # handles are many, and have no cycles
            return self._tape.returned([function(sample) for sample in samples])

    def _recorded(
        self, samples: Iterable[Any], training: bool, backward: bool
    ) -> tuple[Program, BatchSchedule]:
        """The schedule of the samples. Raises MemoryBudgetError if they have too many nodes."""
        program = self.program
        plan = program.plan
        try:
            results = self._record(samples)
            plan.check(nodes_of(self._tape, self.cells))
            draws = [training and k.draws for k in plan.kernels]
            return program, schedule(self._tape, self.cells, plan.places, results, plan.most, draws, backward)
        finally:
            self._tape.clear()


class _Recorded(autograd.Function):
    """A call of a network on autograd's tape: its input stands for the parameters, whose gradients backward
    writes by itself.
    """

    def __init__(self, net: Network, samples: Iterable[Any]) -> None:
        super().__init__()
        self._net, self._samples = net, samples

    def forward(self, token: NDArray) -> NDArray:
        self._training = autograd.is_training()
        self._program, self._call = self._net._recorded(self._samples, self._training, backward=True)
        return self._program.forward(self._call, self._training)

    def backward(self, head: NDArray) -> None:
        self._program.backward(self._call, self._training, head)


def _limits(names: Sequence[str], given: int | Mapping[str, int]) -> list[int]:
    """The most nodes of each cell."""
    if isinstance(given, Mapping):
        if given.keys() != set(names):
            raise UnknownNameError(f"Network: max_nodes must name the cells {names}, got {sorted(given)}.")
        return [whole(f"Network: max_nodes[{n!r}]", given[n], 1) for n in names]
    return [whole("Network: max_nodes", given, 1)] * len(names)
