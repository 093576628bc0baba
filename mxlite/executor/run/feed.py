"""Transfer of a step's numbers into an executor's arrays: batches, head gradients, rates, the random step.

On a CPU they are copied by an operation of their own, on the worker of the kernels that read them. To a
GPU's arrays a batch is staged, and small arrays go along with the next program's launch: `take` returns what
that program is told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...backends import Backend
from ...backends.remote import Staging
from ...core import BindError, Context, cpu, is_floating, nearest, ShapeError
from ...core.errors import ArgumentError
from ...core.wanted import found
from ...engine import get_engine, Var
from ...graph import Entry, Graph, output_name
from ...ndarray import array, NDArray, random as nd_random
from ...ndarray.gradients.tape import MODE
from ...ndarray.memory.transfer import push_copy
from ...ops.shape.reshape import Move
from ..plan.candidates import Planned
from ..plan.lower import STAGING
from ..plan.step import Key
from .devices_program import DevicesProgram
from .graph_segment import Told
from .program import Program
from .storage import staging_of


def _listed(names: Iterable[str], most: int = 12) -> list[str]:
    """The first of them, and the number of others."""
    found = list(names)
    return found if len(found) <= most else [*found[:most], f"and {len(found) - most} more"]


class Feed:
    """The feed of one executor. The programs of device d draw from `random[d]`, None where none draws: a
    RandomState on a GPU. `random_var` guards them; `nbytes` are their bytes.
    """

    def __init__(
        self,
        planned: Planned,
        context: Context,
        backend: Backend,
        arrays: Mapping[Key, NDArray],
    ) -> None:
        self._ctx, self._backend = context, backend
        self._remote = backend.remote
        self._told: list[Told] = []
        self._staging: Staging | None = None
        if STAGING in arrays:
            self._staging = staging_of(arrays, planned.train)
        self.random: list[Any] = []
        self.random_var = Var("random state")
        self._drawn: tuple[int, int] | None = None
        self._heads_checked: Sequence[str | None] | None = None
        self.nbytes: list[int] = []
        for one in planned.of_devices:
            state: Any = None
            if one.train.uses_rng or one.infer.uses_rng:
                state = backend.array((2,), np.dtype(np.uint64))
            self.nbytes.append(0 if state is None else state.nbytes)
            if state is not None and self._remote is not None:
                state = self._remote.random_state(state)
            self.random.append(state)
        self.renew(planned, arrays)

    def renew(self, planned: Planned, arrays: Mapping[Key, NDArray]) -> None:
        """From now on feed `arrays` of the same inputs."""
        self._planned, self._arrays = planned, arrays
        self._arguments = dict.fromkeys(n.name for n in planned.graph.arguments)
        self._classes = class_numbers(planned.graph)

    def take(self) -> list[Told]:
        """Instructions for the next program."""
        told, self._told = self._told, []
        return told

    def draw(self, program: Program | DevicesProgram, again: bool = False) -> None:
        """Give the program the random step that it draws from, if it does; `again`: that of the last pass."""
        if not program.lowered.uses_rng:
            return
        states, var = [r for r in self.random if r is not None], self.random_var
        if self._drawn is None or not again:
            self._drawn = nd_random.next_step(self._ctx)
        seed, step = self._drawn
        if self._remote is not None:
            self._told.append(Told(partial(states[0].expect, seed, step), (), (var,)))
            return

        def advance() -> None:
            for state in states:
                state[0], state[1] = seed, step

        get_engine().push(advance, (), (var,), name="random step", kind=program.lowered.kind)

    def send(
        self, target: NDArray, values: np.ndarray, name: str, merged: bool = False, known: bool = True
    ) -> None:
        """Set `target` to these values; with `merged` no later than the next pass is pushed.

        `known`: no program writes there.
        """
        if self._remote is None:
            # On the worker of the kernels that read it: another would have to wake that one.
            run, kind = partial(np.copyto, target.storage, values), self._planned.train.kind
            get_engine().push(run, (), (target.var,), name=name, kind=kind)
            return
        storage: Any = target.storage
        run = partial(self._remote.dial(storage).set, values, known=known)
        if merged:
            self._told.append(Told(run, (), (target.var,)))
            return
        issued = self._backend.issue(run, (target.var,))
        get_engine().push(issued, (), (target.var,), name=name, device=self._backend.lane)

    def inputs(self, values: Mapping[str, Any]) -> None:
        """Copy `values` (NDArray or numpy) into the arguments of these names."""
        self._told.clear()  # of a call that failed
        if self._remote is not None or len(values) < 2:
            self._copy(values)
            return
        with get_engine().bulk(len(values)):  # one operation: small programs take as long as a few
            self._copy(values)

    def _copy(self, values: Mapping[str, Any]) -> None:
        waiting: list[tuple[str, NDArray]] = []
        for name, value in values.items():
            if name not in self._arguments:
                raise ArgumentError(
                    f"forward: {name!r} is no argument of this symbol."
                    f"{nearest(name, self._arguments) or f' It has {_listed(self._arguments)}.'}"
                )
            target = self._arrays["var", name]
            if not isinstance(value, NDArray):
                value = array(value, None if self._remote is None else cpu(), target.dtype)
            elif self._remote is not None:
                value = value.plain()
            if value.shape != target.shape:
                raise ShapeError(
                    f"{name!r} was bound as {target.shape}, but got an array of {value.shape}; "
                    f"reshape() makes an executor for other shapes."
                )
            if name in self._classes and value.context.device_type != "gpu":
                self._look(self._classes[name], value)
            if self._staging is not None and name in self._staging.inputs and value.context != self._ctx:
                waiting.append((name, value))
            elif value is target:
                continue
            elif self._remote is not None and value.context == self._ctx:
                self._take_over(target, value)
            elif self._remote is None and value.stype == "default" and not MODE.flags:
                # On the worker of the kernels that read it, see `send`.
                push_copy(value, target, name="copyto", kind=self._planned.train.kind)
            else:
                value.copyto(target)
        if waiting:
            self._stage(waiting)

    def _look(self, expected: ClassNumbers, labels: NDArray) -> None:
        if not expected.told:
            run = partial(expected.look, labels.storage)
            get_engine().push(run, (labels.var,), (), name=f"labels of {expected.reader}")

    def _take_over(self, target: NDArray, value: NDArray) -> None:
        """Copy on the device in the next program's operation: a separate one costs the host more."""
        run = partial(self._backend.assign, target.storage, value.storage)
        self._told.append(Told(run, (value.var,), (target.var,)))

    def _stage(self, values: Sequence[tuple[str, NDArray]]) -> None:
        """Push copies to staging, and tell the next program to take them from there."""
        staging, var = self._staging, self._arrays[STAGING].var
        assert staging is not None
        values = [(n, a if a.context.device_type != "gpu" else a.as_in_context(cpu())) for n, a in values]
        run = partial(staging.send, [(n, a.storage) for n, a in values])
        reads = [a.var for _, a in values]
        get_engine().push(run, reads, (var,), name="upload", device=self._backend.lane, kind="copy")
        names = [n for n, _ in values]
        writes = tuple(self._arrays["var", n].var for n in names)
        self._told.append(Told(partial(staging.receive, names), (var,), writes))

    def refuse_heads(self) -> None:
        """Raise BindError if an output needs a head gradient: with the update in the step there is none."""
        names = self._planned.train.step.head_names
        if self._heads_checked is names:
            return
        needed = zip(self._planned.graph.outputs, self._needed(names))
        if outputs := [output_name(e) for e, is_needed in needed if is_needed]:
            raise BindError(
                f"{outputs} defines no gradient: only losses (SoftmaxOutput, LinearRegressionOutput, "
                f"MakeLoss, ...) do, so nothing would be learnt from it. End the network in one of them, "
                f"such as mx.sym.SoftmaxOutput(network, name='softmax'). Wrap an output that is only looked "
                f"at in BlockGrad. To give gradients yourself, to backward(out_grads), have the update "
                f"outside the step: fused_update=False in Module, no optimizer= in simple_bind."
            )
        self._heads_checked = names

    def _needed(self, names: Sequence[str | None]) -> list[bool]:
        """True for each output whose gradient has to be given."""
        return [n is not None and is_floating(self._arrays["out", i].dtype) for i, n in enumerate(names)]

    def heads(self, out_grads: Any) -> None:
        """Copy head gradients: for each output, or for each that is no loss; by position or by name.

        A list may be longer, as in MXNet; the rest is ignored. The gradient of an integer output may be left
        out, and is 0.
        """
        graph, names = self._planned.graph, self._planned.train.step.head_names
        titles = [output_name(e) for e in graph.outputs]
        wanted = [n for n in names if n is not None]
        needed = self._needed(names)
        if out_grads is None:
            if any(needed):
                outputs = [o for o, is_needed in zip(titles, needed) if is_needed]
                raise BindError(
                    f"backward() needs out_grads for {outputs}: only losses (SoftmaxOutput, MakeLoss, ...) "
                    f"define a gradient of their own. Or wrap what needs none in BlockGrad."
                )
            out_grads = [None] * len(names)
        if isinstance(out_grads, NDArray):
            out_grads = [out_grads]
        elif isinstance(out_grads, Mapping):
            out_grads = [out_grads.get(o) for o in titles]
        elif not isinstance(out_grads, (list, tuple)):
            raise ArgumentError(f"backward: out_grads must be a list of NDArrays, got {found(out_grads)}.")
        if len(out_grads) < len(names) and len(out_grads) != len(wanted):
            raise BindError(f"backward() got {len(out_grads)} out_grads for {len(names)} outputs.")
        if len(out_grads) < len(names):
            rest = iter(out_grads)
            out_grads = [next(rest) if n is not None else None for n in names]
        for i, (name, grad) in enumerate(zip(names, out_grads)):
            if name is None:
                continue
            if grad is None and needed[i]:
                raise BindError(f"backward() needs a gradient for {graph.outputs[i].node.name!r}.")
            output = self._arrays["out", i]
            if grad is None:
                grad = array(np.zeros(output.shape), dtype=output.dtype)
            if not isinstance(grad, NDArray):
                grad = array(grad, dtype=output.dtype)
            if grad.shape != output.shape:
                raise ShapeError(f"out_grads: an output is {output.shape}, its gradient {grad.shape}.")
            grad.copyto(self._arrays["var", name])


# -- labels that are no class numbers: a batch is checked when fed, and a warning logged once --------------
#
# SoftmaxOutput and its kin accept an invalid label like MXNet does, without an error: its row gets a gradient
# that pulls to no class. That is seldom meant, and a falling loss does not show it. So arrays that are fed to
# arguments which an operator declares as class numbers are checked, until the first error.

_log = logging.getLogger(__name__)
_AT_A_TIME = 1 << 14  # labels, so that temporaries stay small


@dataclass
class ClassNumbers:
    """Valid values of an argument: whole numbers in [0, count), and `ignored` if that is not None.

    `reader` is the node that declares it. `told`: an invalid one was found, and checks have ended.
    """

    name: str
    reader: str
    count: int
    ignored: float | None
    told: bool = False
    _first: Iterator[bool] = field(default_factory=partial(iter, (True,)))  # threads may check at once

    def look(self, labels: Any) -> None:
        """Log a warning with the first invalid label. O(labels), in pieces."""
        flat = labels.reshape(-1)
        for start in range(0, flat.size, _AT_A_TIME):
            part = flat[start : start + _AT_A_TIME]
            right = (part >= 0) & (part < self.count) & (part == np.trunc(part))
            if self.ignored is not None:
                right |= part == self.ignored
            if right.all():
                continue
            place = start + int(np.argmin(right))
            self.told = True
            if next(self._first, False):
                _log.warning(self._said(flat[place], np.unravel_index(place, labels.shape)))
            return

    def _said(self, label: Any, place: tuple[Any, ...]) -> str:
        either = "" if self.ignored is None else f", or {self.ignored:g} to leave a row out"
        remedy = (
            ""
            if self.ignored is not None
            else "; use_ignore=True with ignore_label= leaves a label's rows out"
        )
        where = ", ".join(str(int(p)) for p in place)
        return (
            f"{self.reader} takes class numbers from 0 to {self.count - 1}{either}, but {self.name!r} has "
            f"{float(label):g} at [{where}]. Such a row is trained towards no class{remedy}. "
            f"Said once for each executor."
        )


def class_numbers(graph: Graph) -> Mapping[str, ClassNumbers]:
    """The arguments that operators read as class numbers, by name, also through reshapes. O(nodes)."""
    found: dict[str, ClassNumbers] = {}
    for node in graph.nodes:
        if node.op is None:
            continue
        declared = node.op.class_numbers(node.attrs, tuple(graph.shapes[e] for e in node.inputs))
        for (count, ignored), entry in ((d, _of(node, n)) for n, d in declared.items()):
            while entry.node.op is not None and issubclass(entry.node.op, Move):
                entry = entry.node.inputs[0]
            if entry.node.op is None and entry.node.name not in found:
                reader = f"{node.op.op_name} {node.name!r}"
                found[entry.node.name] = ClassNumbers(entry.node.name, reader, count, ignored)
    return found


def _of(node: Any, name: str) -> Entry:
    entry: Entry = node.inputs[node.op.input_names(node.attrs).index(name)]
    return entry
