"""Calls of a hybridized block: a bound program for each form of the inputs.

    net(x)            inputs are copied into the program's, forward runs, outputs are copied out
    under record()    one step on the tape stands for the program, whose arena keeps what backward needs:
                      it is busy until then
    loss.backward()   reaches that step: the program's backward pass writes the parameters' own gradients

Where a trainer updates the parameters, the call may wait, to become part of a program of the whole step: see
`deferred_call.py`.

A program that is busy cannot serve another call: a second call of the same form (a discriminator that sees
real and made images, a cell that is called at every place of a sequence) gets another program with the same
parameters, which is kept and used again in the next step.

The gradient arrays of parameters are those that the program writes, so they exist once. Where the tape
has other uses for the gradient than to write it there (it is one of several terms, or is asked for by
`autograd.grad`), it is copied out, and the array gets its old value back.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ...core import is_floating, StateError
from ...graph import infer_shapes, infer_types
from ...ndarray import empty, NDArray
from ...ndarray.gradients.host import note_python
from ...ndarray.gradients.keepers import Copied, keep
from ...ndarray.gradients.tape import flows, MODE, origin_of
from ...ndarray.memory.lazy import renew
from ...ops.norm.norm import ContribSyncBatchNorm
from ...symbol import autograd
from .deferred_call import deferred_input, DeferredCall
from .joined_program import JoinedProgram
from .nested import Form, nested
from .op_hook import OpHook
from .trace import Trace

MOST_CHANGES = 4
"""Most programs of whole steps of one form that are made one after the other, as where a trainer's batch size
is the number of words: it is fixed in a program."""


class BoundCalls:
    """The programs of one block."""

    def __init__(self, block: Any, options: dict[str, Any], hook: OpHook | None) -> None:
        self.block = block
        self.options = options
        self._hook = hook
        self._programs: dict[Any, list[BoundProgram]] = {}
        self._joined: dict[Any, tuple[JoinedProgram | None, int]] = {}  # and how many there were
        self._given: dict[Any, list[NDArray]] = {}  # inputs of deferred calls
        self._kinds: dict[Any, list[Any]] = {}  # shapes and types of outputs
        self._parameters: dict[str, Any] | None = None
        self._waiting: DeferredCall | None = None
        self._watched: dict[str, NDArray] = {}  # parameters that may be set while a call waits
        self.last_program: BoundProgram | JoinedProgram | None = None

    @staticmethod
    def serves() -> bool:
        """False where a call runs as for inference and is recorded: programs differentiate training only."""
        return not MODE.recording or MODE.training

    @property
    def last(self) -> BoundProgram | JoinedProgram:
        """The program that ran last. StateError if none has."""
        if self._waiting is not None:
            self._waiting.run()
        if self.last_program is None:
            raise StateError(
                f"{self.name!r} has run no program yet: hybridize() it and call it, it is planned then."
            )
        return self.last_program

    @property
    def name(self) -> str:
        """The name of the block."""
        name: str = self.block.name
        return name

    def __call__(self, inputs: Sequence[NDArray], form: Form) -> Any:
        """The outputs for these inputs. Raises DeferredInitializationError before anything has happened."""
        trace = self.block._trace(form, len(inputs))
        if self._parameters is None:
            self._parameters = dict(self.block.collect_params().items())
        context = inputs[0].context
        recording = MODE.recording
        kinds = []
        for a in inputs:
            kinds.append((a.shape, a.dtype, recording and flows(origin_of(a)) and is_floating(a.dtype)))
        key = (tuple(kinds), form, context, recording)
        if self._waiting is not None:
            if self._waiting.written is None:  # else it is too late: its outputs say so
                self._waiting.run()
            self._waiting = None
        if recording:
            call = deferred_input(inputs)
            if call is not None and (made := call.take_loss(self, key, trace, inputs)) is not None:
                return nested(made, trace.form)
            if (trainer := self._trainer(key, trace)) is not None:
                call = DeferredCall(self, key, trace, inputs, trainer)
                made = call.begin()
                self._waiting = call
                for name, array in call.held.items():
                    if self._watched.get(name) is not array:
                        self._watched[name] = array
                        keep(array, self)
                return nested(made, trace.form)
        program = self.idle(key, trace)
        self.last_program = program
        outputs = program.run(inputs, recording)
        return nested(outputs, trace.form)

    def idle(self, key: Any, trace: Trace) -> BoundProgram:
        """A program for inputs of this form that is not busy; a recorded one serves inference as well."""
        assert self._parameters is not None
        kinds, form, context, recording = key
        found = self._programs.setdefault(key, [])
        if not recording:
            others = self._programs.get((kinds, form, context, True), [])
            found = [*found, *others]
        for program in found:
            if not program.is_busy and program.is_current:
                return program
        mine = self._programs[key]
        mine[:] = [p for p in mine if p.is_current]
        made = BoundProgram(trace, kinds, self._parameters, context, recording, self.options)
        if self._hook is not None:
            self._hook.watch(made.executor, trace.symbol)
        if recording:
            for array in made.held.values():
                keep(array, made)
        mine.append(made)
        return made

    def preserve(self, array: Any, copied: Copied) -> None:
        """Run the call that waits, if there is one, which is to read the values of now."""
        if self._waiting is not None:
            self._waiting.run()

    # -- for deferred calls --------------------------------------------------------------------

    def _trainer(self, key: Any, trace: Trace) -> Any:
        """The trainer whose step may be part of a program of this form; None if there is none."""
        kinds, _, context, _ = key
        if (
            self._hook is not None
            or self.options.get("amp") is not None
            or any(wanted or 0 in shape for shape, _, wanted in kinds)
        ):
            return None  # a length of 0 is one to be found out, for a program with arrays of its own
        parameters = self.parameters_of(trace.symbol)
        trained = [p for p in parameters.values() if p.grad_req != "null"]
        trainer = trained[0].trainer() if trained else None
        if trainer is None or not trainer.joins(parameters.values()):
            return None
        return trainer if trained[0].list_ctx() == [context] else None

    def parameters_of(self, symbol: Any) -> dict[str, Any]:
        """The parameters that a symbol of the block has, by name."""
        assert self._parameters is not None
        names = (*symbol.list_arguments(), *symbol.list_auxiliary_states())
        return {n: self._parameters[n] for n in names if n in self._parameters}

    @property
    def is_formula(self) -> bool:
        """True if the block has no parameters and is hybridized without options of its own."""
        return not self._parameters and not self.options

    def inputs_for(self, key: Any, inputs: Sequence[NDArray]) -> list[NDArray]:
        """Copies of these inputs, in arrays that are there for calls of this form."""
        kinds = [(a.shape, a.context, a.dtype) for a in inputs]
        held = self._given.get(key)
        if held is None or [(a.shape, a.context, a.dtype) for a in held] != kinds:
            held = self._given[key] = [empty(*kind) for kind in kinds]
        with autograd.pause():
            for a, into in zip(inputs, held):
                a.copyto(into)
        return held

    def kinds_of(self, key: Any, trace: Trace) -> list[Any]:
        """Shapes and types of the outputs of a call of this form."""
        found = self._kinds.get(key)
        if found is None:
            given = {n: (shape, dtype) for n, (shape, dtype, _) in zip(trace.inputs, key[0])}
            given |= {n: (p.shape, p.dtype) for n, p in self.parameters_of(trace.symbol).items()}
            graph = infer_shapes(trace.symbol.graph, {n: shape for n, (shape, _) in given.items()})
            graph = infer_types(graph, {n: dtype for n, (_, dtype) in given.items()}, "float32")
            found = self._kinds[key] = [(graph.shapes[e], graph.dtypes[e]) for e in graph.outputs]
        return found

    def joined(self, call: DeferredCall) -> JoinedProgram | None:
        """The program of a whole step; None if steps of this form change so often that it is not worth it."""
        assert call.loss is not None
        key = call.key, call.loss[1]
        before, changes = self._joined.get(key, (None, 0))
        if before is not None and before.serves(call):
            return before
        self._joined[key] = None, changes + 1  # which frees the other's arena
        del before
        if changes < MOST_CHANGES:
            self._joined[key] = JoinedProgram(call), changes + 1
        return self._joined[key][0]


class BoundProgram:
    """One executor on the parameters' arrays, with arrays of its own for inputs and for their gradients."""

    def __init__(
        self,
        trace: Trace,
        kinds: Sequence[tuple[Any, Any, bool]],
        parameters: dict[str, Any],
        context: Any,
        recording: bool,
        options: dict[str, Any],
    ) -> None:
        symbol = trace.symbol
        self._inputs = trace.inputs
        names = symbol.list_arguments()
        arrays = {n: empty(s, context, d) for n, (s, d, _) in zip(trace.inputs, kinds)}
        self._parameters = {
            n: parameters[n] for n in (*names, *symbol.list_auxiliary_states()) if n in parameters
        }
        self._context = context
        norms = [n for n in symbol.graph.nodes if n.op is ContribSyncBatchNorm]
        self._shared = list(self._parameters.values()) if norms else []
        self._ranks = self._ranks_now
        self.held = {n: p.data(context) for n, p in self._parameters.items()}
        self._grads = {n: a.grad for n, a in self.held.items()}
        for grad in self._grads.values():
            renew(grad)
        grads: dict[str, NDArray] = {}
        if recording:
            grads = {n: g for n, g in self._grads.items() if g is not None and n in names}
            grads |= {n: empty(*_kind(arrays[n])) for n, k in zip(trace.inputs, kinds) if k[2] and n in names}
        arguments = arrays | self.held
        self.executor = symbol.bind(
            context,
            {n: arguments[n] for n in names},
            args_grad=grads,
            aux_states={n: self.held[n] for n in symbol.list_auxiliary_states()},
            ranks=self._ranks,
            **options,
        )
        self._read = [
            n for n in trace.inputs if n in names
        ]  # an input that the block does not use is no argument
        self.sources = [*(n for n in self._read), *(n for n in names if n in self.held)]
        self.grads = grads
        self.held_arguments = [n for n in names if n in self.held]
        self.read_later = self.executor.read_in_backward if recording else frozenset()
        self._call: weakref.ref[BoundCall] | None = None

    @property
    def _ranks_now(self) -> int:
        """The ranks whose batches its layers normalize together: those that a trainer of them has now."""
        trainers = (p.trainer() for p in self._shared)
        return max((int(t.ranks) for t in trainers if t is not None), default=1)

    @property
    def is_busy(self) -> bool:
        """True if its arena keeps what the backward pass of a call needs that may still come."""
        return self._call is not None and self._call() is not None

    @property
    def is_current(self) -> bool:
        """True if the parameters still have the arrays, gradients and ranks that it was bound to."""
        if self._ranks_now != self._ranks:
            return False
        for name, parameter in self._parameters.items():
            array = parameter.data(self._context)
            if array is not self.held[name] or array.grad is not self._grads[name]:
                return False
        return True

    def run(self, inputs: Sequence[NDArray], recording: bool) -> list[NDArray]:
        """The outputs, copied."""
        with autograd.pause(train_mode=MODE.training):
            outputs = [o.copy() for o in self.forward(inputs)]
        if recording:
            given = dict(zip(self._inputs, inputs))
            sources = [given[n] if n in given else self.held[n] for n in self.sources]
            origins = [origin_of(a) for a in sources]
            if any(o is not None for o in origins):
                note_python("hybridized", self.hold(), origins, sources, outputs)
        return outputs

    def forward(self, inputs: Sequence[NDArray]) -> list[NDArray]:
        """The outputs for these inputs, in the program's own arrays."""
        given = dict(zip(self._inputs, inputs))
        outputs: list[NDArray] = self.executor.forward(
            is_train=MODE.training, **{n: given[n] for n in self._read}
        )
        return outputs

    def preserve(self, array: Any, copied: Copied) -> None:
        """Give the call whose backward pass is still to come a copy of a parameter."""
        call = None if self._call is None else self._call()
        name = next(n for n, a in self.held.items() if a.var is array.var)
        if call is not None and call.pushes.get(name) == array.var.pushes:
            call.before[name] = copied(array.storage, None)
            del call.pushes[name]

    def hold(self) -> BoundCall:
        """A call that keeps the program busy while it exists."""
        call = BoundCall(self)
        self._call = weakref.ref(call)
        return call


class BoundCall:
    """One recorded call of a program, which is busy as long as this exists: the tape frees it after
    backward.

    pushes: writes to each parameter, as forward saw it.  before: copies of those whose values were replaced
    since.
    """

    __slots__ = ("__weakref__", "_is_again", "_program", "before", "pushes")

    def __init__(self, program: BoundProgram) -> None:
        self._program = program
        self._is_again = False  # a second backward pass runs forward again
        self.pushes = {n: program.held[n].var.pushes for n in program.held_arguments}
        self.before: dict[str, NDArray] = {}

    def differentiate(
        self, heads: Sequence[Any], wanted: Sequence[bool], places: Sequence[Any]
    ) -> list[NDArray | None]:
        """The gradients of inputs and parameters. One that is written into its place is that array."""
        program = self._program
        for name, pushes in self.pushes.items():
            is_read = self._is_again or name in program.read_later
            if is_read and program.held[name].var.pushes != pushes:
                raise StateError(
                    f"the gradient of a hybridized block reads {name!r}, which was written after forward "
                    f"read it. Write to it after backward, or by set_data(), which leaves a copy to the "
                    f"gradient."
                )
        grads = [program.grads.get(n) for n in program.sources]
        kept: dict[int, NDArray] = {}
        for i, (name, grad) in enumerate(zip(program.sources, grads)):
            if grad is not None and name in program.held and places[i] is not grad:
                kept[i] = grad.copy()
        replaced = [(program.held[n], program.held[n].copy(), old) for n, old in self.before.items()]
        for array, _, old in replaced:
            old.copyto(array)
        program.executor.backward(list(heads))
        for array, new, _ in replaced:
            new.copyto(array)
        self._is_again = True
        result: list[NDArray | None] = []
        for i, grad in enumerate(grads):
            if grad is None or not wanted[i]:
                result.append(None)
            else:
                result.append(grad if places[i] is grad else grad.copy())
            if i in kept:
                kept[i].copyto(grad)
        return result


def _kind(array: NDArray) -> tuple[Any, Any, Any]:
    return array.shape, array.context, array.dtype
