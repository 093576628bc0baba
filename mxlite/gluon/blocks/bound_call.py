"""Calls of a hybridized block: a bound program for each form of the inputs.

    net(x)            inputs are copied into the program's, forward runs, outputs are copied out
    under record()    one step on the tape stands for the program, whose arena keeps what backward needs:
                      it is busy until then
    loss.backward()   reaches that step: the program's backward pass writes the parameters' own gradients

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
from ...ndarray import empty, NDArray
from ...ndarray.gradients.host import note_python
from ...ndarray.gradients.tape import flows, MODE, origin_of
from ...symbol import autograd
from .nested import Form, nested
from .trace import Trace


class BoundCalls:
    """The programs of one block."""

    def __init__(self, block: Any, options: dict[str, Any]) -> None:
        self._block = block
        self._options = options
        self._programs: dict[Any, list[BoundProgram]] = {}
        self._parameters: dict[str, Any] | None = None
        self._last: BoundProgram | None = None

    @staticmethod
    def serves() -> bool:
        """False where a call runs as for inference and is recorded: programs differentiate training only."""
        return not MODE.recording or MODE.training

    @property
    def last(self) -> BoundProgram:
        """The program that ran last. StateError if none has."""
        if self._last is None:
            raise StateError(
                f"{self._block.name!r} has run no program yet: hybridize() it and call it, it is planned "
                f"then."
            )
        return self._last

    def __call__(self, inputs: Sequence[NDArray], form: Form) -> Any:
        """The outputs for these inputs. Raises DeferredInitializationError before anything has happened."""
        trace = self._block._trace(form, len(inputs))
        if self._parameters is None:
            self._parameters = dict(self._block.collect_params().items())
        context = inputs[0].context
        recording = MODE.recording
        kinds = []
        for a in inputs:
            kinds.append((a.shape, a.dtype, recording and flows(origin_of(a)) and is_floating(a.dtype)))
        key = (tuple(kinds), form, context, recording)
        program = self._idle(key, trace, context)
        self._last = program
        outputs = program.run(inputs, recording)
        return nested(outputs, trace.form)

    def _idle(self, key: Any, trace: Trace, context: Any) -> BoundProgram:
        """A program for inputs of this form that is not busy; a recorded one serves inference as well."""
        assert self._parameters is not None
        kinds, form, _, recording = key
        found = self._programs.setdefault(key, [])
        if not recording:
            others = self._programs.get((kinds, form, context, True), [])
            found = [*found, *others]
        for program in found:
            if not program.is_busy and program.is_current:
                return program
        mine = self._programs[key]
        mine[:] = [p for p in mine if p.is_current]
        made = BoundProgram(trace, kinds, self._parameters, context, recording, self._options)
        mine.append(made)
        return made


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
        self._held = {n: p.data(context) for n, p in self._parameters.items()}
        self._grads = {n: a.grad for n, a in self._held.items()}
        grads: dict[str, NDArray] = {}
        if recording:
            grads = {n: g for n, g in self._grads.items() if g is not None and n in names}
            grads |= {n: empty(*_kind(arrays[n])) for n, k in zip(trace.inputs, kinds) if k[2] and n in names}
        arguments = arrays | self._held
        self.executor = symbol.bind(
            context,
            {n: arguments[n] for n in names},
            args_grad=grads,
            aux_states={n: self._held[n] for n in symbol.list_auxiliary_states()},
            **options,
        )
        self._read = [
            n for n in trace.inputs if n in names
        ]  # an input that the block does not use is no argument
        self.sources = [*(n for n in self._read), *(n for n in names if n in self._held)]
        self.grads = grads
        self._call: weakref.ref[BoundCall] | None = None

    @property
    def is_busy(self) -> bool:
        """True if its arena keeps what the backward pass of a call needs that may still come."""
        return self._call is not None and self._call() is not None

    @property
    def is_current(self) -> bool:
        """True if the parameters still have the arrays and gradients that it was bound to."""
        for name, parameter in self._parameters.items():
            array = parameter.data(self._context)
            if array is not self._held[name] or array.grad is not self._grads[name]:
                return False
        return True

    def run(self, inputs: Sequence[NDArray], recording: bool) -> list[NDArray]:
        """The outputs, copied."""
        given = dict(zip(self._inputs, inputs))
        feed = {n: given[n] for n in self._read}
        training = MODE.training
        with autograd.pause(train_mode=training):
            outputs = [o.copy() for o in self.executor.forward(is_train=training, **feed)]
        if recording:
            sources = [given[n] if n in given else self._held[n] for n in self.sources]
            origins = [origin_of(a) for a in sources]
            if any(o is not None for o in origins):
                call = BoundCall(self)
                note_python("hybridized", call, origins, sources, outputs)
                self._call = weakref.ref(call)
        return outputs


class BoundCall:
    """One recorded call of a program, which is busy as long as this exists: the tape frees it after
    backward.
    """

    __slots__ = ("__weakref__", "_program")

    def __init__(self, program: BoundProgram) -> None:
        self._program = program

    def differentiate(
        self, heads: Sequence[Any], wanted: Sequence[bool], places: Sequence[Any]
    ) -> list[NDArray | None]:
        """The gradients of inputs and parameters. One that is written into its place is that array."""
        program = self._program
        grads = [program.grads.get(n) for n in program.sources]
        kept: dict[int, NDArray] = {}
        for i, (name, grad) in enumerate(zip(program.sources, grads)):
            if grad is not None and name in program._held and places[i] is not grad:
                kept[i] = grad.copy()
        program.executor.backward(list(heads))
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
