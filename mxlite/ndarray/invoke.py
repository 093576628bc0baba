"""An operator called on arrays, now: check, make the outputs, push.

What can be known from operator, parameters, shapes and dtypes is worked out once and kept:

    Call   operator + parameters            parsed attributes        one for each spelling of the parameters
    Plan   Call + shapes and dtypes         output shapes, kernel, where each array goes in its call

so that the second `a += 1` looks up two dicts and pushes.

Operators run as for inference (`train=False`): there is no recording here that could say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..backends import ALIGN, backend_of, bind_call
from ..core import Context, current_context, DTypeError, MXLiteError, ShapeError
from ..core.dtype import float32
from ..engine import get_engine, Var
from ..graph.attrs import parse_attrs
from ..graph.opdef import Op
from ..ops import find_op
from .generator import next_stream
from .storage import RawArray, Storage

A = TypeVar("A", bound=Storage)

_CACHE_LIMIT = 4096  # entries; a program that makes more than that gains nothing from keeping them


class Call:
    """An operator with its parameters, and the plans for the shapes it has met."""

    __slots__ = ("attrs", "inputs", "op", "plans")

    def __init__(self, op: type[Op], attrs: Any) -> None:
        self.op = op
        self.attrs = attrs
        self.inputs: tuple[str, ...] = op.input_names(attrs)
        self.plans: dict[Any, Plan] = {}

    def plan(self, key: Any, arrays: Sequence[Storage], ctx: Context) -> Plan:
        """Make and keep the plan for arrays like these. Raises ShapeError and DTypeError."""
        if len(arrays) != len(self.inputs):
            raise MXLiteError(
                f"{self.op.op_name} takes {len(self.inputs)} arrays ({', '.join(self.inputs)}), "
                f"got {len(arrays)}."
            )
        plan = Plan(self, [a.storage for a in arrays], ctx)
        if len(self.plans) >= _CACHE_LIMIT:
            self.plans.clear()
        self.plans[key] = plan
        return plan


class _Slot:
    """Stands for an array while the order of a kernel's arguments is found out."""

    def __init__(self, number: int, made: bool) -> None:
        self.number = number
        self.made = made


class Plan:
    """All about one call that does not depend on which arrays it gets."""

    __slots__ = (
        "args", "backend", "constants", "donors", "in_place", "keywords", "makes", "mutated", "name",
        "random", "run", "simple", "work",
    )  # fmt: skip

    def __init__(self, call: Call, arrays: list[RawArray], ctx: Context) -> None:
        op, attrs = call.op, call.attrs
        in_shapes = tuple(a.shape for a in arrays)
        out_shapes, out_dtypes = _infer(call, in_shapes, [a.dtype for a in arrays])
        backend = backend_of(ctx)
        dtype = arrays[0].dtype if arrays else out_dtypes[0]
        kernel = backend.choose(op, attrs, in_shapes, out_shapes, dtype)
        visible = op.num_visible_outputs(attrs)
        names = op.output_names(attrs)
        # bind_call is the one place that knows a kernel's parameters. Ask it once, with slots for arrays.
        outputs = [_Slot(i, True) if i < visible else None for i in range(len(names))]
        bound: Any = bind_call(
            kernel,
            backend.xp,
            op,
            attrs,
            [_Slot(i, False) for i in range(len(arrays))],
            outputs,
            train=False,
            shapes=(in_shapes, out_shapes),
        )
        self.name = op.op_name
        self.backend = backend
        self.run: Callable[..., None] = _quiet(bound.func)
        self.args: tuple[Any, ...] = bound.args
        self.keywords: dict[str, Any] = bound.keywords
        self.work: int | None = kernel.workspace if "work" in kernel.signature.services else None
        self.random = "rng" in kernel.signature.services
        self.makes = tuple(zip(out_shapes, out_dtypes))[:visible]
        options = op.in_place_options(attrs)
        self.donors = tuple(
            frozenset(call.inputs.index(d) for d in options.get(n, ()) if d in call.inputs)
            for n in names[:visible]
        )
        self.mutated = tuple(call.inputs.index(n) for n in op.mutated(attrs) if n in call.inputs)
        # The common case, bound without a look at templates: one output, each input in its place.
        self.simple = (
            visible == 1
            and not self.random
            and self.work is None
            and not self.mutated
            and [getattr(v, "number", None) for v in self.args[2:]] == list(range(len(arrays)))
            and [k for k, v in self.keywords.items() if isinstance(v, _Slot)] == ["out"]
            and not any(
                isinstance(v, tuple) and v and isinstance(v[0], _Slot) for v in self.keywords.values()
            )
        )
        self.constants = {k: v for k, v in self.keywords.items() if k != "out"}
        # The commonest: `a += 1`, and `a += b` if b is another array.
        self.in_place = (
            self.simple
            and not self.constants
            and 0 < len(arrays) < 3
            and 0 in self.donors[0]
            and self.makes[0] == (in_shapes[0], arrays[0].dtype)
        )

    def bind(self, ins: Sequence[RawArray], outs: Sequence[RawArray]) -> Callable[[], None]:
        """The kernel call on these arrays."""
        if self.simple:
            return partial(self.run, *self.args[:2], *ins, out=outs[0], **self.constants)
        args = [_fill(a, ins, outs) for a in self.args]
        keywords = {k: _fill(v, ins, outs) for k, v in self.keywords.items()}
        if self.random:
            keywords["rng"] = next_stream()
        if self.work is not None:
            return partial(_with_work, self.work, partial(self.run, *args, **keywords))
        return partial(self.run, *args, **keywords)


def _fill(template: Any, ins: Sequence[RawArray], outs: Sequence[RawArray]) -> Any:
    if isinstance(template, _Slot):
        return (outs if template.made else ins)[template.number]
    if type(template) is tuple:
        return tuple(_fill(t, ins, outs) for t in template)
    return template


_quiet = np.errstate(all="ignore")
"""Decorator: 1 / 0 is inf without a word, on whatever thread runs it."""


@_quiet
def _run_quietly(run: Callable[[], object]) -> None:
    run()


def _with_work(nbytes: int, run: Callable[..., None]) -> None:
    """Scratch lives while the kernel runs, not while it waits for its turn."""
    block = np.empty(nbytes + ALIGN, "uint8")
    start = -block.ctypes.data % ALIGN
    run(work=block[start : start + nbytes])


def _infer(call: Call, shapes: tuple[Any, ...], dtypes: list[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Shapes and dtypes of all outputs; raises if the inputs do not fit the operator."""
    op, attrs, names = call.op, call.attrs, call.inputs
    given = dict(zip(names, shapes))
    try:
        if op.same_shape and len(set(shapes)) > 1:
            raise ShapeError(
                f"all arrays must have one shape, got {', '.join(f'{n} {s}' for n, s in given.items())}."
            )
        wanted, makes = op.infer_shape(attrs, *shapes)
        for name, want, have in zip(names, wanted, shapes):
            if tuple(want) != have:
                raise ShapeError(f"{name!r} must be of shape {tuple(want)}, but it is {have}.")
    except ShapeError as error:
        raise ShapeError(_named(op, error)) from None
    try:
        wanted_types, made_types = op.infer_type(attrs, *dtypes)
        for name, kind, found in zip(names, wanted_types, dtypes):
            if kind is not None and kind != found:
                raise DTypeError(
                    f"{name!r} must be {kind}, but it is {found}; convert it with astype('{kind}')."
                )
    except DTypeError as error:
        raise DTypeError(_named(op, error)) from None
    return tuple(tuple(s) for s in makes), tuple(float32 if d is None else d for d in made_types)


def _named(op: type[Op], error: Exception) -> str:
    text = str(error)
    return text if text.startswith((f"{op.op_name}:", f"{op.op_name} ")) else f"{op.op_name}: {text}"


# -- calls ---------------------------------------------------------------------------------------------

_calls: dict[Any, Call] = {}


def call_of(op: type[Op] | str, given: Mapping[str, Any]) -> Call:
    """The Call of an operator with parameters as a user writes them; parsed once for each spelling.

    Raises OpAttributeError, and UnknownNameError for an operator that is not there.
    """
    # 1, 1.0 and True are one dict key, and so are 0.0 and -0.0, but not one parameter: hence type and sign.
    key = (op, *((k, v if v else repr(v), type(v)) for k, v in given.items()))
    try:
        call = _calls.get(key)
    except TypeError:  # a list, say: parsed each time, and looked up by what it means
        key = (op, *((k, repr(v), type(v)) for k, v in given.items()))
        call = _calls.get(key)
    if call is None:
        declared = find_op(op) if isinstance(op, str) else op
        call = _keep(key, Call(declared, parse_attrs(declared, given)))
    return call


def scalar_call(op: str, scalar: float) -> Call:
    """The Call of `_plus_scalar` and its kind."""
    key = (op, scalar or repr(scalar))
    call = _calls.get(key)
    if call is None:
        declared = find_op(op)
        call = _keep(key, Call(declared, parse_attrs(declared, {"scalar": scalar})))
    return call


def _keep(key: Any, call: Call) -> Call:
    if len(_calls) >= _CACHE_LIMIT:
        _calls.clear()
    _calls[key] = call
    return call


# -- invoke --------------------------------------------------------------------------------------------


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
        run = _into(plan, inputs, outs)
        reads = [a.var for a in inputs]
        reads += [o.var for o in outs if o.partial]
    else:
        if inputs:
            ctx, cls = inputs[0].context, type(inputs[0])
        assert cls is not None
        device = ctx or current_context()
        outs = [cls.adopt(plan.backend.array(shape, dtype), device) for shape, dtype in plan.makes]
        run = plan.bind([a.storage for a in inputs], [o.storage for o in outs])
        reads = [a.var for a in inputs]
    written = [o.var for o in outs]
    if plan.mutated:
        written += [inputs[i].var for i in plan.mutated]
    get_engine().push(run, reads, written, name=plan.name)
    return outs[0] if len(outs) == 1 else outs


def _check_out(plan: Plan, outs: Sequence[Storage]) -> None:
    if len(outs) != len(plan.makes):
        raise ShapeError(f"{plan.name} has {len(plan.makes)} outputs, but out has {len(outs)} arrays.")
    for o, (shape, dtype) in zip(outs, plan.makes):
        if o.storage.shape != shape:
            raise ShapeError(f"{plan.name} needs out to be of shape {shape}, but it is {o.storage.shape}.")
        if o.storage.dtype != dtype:
            raise DTypeError(f"{plan.name} needs out to be {dtype}, but it is {o.storage.dtype}.")
    for i, o in enumerate(outs):
        if any(o.var is p.var and np.may_share_memory(o.storage, p.storage) for p in outs[:i]):
            raise ShapeError(f"{plan.name} cannot write two of its outputs to the same memory.")


def _into(plan: Plan, inputs: Sequence[Storage], outs: Sequence[Storage]) -> Callable[[], None]:
    """The call into given outputs; through temporaries where it would overwrite what it still reads."""
    ins = [a.storage for a in inputs]
    made = [o.storage for o in outs]
    unsafe = [j for j, o in enumerate(outs) if not _may_overwrite(o, inputs, plan.donors[j])]
    if not unsafe:
        return plan.bind(ins, made)
    finals = [made[j] for j in unsafe]
    temporaries = [plan.backend.array(f.shape, f.dtype) for f in finals]
    for j, temporary in zip(unsafe, temporaries):
        made[j] = temporary
    run = plan.bind(ins, made)

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


def push_write(
    run: Callable[[], object], into: Storage, reads: Sequence[Var] = (), *, name: str, kind: str = "compute"
) -> None:
    """Push a closure that writes all of `into` (a part of its Var's memory, if it is a view)."""
    if into.partial:
        reads = (*reads, into.var)
    get_engine().push(partial(_run_quietly, run), reads, (into.var,), name=name, kind=kind)
