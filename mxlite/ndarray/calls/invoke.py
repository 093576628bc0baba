"""The imperative call of an operator: check, allocate outputs, push; and, under `autograd.record()`, record.

The part of a call that does not depend on its arrays is computed once and cached (`plan.py`), so that the
second `a += 1` looks up two dicts and pushes. Training mode and recording (`tape.MODE`) take another path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from ...backends import Backend, backend_of
from ...core import Context, current_context, DeviceError, DTypeError, ShapeError, StateError
from ...core.supplied import Supplied
from ...engine import get_engine
from ..generator import next_stream
from ..gradients.host import note_python
from ..gradients.tape import flows, MODE, note, Origin, origin_of, refuse_write
from ..memory.storage import RawArray, Storage
from ..memory.transfer import push_copy
from .plan import Call, call_of as call_of, call_with as call_with, Plan, scalar_call as scalar_call

A = TypeVar("A", bound=Storage)

lookup_by_rows: Supplied[Callable[[Call, Sequence[Any], Sequence[Origin | None]], Any]] = Supplied()
"""The result of a call that is recorded as a lookup of rows, see `row_steps.py`; None for any other call."""


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
        key: Any = (raw.shape, raw.dtype, raw.device)
    elif inputs:
        key = tuple([(a.storage.shape, a.storage.dtype, a.storage.device) for a in inputs])
    else:
        ctx = _place_for(out, ctx)
        key = backend_of(ctx).place
    plan = call.plans.get(key)
    if plan is None:
        if (kind := sparse_kind(inputs)) is not None:
            return kind.call(call, inputs, out)
        plan = call.plan(key, inputs, inputs[0].context if inputs else ctx or current_context())
    if out is not None:
        if plan.in_place and out is inputs[0] and (len(inputs) == 1 or inputs[1].var is not inputs[0].var):
            run: Callable[[], object] = partial(
                plan.run, *plan.args[:2], *[a.storage for a in inputs], out=inputs[0].storage
            )
            reads = [a.var for a in inputs]
            if plan.is_remote:
                run = plan.backend.issue(run, reads)
            get_engine().push(run, reads, (inputs[0].var,), name=plan.name, device=plan.lane, kind=plan.kind)
            return out
        outs = [out] if isinstance(out, Storage) else list(out)
        if not _are_dense(plan, outs):
            return _copied(call, inputs, out, ctx, cls)
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
    if plan.is_remote:
        run = plan.backend.issue(run, (*reads, *written))
    get_engine().push(run, reads, written, name=plan.name, device=plan.lane, kind=plan.kind)
    return outs[0] if len(outs) == 1 else outs


def _invoke_noted(
    call: Call,
    inputs: Sequence[A],
    out: A | Sequence[A] | None,
    ctx: Context | None,
    cls: type[A] | None,
) -> Any:
    """`invoke` in training mode or while recording."""
    origins = tuple([origin_of(a) for a in inputs])
    if MODE.captured is not None:
        for a in inputs:
            capture(a)
    noted = MODE.recording and any(origins)
    recorded = noted and any(p and flows(o) for o, p in zip(origins, call.passes))
    if recorded and call.by_rows and out is None:
        result = lookup_by_rows.call(call, inputs, origins)
        if result is not None:
            return result
    if inputs:
        key = tuple([(a.storage.shape, a.storage.dtype, a.storage.device) for a in inputs])
        ctx, cls = inputs[0].context, type(inputs[0])
    else:
        ctx = _place_for(out, ctx)
        key = backend_of(ctx).place
    plan = call.noted.get((key, MODE.training, recorded))
    if plan is None:
        if (kind := sparse_kind(inputs)) is not None:
            return kind.call(call, inputs, out)
        plan = call.plan(key, inputs, ctx, MODE.training, recorded)
    device = ctx or current_context()
    stream = next_stream(device) if plan.random else None
    state: dict[str, Any] | None = {} if plan.state else None
    reads = [a.var for a in inputs]
    if out is None:
        assert cls is not None
        run: Callable[[], object]
        given: list[A] = [cls.adopt(plan.backend.array(*m), device) for m in plan.makes]
        outs, given = given, given[: plan.visible]
        run = plan.bind([a.storage for a in inputs], [o.storage for o in outs], stream, state)
    else:
        given = [out] if isinstance(out, Storage) else list(out)
        if not _are_dense(plan, given):
            return _copied(call, inputs, out, ctx, cls)
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
    if plan.is_remote:
        run = plan.backend.issue(run, (*reads, *written))
    get_engine().push(run, reads, written, name=plan.name, device=plan.lane, kind=plan.kind)
    if noted:
        note(plan, origins, inputs, versions, outs, stream, state, not recorded)
    return given[0] if len(given) == 1 else given


def sparse_kind(inputs: Sequence[Storage]) -> Any:
    """The class of the first sparse input, which handles the call; None if all are dense."""
    return next((type(a) for a in inputs if a.storage.device == "sparse"), None)


def capture(array: Storage) -> None:
    """Inside `autograd.checkpoint`: note that `array` is read, if it is on the tape."""
    origin = origin_of(array)
    if MODE.captured is not None and origin is not None and flows(origin) and origin not in MODE.captured:
        view = array.alias(array.storage)
        view.origin = origin
        MODE.captured[origin] = view


def note_view(call: Call, array: Storage, view: Storage) -> None:
    """Record that `view`, whose memory exists already, is the result of `call` on `array`."""
    capture(array)
    origin = origin_of(array)
    if not MODE.recording or origin is None:
        return
    key = ((array.storage.shape, array.storage.dtype, array.storage.device),)
    plan = call.noted.get((key, MODE.training, True))
    if plan is None:
        plan = call.plan(key, (array,), array.context, MODE.training, True)
    assert plan.makes[0] == (view.storage.shape, view.storage.dtype), (plan.makes, view.storage.shape)
    note(plan, (origin,), (array,), (array.var.pushes,), (view,), constant=not flows(origin))


def note_copy(array: A, other: A, name: str) -> bool:
    """Copy `array` into all of `other` by an operator, if the tape must record it; else return False."""
    capture(array)
    refuse_write(other, name)
    origin = origin_of(array)
    if not MODE.recording or origin is None:
        return False
    if array.storage.device != other.storage.device:
        push_copy(array, other, name=name)
        note_python(name, _Carried(array.context, array.storage.dtype), (origin,), (array,), (other,))
        return True
    if array.storage.dtype == other.storage.dtype:
        call = call_of("_copy", {})
    else:
        call = call_of("Cast", {"dtype": str(other.storage.dtype)})
    invoke(call, (array,), other)
    return True


class _Carried:
    """A copy to another device, as a differentiable call: its gradient is copied back."""

    def __init__(self, context: Context, dtype: Any) -> None:
        self.context = context
        self.dtype = dtype

    def differentiate(self, heads: Sequence[Any], wanted: Sequence[bool], places: Sequence[Any]) -> list[Any]:
        (head,) = heads
        back = type(head).fresh(head.storage.shape, self.dtype, self.context)
        return [head.copyto(back)]


def refuse_loss(value: Any, name: str) -> None:
    """Raise StateError if a gradient should flow to `value` but `name` cannot be recorded."""
    if MODE.flags and isinstance(value, Storage):
        capture(value)
        if MODE.recording and flows(origin_of(value)):
            raise StateError(
                f"{name} cannot be recorded, so no gradient would reach the array that it copies: Inplace "
                f"operations (+=, -=, x[:]=, etc) are not supported when recording with autograd. Put parts "
                f"together with mx.nd.concat, stack or where, or copy value.detach()."
            )


def _copied(
    call: Call,
    inputs: Sequence[A],
    out: A | Sequence[A],
    ctx: Context | None,
    cls: type[A] | None,
) -> Any:
    """`invoke` with some sparse outputs: they get copies of dense results."""
    results = invoke(call, inputs, None, ctx, cls)
    pairs = (
        [(results, out)] if isinstance(out, Storage) else zip([results] if len(out) == 1 else results, out)
    )
    for result, target in pairs:
        result.copyto(target)
    return out


def _are_dense(plan: Plan, outs: Sequence[Storage]) -> bool:
    """True if a kernel can write these outputs. Raises an error if the operator cannot give them."""
    if len(outs) != plan.visible:
        raise ShapeError(f"{plan.name} has {plan.visible} outputs, but out has {len(outs)} arrays.")
    for o, (shape, dtype) in zip(outs, plan.makes):
        if o.storage.shape != shape:
            raise ShapeError(f"{plan.name} needs out to be of shape {shape}, but it is {o.storage.shape}.")
        if o.storage.device == "sparse":
            return False
        if o.storage.device != plan.backend.place:
            raise DeviceError(f"{plan.name} runs on {plan.backend.place}, but out is on {o.context}.")
        if o.storage.dtype != dtype:
            raise DTypeError(f"{plan.name} needs out to be {dtype}, but it is {o.storage.dtype}.")
    for i, o in enumerate(outs):
        if any(o.var is p.var and plan.backend.overlap(o.storage, p.storage) for p in outs[:i]):
            raise ShapeError(f"{plan.name} cannot write two of its outputs to the same memory.")
    return True


def _into(
    plan: Plan,
    inputs: Sequence[Storage],
    outs: Sequence[Storage],
    stream: Any = None,
    state: dict[str, Any] | None = None,
) -> Callable[[], None]:
    """The call into given outputs; through temporaries if it would overwrite memory that it still reads."""
    ins = [a.storage for a in inputs]
    storages = [o.storage for o in outs]
    backend = plan.backend
    unsafe = [j for j, o in enumerate(outs) if not _may_overwrite(o, inputs, plan.donors[j], backend)]
    if not unsafe:
        return plan.bind(ins, storages, stream, state)
    finals = [storages[j] for j in unsafe]
    temporaries = [backend.array(f.shape, f.dtype) for f in finals]
    for j, temporary in zip(unsafe, temporaries):
        storages[j] = temporary
    run = plan.bind(ins, storages, stream, state)

    def run_and_copy() -> None:
        run()
        for final, temporary in zip(finals, temporaries):
            backend.assign(final, temporary)

    return run_and_copy


def _may_overwrite(out: Storage, inputs: Sequence[Storage], donors: frozenset[int], backend: Backend) -> bool:
    """True if the kernel may write `out` while it reads `inputs`.

    It may if they do not overlap, or if exactly one does, is the very same memory, and is declared in place.
    """
    var, array = out.var, out.storage
    met = False
    for i, other in enumerate(inputs):
        if other.var is not var:
            continue
        if other is not out and not backend.overlap(other.storage, array):
            continue
        if met or i not in donors or not (other is out or _same_memory(other.storage, array, backend)):
            return False
        met = True
    return True


def _same_memory(a: RawArray, b: RawArray, backend: Backend) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and backend.address(a) == backend.address(b)


def _place_for(out: Any, ctx: Context | None) -> Context:
    """The device of a call without inputs: that of `out`, else `ctx`, else the current device."""
    if out is None:
        return ctx or current_context()
    place: Context = (out if isinstance(out, Storage) else out[0]).context
    return place
