"""The array-independent part of a call: parsed once, planned for each shape, bound many times.

    Call   operator + parameters            parsed attributes        one for each spelling of the parameters
    Plan   Call + shapes and dtypes         output shapes, kernel, the order of arrays in the kernel's call

A Plan of a gradient operator is made by the Plan of the call it differentiates (`Plan.gradient`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...backends import Backend, backend_of, bind_call
from ...core import (
    Context,
    DeviceError,
    DTypeError,
    MXLiteError,
    OpAttributeError,
    OutOfMemoryError,
    ShapeError,
)
from ...core.dtype import float32
from ...graph.attrs import parse_attrs
from ...graph.derivative import names_read
from ...graph.opdef import DType, Op, require_possible, Shapes
from ...ops import find_op
from ...ops.index.embedding import Embedding
from ...ops.random.philox import RandomStream
from ..memory.storage import RawArray, Shape, Storage
from .call_name import CallName

_CACHE_LIMIT = 4096  # entries; a program with more different calls gains nothing from a cache

Kind = tuple[Shape, DType]


_all_calls: weakref.WeakSet[Call] = weakref.WeakSet()


def forget_plans() -> None:
    """Choose kernels anew from the next call of each operator on, because settings have changed."""
    for call in list(_all_calls):
        call.plans.clear()
        call.noted.clear()


class Call:
    """An operator with its parameters, and the plans for the shapes it has met.

    `plans` are for inference without recording, `noted` for the other modes. `passes` says for each input
    if a gradient can flow to it, `by_rows` if the gradient of a table can be stored by rows.
    """

    __slots__ = ("__weakref__", "attrs", "by_rows", "inputs", "noted", "op", "passes", "plans")

    def __init__(self, op: type[Op], attrs: Any) -> None:
        _all_calls.add(self)
        self.op = op
        self.attrs = attrs
        self.inputs: tuple[str, ...] = op.input_names(attrs)
        self.plans: dict[Any, Plan] = {}
        self.noted: dict[Any, Plan] = {}
        makes = op.grad_op.output_names(attrs) if op.grad_op else ()
        shared = op.variadic and op.variadic in op.gradient_is
        self.by_rows: bool = issubclass(op, Embedding) and op.by_rows(attrs)
        self.passes = tuple(shared or n in op.gradient_is or f"d_{n}" in makes for n in self.inputs)

    def plan(
        self, key: Any, arrays: Sequence[Storage], ctx: Context, train: bool = False, recorded: bool = False
    ) -> Plan:
        """Create and cache the plan for arrays like these. Raises ShapeError and DTypeError.

        One that is `recorded` also computes the hidden outputs that its gradient reads.
        """
        if len(arrays) != len(self.inputs):
            raise MXLiteError(
                f"{self.op.op_name} takes {len(self.inputs)} arrays ({', '.join(self.inputs)}), "
                f"got {len(arrays)}."
            )
        op, attrs = self.op, self.attrs
        backend = backend_of(ctx)
        if any(a.storage.device != backend.place for a in arrays):
            raise DeviceError(
                f"{op.op_name} needs all its arrays on one device, but "
                f"{', '.join(f'{n!r} is on {a.context}' for n, a in zip(self.inputs, arrays))}; "
                f"x.as_in_context({ctx}) gives a copy there."
            )
        kinds = tuple((a.storage.shape, a.storage.dtype) for a in arrays)
        shapes, dtypes = _infer(self, tuple(k[0] for k in kinds), [k[1] for k in kinds])
        names = op.output_names(attrs)
        visible = op.num_visible_outputs(attrs)
        read = kept_names(op, attrs) if recorded else ()
        wanted = [i < visible or n in read for i, n in enumerate(names)]
        outputs = tuple(zip(shapes, dtypes))
        plan = Plan(
            op,
            attrs,
            self.inputs,
            kinds,
            [m if w else None for m, w in zip(outputs, wanted)],
            (tuple(k[0] for k in kinds), shapes),
            kinds[0][1] if kinds else dtypes[0] if dtypes else float32,
            backend,
            train,
            tuple(k[1] for k in kinds),
        )
        need = sum(prod(shape) * dtype.itemsize for shape, dtype in plan.makes) + (plan.work or 0)
        if need > backend.memory():
            raise OutOfMemoryError(
                f"{op.op_name} makes {', '.join(f'{s} {d}' for s, d in plan.makes[:4])}: {need} bytes with "
                f"its scratch, more than the {backend.memory()} there are."
            )
        plan.visible = visible
        plan.outputs = outputs
        if recorded:
            plan.keeps = tuple((n, False, i) for i, n in enumerate(self.inputs) if n in read) + tuple(
                (names[i], True, k) for k, i in enumerate(plan.places) if names[i] in read
            )
        plans, key = (self.noted, (key, train, recorded)) if train or recorded else (self.plans, key)
        if len(plans) >= _CACHE_LIMIT:
            plans.clear()
        plans[key] = plan
        return plan


def kept_names(op: type[Op], attrs: Any) -> frozenset[str]:
    """Inputs and outputs of a recorded call whose values its gradient reads, and so the tape keeps."""
    known = {*op.input_names(attrs), *op.output_names(attrs)}
    read = set(op.grad_op.input_names(attrs)) if op.grad_op is not None else set()
    if op.derivative is not None:
        read |= names_read(op, attrs, find_op)
    return frozenset(read & known)


class _Slot:
    """A placeholder for an array while the order of a kernel's arguments is determined."""

    def __init__(self, number: int, made: bool) -> None:
        self.number = number
        self.made = made


class Plan:
    """Everything about one call that does not depend on its arrays.

    inputs: names of the arrays it is given, the first of `op.input_names` or all but some.
    kinds: their shapes and dtypes.  makes: those of each of `op.output_names`, None for an unused one.
    shapes, dtype, dtypes: of the forward call, of its first and of all inputs, also on a gradient operator.
    """

    __slots__ = (
        "args", "attrs", "backend", "constants", "donors", "dtype", "dtypes", "gradients",
        "in_place", "inputs", "is_remote", "keeps", "kernel", "keywords", "kind", "kinds",
        "lane", "makes", "mutated", "name", "op", "outputs", "places", "random", "run", "shapes", "simple",
        "state", "train", "visible", "work",
    )  # fmt: skip

    def __init__(
        self,
        op: type[Op],
        attrs: Any,
        inputs: tuple[str, ...],
        kinds: tuple[Kind, ...],
        makes: Sequence[Kind | None],
        shapes: tuple[Shapes, Shapes],
        dtype: DType,
        backend: Backend,
        train: bool,
        dtypes: tuple[DType, ...],
    ) -> None:
        used = frozenset((*inputs, *(n for n, m in zip(op.output_names(attrs), makes) if m is not None)))
        threads = backend.threads()
        kernel = backend.choose(op, attrs, *shapes, dtype, dtypes, used, train)
        if kernel.bound_only:
            kernel = backend.reference(op, attrs, *shapes, dtype)
        names = op.output_names(attrs)
        # bind_call is the only code that knows a kernel's parameters. Call it once, with slots for arrays.
        self.places = tuple(i for i, m in enumerate(makes) if m is not None)
        slots = {i: _Slot(k, True) for k, i in enumerate(self.places)}
        given = {n: _Slot(i, False) for i, n in enumerate(inputs)}
        bound: Any = bind_call(
            kernel,
            backend.xp,
            op,
            attrs,
            [given.get(n) for n in op.input_names(attrs)],
            [slots.get(i) for i in range(len(names))],
            train=train,
            shapes=shapes,
            link=partial,  # a template: nothing is connected to slots
        )
        self.op = op
        self.attrs = attrs
        self.inputs = inputs
        self.kinds = kinds
        self.shapes = shapes
        self.dtype = dtype
        self.dtypes = dtypes
        self.train = train
        self.name: str = CallName(self)
        self.kernel = kernel.name
        self.backend = backend
        self.lane = backend.lane
        self.kind = "compute" if kernel.is_reference or not backend.in_turn(threads) else "team"
        self.is_remote = backend.is_remote
        self.run: Callable[..., None] = _quiet(bound.func)
        if not kernel.is_reference:
            self.run = _running(backend, threads, self.run)
        self.args: tuple[Any, ...] = bound.args
        self.keywords: dict[str, Any] = bound.keywords
        self.work: int | None = kernel.workspace if "work" in kernel.signature.services else None
        self.random = "rng" in kernel.signature.services
        self.state = "state" in kernel.signature.services
        self.makes = tuple(m for m in makes if m is not None)
        self.visible = len(self.makes)
        self.outputs: tuple[Kind, ...] = ()  # all outputs of a forward call, also those it does not compute
        self.keeps: tuple[tuple[str, bool, int], ...] = ()  # name, True for an output, its index
        self.gradients: dict[Any, Plan] = {}
        options = op.in_place_options(attrs)
        self.donors = tuple(
            frozenset(inputs.index(d) for d in options.get(names[i], ()) if d in inputs) for i in self.places
        )
        self.mutated = tuple(inputs.index(n) for n in op.mutated(attrs) if n in inputs)
        # The common case, bound without a look at templates: one output, and inputs in order.
        self.simple = (
            len(self.makes) == 1
            and not self.random
            and not self.state
            and self.work is None
            and not self.mutated
            and [getattr(v, "number", None) for v in self.args[2:]] == list(range(len(inputs)))
            and [k for k, v in self.keywords.items() if isinstance(v, _Slot)] == ["out"]
            and not any(
                isinstance(v, tuple) and v and isinstance(v[0], _Slot) for v in self.keywords.values()
            )
        )
        self.constants = {k: v for k, v in self.keywords.items() if k != "out"}
        # The most common case: `a += 1`, and `a += b` if b is another array.
        self.in_place = (
            self.simple
            and not self.constants
            and 0 < len(kinds) < 3
            and 0 in self.donors[0]
            and self.makes[0] == kinds[0]
        )

    def gradient(self, given: tuple[str, ...], wanted: tuple[bool, ...]) -> Plan:
        """The plan of this call's gradient operator.

        given: names of the inputs that exist.  wanted: for each of its outputs, True if it is read.
        """
        plan = self.gradients.get((given, wanted))
        if plan is None:
            grad_op = self.op.grad_op
            assert grad_op is not None
            kinds: dict[str, Kind] = dict(zip(self.inputs, self.kinds))
            kinds.update(zip(self.op.output_names(self.attrs), self.outputs))
            kinds |= {f"d_{n}": kind for n, kind in kinds.items()}
            names = grad_op.output_names(self.attrs)
            makes = [kinds[n] if w else None for n, w in zip(names, wanted)]
            plan = self.gradients[given, wanted] = Plan(
                grad_op,
                self.attrs,
                given,
                tuple(kinds[n] for n in given),
                makes,
                self.shapes,
                self.dtype,
                self.backend,
                self.train,
                self.dtypes,
            )
            plan.outputs = tuple(kinds[n] for n in names)
        return plan

    def bind(
        self,
        ins: Sequence[RawArray],
        outs: Sequence[RawArray],
        stream: Any = None,
        state: dict[str, Any] | None = None,
    ) -> Callable[[], None]:
        """The kernel call on these arrays; random numbers from `stream`."""
        if self.simple:
            return partial(self.run, *self.args[:2], *ins, out=outs[0], **self.constants)
        args = [_fill(a, ins, outs) for a in self.args]
        keywords = {k: _fill(v, ins, outs) for k, v in self.keywords.items()}
        if self.state:
            keywords["state"] = {} if state is None else state
        run: Callable[..., None] = partial(self.run, *args, **keywords)
        if self.random:
            run = partial(_with_stream, self.backend, stream, run)
        if self.work is not None:
            run = partial(_with_work, self.backend, self.work, run)
        return run


def _fill(template: Any, ins: Sequence[RawArray], outs: Sequence[RawArray]) -> Any:
    if isinstance(template, _Slot):
        return (outs if template.made else ins)[template.number]
    if type(template) is tuple:
        return tuple(_fill(t, ins, outs) for t in template)
    return template


_quiet = np.errstate(all="ignore")
"""Decorator: 1 / 0 gives inf without a warning, on whatever thread runs it."""


def _running(backend: Backend, threads: int, run: Callable[..., None]) -> Callable[..., None]:
    """Call `run` with the number of threads that its kernel was chosen for."""

    def on_threads(*args: Any, **keywords: Any) -> None:
        with backend.running(threads):
            run(*args, **keywords)

    return on_threads


def _with_work(backend: Backend, nbytes: int, run: Callable[..., None]) -> None:
    """Call `run` with scratch that lives while the kernel runs, not while it waits for its turn."""
    run(work=backend.empty(nbytes))


def _with_stream(backend: Backend, stream: Any, run: Callable[..., None], **services: Any) -> None:
    """Call `run` with random numbers from a stream whose seed and step lie in the kernel's memory."""
    if stream is not None and backend.is_remote:
        stream = RandomStream(backend.seeds(stream.state), stream.stream)
    run(rng=stream, **services)


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
        for name, shape in zip(op.output_names(attrs), makes):
            require_possible(shape, name)
            if min(shape, default=0) < 0:
                raise ShapeError(
                    f"{name!r} would be {tuple(shape)}; an array has no axes of open or negative length "
                    f"(inside mx.util.np_shape() 0 is a length)."
                )
    except (ShapeError, OpAttributeError) as error:
        raise type(error)(_named(op, error)) from None
    try:
        wanted_types, made_types = op.infer_type(attrs, *dtypes)
        for name, kind, dtype in zip(names, wanted_types, dtypes):
            if kind is not None and kind != dtype:
                raise DTypeError(
                    f"{name!r} must be {kind}, but it is {dtype}; convert it with astype('{kind}')."
                )
    except (DTypeError, OpAttributeError) as error:
        raise type(error)(_named(op, error)) from None
    return tuple(tuple(s) for s in makes), tuple(float32 if d is None else d for d in made_types)


def _named(op: type[Op], error: Exception) -> str:
    text = str(error)
    return text if text.startswith((f"{op.op_name}:", f"{op.op_name} ")) else f"{op.op_name}: {text}"


_calls: dict[Any, Call] = {}


def call_of(op: type[Op] | str, given: Mapping[str, Any]) -> Call:
    """The Call of an operator with parameters as a user writes them, cached for each spelling.

    Raises OpAttributeError, and UnknownNameError for an unknown operator.
    """
    # 1, 1.0 and True are one dict key, as are 0.0 and -0.0, but different parameters: hence type and sign.
    if any(isinstance(v, np.ndarray) for v in given.values()):
        given = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in given.items()}
    key = (op, *((k, v if v else repr(v), type(v)) for k, v in given.items()))
    try:
        call = _calls.get(key)
    except TypeError:  # an unhashable value such as a list: parsed each time, and looked up by its meaning
        key = (op, *((k, repr(v), type(v)) for k, v in given.items()))
        call = _calls.get(key)
    if call is None:
        declared = find_op(op) if isinstance(op, str) else op
        call = _keep(key, Call(declared, parse_attrs(declared, given)))
    return call


def scalar_call(op: str, scalar: float) -> Call:
    """The Call of `_plus_scalar` or a similar operator."""
    key = (op, scalar or repr(scalar))
    call = _calls.get(key)
    if call is None:
        declared = find_op(op)
        call = _keep(key, Call(declared, parse_attrs(declared, {"scalar": scalar})))
    return call


def call_with(op: type[Op], attrs: Any) -> Call:
    """The Call of an operator with parsed parameters."""
    call = _calls.get((op, attrs))
    return _keep((op, attrs), Call(op, attrs)) if call is None else call


def _keep(key: Any, call: Call) -> Call:
    if len(_calls) >= _CACHE_LIMIT:
        _calls.clear()
    _calls[key] = call
    return call
