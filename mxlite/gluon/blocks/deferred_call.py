"""Deferred calls: a training step of Gluon that runs as one program, when its trainer steps.

    out = net(x)              inputs are copied, outputs are lazy: nothing has run
    loss = loss_of(out, y)    the same
    loss.backward()           gradients of parameters are lazy: nothing has run
    trainer.step(n)           one program runs forward, backward and the update; no gradient is kept

What is read before the step (an output, a gradient) makes the call run as any other, with the same numbers;
so does all that is no such step: a loss that is no hybridized block, or another operation on an output.
Outputs that are read after the step are those of the program. Gradients have died in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any, TYPE_CHECKING

from ...core import StateError
from ...ndarray import NDArray
from ...ndarray.gradients.differentiate import run_backward
from ...ndarray.gradients.host import note_python
from ...ndarray.gradients.tape import flows, origin_of
from ...ndarray.memory.lazy import allocate, become_lazy, Lazy, lazy, ZEROS
from ...ndarray.memory.storage import is_away, Shape, Storage
from ...symbol import autograd
from .trace import Trace

if TYPE_CHECKING:
    from ..trainer import Trainer
    from .bound_call import BoundCall, BoundCalls

NETWORK, LOSS, BACKWARD, DONE = range(4)
"""How far the user's step is; DONE if the call has run."""


class _Result(Lazy):
    """The handle of an output of a deferred call: number `place` of the network's, None for the loss."""

    __slots__ = ("call", "place")

    def __init__(
        self, call: DeferredCall, place: int | None, array: Storage, shape: Shape, dtype: Any
    ) -> None:
        super().__init__(call.bring, array, shape, dtype)
        self.call, self.place = call, place

    def takes_backward(self) -> bool:
        if self.call.stage == BACKWARD:
            self.call.run()  # this is another backward pass
        return self.place is None and self.call.stage == LOSS and self.call.defer_backward()


class _Gradient(Lazy):
    """The handle of a parameter's gradient that a deferred call is to write, in one step after the other. It
    is lost where the call has run with its update.
    """

    __slots__ = ("call",)

    def __init__(self, call: DeferredCall, array: Storage, shape: Shape, dtype: Any) -> None:
        super().__init__(self._made, array, shape, dtype)
        self.call = call

    @property
    def is_lost(self) -> bool:
        return self.call.stage == DONE

    def _made(self, array: Storage) -> None:
        if self.is_lost:
            raise StateError(
                "The gradient has died inside the trainer's step, whose program keeps none. Read it between "
                "backward and step, or keep it: Trainer(..., update_on_kvstore=False)."
            )
        self.call.run()


class _Part:
    """What the tape has of a deferred call: that of the network, or that of the loss."""

    __slots__ = ("_call", "_number")

    def __init__(self, call: DeferredCall, number: int) -> None:
        self._call, self._number = call, number

    def differentiate(self, heads: Sequence[Any], wanted: Sequence[bool], places: Sequence[Any]) -> Any:
        """The gradients of the program that runs by itself."""
        self._call.run()
        return self._call.parts[self._number].differentiate(heads, wanted, places)


class DeferredCall:
    """A recorded call of a hybridized network whose parameters a trainer updates.

    `parts` are the calls of the programs that run by themselves, of the network and of the loss.
    """

    def __init__(
        self, calls: BoundCalls, key: Any, trace: Trace, inputs: Sequence[NDArray], trainer: Trainer
    ) -> None:
        self.calls, self.key, self.trace, self.trainer = calls, key, trace, trainer
        self.context = key[2]
        self.stage = NETWORK
        self.parts: list[BoundCall] = []
        self.inputs = calls.inputs_for(key, inputs)
        self.parameters = calls.parameters_of(trace.symbol)
        self.held = {n: p.data(self.context) for n, p in self.parameters.items()}
        self.loss: tuple[BoundCalls, Any, Trace] | None = None
        self.places: list[int | None] = []  # of the loss's inputs among the outputs; None for one of its own
        self.labels: list[NDArray] = []
        self.losses: list[weakref.ref[NDArray]] = []
        self.outputs: list[weakref.ref[NDArray]] = []
        self._pushes = {n: a.var.pushes for n, a in self.held.items()}
        self._head: NDArray | None = None
        self._memory: dict[str, Any] = {}

    def begin(self) -> list[NDArray]:
        """The lazy outputs of the network, which the caller alone holds. Raises ShapeError."""
        trace, names = self.trace, self.trace.symbol.list_arguments()
        sources = [a for n, a in zip(trace.inputs, self.inputs) if n in names]
        sources += [self.held[n] for n in names if n in self.held]
        made = self._made(self.calls.kinds_of(self.key, trace), sources, range(len(trace.symbol)))
        self.outputs = [weakref.ref(out) for out in made]
        return made

    def _made(
        self, kinds: Sequence[Any], sources: Sequence[NDArray], places: Sequence[int | None]
    ) -> list[NDArray]:
        """Lazy outputs of a part, on the tape."""
        found = []
        for (shape, dtype), place in zip(kinds, places):
            found.append(lazy(NDArray, shape, dtype, self.context, partial(_Result, self, place)))
        note_python(
            "hybridized", _Part(self, int(places[0] is None)), list(map(origin_of, sources)), sources, found
        )
        return found

    def bring(self, array: Storage) -> None:
        """Give one of the lazy arrays its elements."""
        self.run()

    # -- the user's step -----------------------------------------------------------------------

    def take_loss(
        self, calls: BoundCalls, key: Any, trace: Trace, inputs: Sequence[NDArray]
    ) -> list[NDArray] | None:
        """The lazy output of this call of another block, if it is the loss of the step."""
        handles = [getattr(a, "away", None) for a in inputs]
        places = [
            h.place if isinstance(h, _Result) and h.call is self and h.place is not None else None
            for h in handles
        ]
        own = [a for a, place in zip(inputs, places) if place is None]
        if self.stage != NETWORK or len(trace.symbol) != 1 or not calls.is_formula:
            return None
        if any(flows(origin_of(a)) for a in own) or any(a.context != self.context for a in own):
            return None
        kinds = calls.kinds_of(key, trace)  # which raises for shapes that do not fit
        names = trace.symbol.list_arguments()
        sources = [a for n, a in zip(trace.inputs, inputs) if n in names]
        self.labels = self.calls.inputs_for((self.key, key), own)
        made = self._made(kinds, sources, [None])
        self.losses = [weakref.ref(made[0])]
        self.loss, self.places = (calls, key, trace), places
        self.stage = LOSS
        return made

    def defer_backward(self) -> bool:
        """Let the gradients of all parameters be lazy. False if the call has to run at once."""
        head = self.losses[0]()
        if head is None or not self.trainer.joins(self.parameters.values()):
            return False
        self._head, self.stage = head, BACKWARD
        self._take_gradients()
        return True

    def _take_gradients(self) -> None:
        """Let the gradients be lazy. They keep memory that they have: a program may write there."""
        for name, array in self._trained():
            grad = array.grad
            assert grad is not None
            handle = getattr(grad, "away", None)
            if isinstance(handle, _Gradient):
                handle.call = self
            else:
                if not is_away(grad):
                    self._memory[name] = grad.storage
                become_lazy(grad, partial(_Gradient, self))
            array._fresh_grad = True

    def _give_gradients(self) -> None:
        """Let the gradients be what they were, to be written."""
        for name, array in self._trained():
            grad, memory = array.grad, self._memory.get(name)
            assert grad is not None
            if memory is None:
                become_lazy(grad, ZEROS)
            else:
                grad.storage = memory
                del grad.away

    def _trained(self) -> list[tuple[str, NDArray]]:
        return [(n, self.held[n]) for n, p in self.parameters.items() if p.grad_req != "null"]

    def step(self, trainer: Trainer) -> bool:
        """Run the whole step as one program. False if it is none of this trainer's, or not worth it."""
        if self.stage != BACKWARD or trainer is not self.trainer:
            return False
        self._check()
        program = self.calls.joined(self)
        if program is None:
            return False
        outputs = program.step()
        self.calls.last_program = program
        self.stage = DONE
        self._deliver([*self.losses, *self.outputs], outputs)
        for _, array in self._trained():
            array._fresh_grad = False
        assert self._head is not None and self._head.origin is not None
        for origin in (self._head.origin, *self._steps()):
            origin[0].free()
        self._release()
        return True

    def _steps(self) -> list[Any]:
        found = [ref() for ref in self.outputs]
        return [a.origin for a in found if a is not None and a.origin is not None]

    # -- by itself -----------------------------------------------------------------------------

    def run(self) -> None:
        """Run what there is of the step so far, as programs of their own."""
        if self.stage == DONE:
            return
        self._check()
        stage, self.stage = self.stage, DONE
        if stage == BACKWARD:
            self._give_gradients()
        try:
            made = self._run_part(self.calls, self.key, self.trace, self.inputs)
            self._deliver(self.outputs, made)
            if self.loss is not None:
                labels = iter(self.labels)
                given = [next(labels) if k is None else made[k] for k in self.places]
                self._deliver(self.losses, self._run_part(*self.loss, given))
        except BaseException:
            self.stage, self.parts = stage, []
            if stage == BACKWARD:
                self._take_gradients()
            raise
        if stage == BACKWARD:
            assert self._head is not None
            run_backward([self._head], [None], None, retain=False)
        self._release()

    def _run_part(
        self, calls: BoundCalls, key: Any, trace: Trace, inputs: Sequence[NDArray]
    ) -> list[NDArray]:
        program = calls.idle(key, trace)
        with autograd.pause(train_mode=True):
            outputs = program.forward(inputs)
        self.parts.append(program.hold())
        calls.last_program = program
        return outputs

    def _deliver(self, targets: Sequence[weakref.ref[NDArray]], values: Sequence[NDArray]) -> None:
        with autograd.pause():
            for ref, value in zip(targets, values):
                out = ref()
                if out is not None and is_away(out):
                    allocate(out)
                    del out.away
                    value.copyto(out)

    @property
    def written(self) -> str | None:
        """A parameter that was written since the call, which has not read it yet."""
        return next((n for n, a in self.held.items() if a.var.pushes != self._pushes[n]), None)

    def _check(self) -> None:
        if self.written is not None:
            raise StateError(
                f"{self.written!r} was written between the call of {self.calls.name!r} and the reading of "
                f"its outputs or the trainer's step, and the call has not run: it would see the new values. "
                f"Write to it before the call or after the step, or let the loss run by itself: "
                f"loss.hybridize(False)."
            )

    def _release(self) -> None:
        self._head, self._memory = None, {}


def deferred_input(inputs: Sequence[NDArray]) -> DeferredCall | None:
    """The deferred call of which one of these arrays is an output."""
    for a in inputs:
        handle = getattr(a, "away", None)
        if isinstance(handle, _Result) and handle.call.stage == NETWORK:
            return handle.call
    return None


def deferred_step(gradients: Sequence[Any]) -> DeferredCall | None:
    """The deferred call that is to write all these gradients, and no others."""
    handles = [getattr(g, "away", None) for g in gradients]
    first = handles[0] if handles else None
    if not isinstance(first, _Gradient):
        return None
    call = first.call
    if any(not isinstance(h, _Gradient) or h.call is not call for h in handles):
        return None
    return call if len(call._trained()) == len(handles) else None
