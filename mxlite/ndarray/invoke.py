"""An operator called on arrays, now: check, make the outputs, push; and, under `autograd.record()`, record.

What a call can know before it has arrays is worked out once and kept (`plan.py`), so that the second
`a += 1` looks up two dicts and pushes. Training mode and recording (`tape.MODE`) take another road.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..core import Context, current_context, DTypeError, ShapeError, StateError
from ..engine import get_engine, Var
from .generator import next_stream
from .plan import Call, call_of as call_of, call_with as call_with, Plan, scalar_call as scalar_call
from .storage import RawArray, Storage
from .tape import MODE, note, origin_of, refuse_write

A = TypeVar("A", bound=Storage)


def invoke(
    call: Call,
    inputs: Sequence[A],
    out: A | Sequence[A] | None = None,
    ctx: Context | None = None,
    cls: type[A] | None = None,
) -> Any:
    """Push one call and return its output, or a list if the operator has several.

    `out` receives the result; it may be an input, or part of one. `ctx` and `cls` are for operators
    without inputs.
    """
    if MODE.flags:
        return _invoke_noted(call, inputs, out, ctx, cls)
    if len(inputs) == 1:
        raw = inputs[0].storage
        key: Any = (raw.shape, raw.dtype)
    else:
        key = tuple([(a.storage.shape, a.storage.dtype) for a in inputs])
    plan = call.plans.get(key)
    if plan is None:
        plan = call.plan(key, inputs, inputs[0].context if inputs else ctx or current_context())
    if out is not None:
        if plan.in_place and out is inputs[0] and (len(inputs) == 1 or inputs[1].var is not inputs[0].var):
            run: Callable[[], None] = partial(
                plan.run, *plan.args[:2], *[a.storage for a in inputs], out=inputs[0].storage
            )
            writes = (inputs[0].var,)
            get_engine().push(run, [a.var for a in inputs], writes, name=plan.name)
            return out
        outs = [out] if isinstance(out, Storage) else list(out)
        _check_out(plan, outs)
        run = _into(plan, inputs, outs, next_stream(outs[0].context) if plan.random else None)
        reads = [a.var for a in inputs]
        reads += [o.var for o in outs if o.partial]
    else:
        if inputs:
            ctx, cls = inputs[0].context, type(inputs[0])
        assert cls is not None
        device = ctx or current_context()
        outs = [cls.adopt(plan.backend.array(shape, dtype), device) for shape, dtype in plan.makes]
        stream = next_stream(device) if plan.random else None
        run = plan.bind([a.storage for a in inputs], [o.storage for o in outs], stream)
        reads = [a.var for a in inputs]
    written = [o.var for o in outs]
    if plan.mutated:
        written += [inputs[i].var for i in plan.mutated]
    get_engine().push(run, reads, written, name=plan.name)
    return outs[0] if len(outs) == 1 else outs


def _invoke_noted(
    call: Call,
    inputs: Sequence[A],
    out: A | Sequence[A] | None,
    ctx: Context | None,
    cls: type[A] | None,
) -> Any:
    """`invoke` in training mode or under record."""
    origins = tuple([origin_of(a) if p else None for a, p in zip(inputs, call.passes)])
    if MODE.captured is not None:
        for a in inputs:
            capture(a)
    recorded = MODE.recording and any(origins)
    key = tuple([(a.storage.shape, a.storage.dtype) for a in inputs])
    plan = call.noted.get((key, MODE.training, recorded))
    if plan is None:
        place = inputs[0].context if inputs else ctx or current_context()
        plan = call.plan(key, inputs, place, MODE.training, recorded)
    if inputs:
        ctx, cls = inputs[0].context, type(inputs[0])
    device = ctx or current_context()
    stream = next_stream(device) if plan.random else None
    state: dict[str, Any] | None = {} if plan.state else None
    reads = [a.var for a in inputs]
    if out is None:
        assert cls is not None
        given: list[A] = [cls.adopt(plan.backend.array(*m), device) for m in plan.makes]
        outs, given = given, given[: plan.visible]
        run = plan.bind([a.storage for a in inputs], [o.storage for o in outs], stream, state)
    else:
        given = [out] if isinstance(out, Storage) else list(out)
        _check_out(plan, given)
        for a in given:
            refuse_write(a, plan.name)
        hidden: Any = [Storage.adopt(plan.backend.array(*m), device) for m in plan.makes[plan.visible :]]
        outs = [*given, *hidden]
        run = _into(plan, inputs, outs, stream, state)
        reads += [o.var for o in given if o.partial]
    written = [o.var for o in outs]
    for i in plan.mutated:
        refuse_write(inputs[i], plan.name)
        written.append(inputs[i].var)
    versions = [v.pushes for v in reads] if recorded else ()
    get_engine().push(run, reads, written, name=plan.name)
    if recorded:
        note(plan, origins, inputs, versions, outs, stream, state)
    return given[0] if len(given) == 1 else given


def capture(array: Storage) -> None:
    """Inside `autograd.checkpoint`: remember that `array` is read, if it is on the tape."""
    origin = origin_of(array)
    if MODE.captured is not None and origin is not None and origin not in MODE.captured:
        view = array.alias(array.storage)
        view.origin = origin
        MODE.captured[origin] = view


def note_view(call: Call, array: Storage, view: Storage) -> None:
    """Record that `view`, whose memory is there already, is what `call` makes of `array`."""
    capture(array)
    origin = origin_of(array)
    if not MODE.recording or origin is None:
        return
    key = ((array.storage.shape, array.storage.dtype),)
    plan = call.noted.get((key, MODE.training, True))
    if plan is None:
        plan = call.plan(key, (array,), array.context, MODE.training, True)
    assert plan.makes[0] == (view.storage.shape, view.storage.dtype), (plan.makes, view.storage.shape)
    note(plan, (origin,), (array,), (array.var.pushes,), (view,))


def note_copy(array: A, other: A, name: str) -> bool:
    """Copy `array` into all of `other` by an operator, if the tape has to know; else False."""
    capture(array)
    refuse_write(other, name)
    if not MODE.recording or origin_of(array) is None:
        return False
    if array.storage.dtype == other.storage.dtype:
        call = call_of("_copy", {})
    else:
        call = call_of("Cast", {"dtype": str(other.storage.dtype)})
    invoke(call, (array,), other)
    return True


def refuse_loss(value: Any, name: str) -> None:
    """Raise StateError if a gradient should flow to `value` but `name` cannot be recorded."""
    if MODE.flags and isinstance(value, Storage):
        capture(value)
        if MODE.recording and origin_of(value) is not None:
            raise StateError(
                f"{name} cannot be recorded, so no gradient would reach the array that it copies. Put parts "
                f"together with mx.nd.concat, stack or where, or copy value.detach()."
            )


def _check_out(plan: Plan, outs: Sequence[Storage]) -> None:
    if len(outs) != plan.visible:
        raise ShapeError(f"{plan.name} has {plan.visible} outputs, but out has {len(outs)} arrays.")
    for o, (shape, dtype) in zip(outs, plan.makes):
        if o.storage.shape != shape:
            raise ShapeError(f"{plan.name} needs out to be of shape {shape}, but it is {o.storage.shape}.")
        if o.storage.dtype != dtype:
            raise DTypeError(f"{plan.name} needs out to be {dtype}, but it is {o.storage.dtype}.")
    for i, o in enumerate(outs):
        if any(o.var is p.var and np.may_share_memory(o.storage, p.storage) for p in outs[:i]):
            raise ShapeError(f"{plan.name} cannot write two of its outputs to the same memory.")


def _into(
    plan: Plan,
    inputs: Sequence[Storage],
    outs: Sequence[Storage],
    stream: Any = None,
    state: dict[str, Any] | None = None,
) -> Callable[[], None]:
    """The call into given outputs; through temporaries where it would overwrite what it still reads."""
    ins = [a.storage for a in inputs]
    made = [o.storage for o in outs]
    unsafe = [j for j, o in enumerate(outs) if not _may_overwrite(o, inputs, plan.donors[j])]
    if not unsafe:
        return plan.bind(ins, made, stream, state)
    finals = [made[j] for j in unsafe]
    temporaries = [plan.backend.array(f.shape, f.dtype) for f in finals]
    for j, temporary in zip(unsafe, temporaries):
        made[j] = temporary
    run = plan.bind(ins, made, stream, state)

    def run_and_copy() -> None:
        run()
        for final, temporary in zip(finals, temporaries):
            final[...] = temporary

    return run_and_copy


def _may_overwrite(out: Storage, inputs: Sequence[Storage], donors: frozenset[int]) -> bool:
    """Whether the kernel may write `out` while it reads `inputs`.

    Yes if they do not meet, or if exactly one does, is the very same memory, and is declared in place.
    """
    var, array = out.var, out.storage
    met = False
    for i, other in enumerate(inputs):
        if other.var is not var:
            continue
        if other is not out and not np.may_share_memory(other.storage, array):
            continue
        if met or i not in donors or not (other is out or _same_memory(other.storage, array)):
            return False
        met = True
    return True


def _same_memory(a: RawArray, b: RawArray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.ctypes.data == b.ctypes.data


_quiet = np.errstate(all="ignore")
"""Decorator: 1 / 0 is inf without a word, on whatever thread runs it."""


@_quiet
def _run_quietly(run: Callable[[], object]) -> None:
    run()


def push_write(
    run: Callable[[], object], into: Storage, reads: Sequence[Var] = (), *, name: str, kind: str = "compute"
) -> None:
    """Push a closure that writes all of `into` (a part of its Var's memory, if it is a view)."""
    if into.partial:
        reads = (*reads, into.var)
    get_engine().push(partial(_run_quietly, run), reads, (into.var,), name=name, kind=kind)
