"""The declaration of an operator: the one contract between `ops/` and every pass.

An operator is a class that is never instantiated. It says, from top to bottom: names, attributes,
in-place options, shapes and types, cost, forward, backward. From that one class come
`mx.sym.<name>`, `mx.nd.<name>`, their help, the file format, the gradient and the memory plan.

**Kernels.** `forward(xp, a, <inputs...>, *, <outputs...>, <services...>)`. `xp` is numpy or an array
module like it; `a` the attributes; inputs come in the order of `inputs`; outputs are arrays to be
filled. A kernel writes *every* element of its outputs (they hold garbage before), never its inputs
(except those it `mutates`), and allocates nothing large: scratch is asked for by `workspace`.
An output that nobody reads is None, and the kernel skips it. An optional input that is absent is None.

**Services** are keyword-only parameters with these names; a kernel that wants one just names it:

    work    1-D uint8 array of `workspace(...)` bytes, 64-byte aligned; garbage before and after
    rng     RandomStream: the same bits at each run of the same node in the same step
    train   bool: training or inference; fixed when the program is bound
    shapes  (input shapes, output shapes) of the forward call, optional inputs left out
    state   dict of this node alone: the same at forward, when that is recomputed, and at backward

**backward declares its needs by its parameters**: `backward(xp, a, <needs...>, *, <d_input...>,
<services...>)` where a need is an input's name, an output's name, or `d_<output>`. Exactly those arrays
stay alive until then. `d_<output>` is None where no gradient arrives (it counts as zero); at least one does.

**Groups.** A kernel of many arrays takes them in named tuples, `forward(xp, a, x: Inputs, *, made: Results)`,
with `@grouped` (`grouped.py`): to its callers, and to this file, it has a parameter for each field.

**Variadic operators** (`variadic = "args"`): the inputs are `arg0, arg1, ...`, as many as
`a.num_args`; `forward(xp, a, *args, out)`; `backward(..., *, d_args)` gets a tuple.
**Variable outputs** (`variadic_outputs = "outs"`): `forward(xp, a, data, *, outs)` gets a tuple, and a need
`d_outs` is a tuple; `num_outputs_of(a)` says how many.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import CodeType, FunctionType
from typing import Any, ClassVar

import numpy as np

from ..core.compat.npshape import UNKNOWN
from ..core.dtype import is_floating
from ..core.errors import DefinitionError, DTypeError, ShapeError
from ..core.process import forks
from .ir import Entry, Node, Shape

SERVICES = ("work", "rng", "train", "shapes", "state")

_lock = forks.rlock()  # a gradient operator is one class, whichever thread asks first

DType = np.dtype[Any]
Shapes = tuple[Shape, ...]
Types = tuple[DType | None, ...]
Touched = frozenset[tuple[str, Entry, int]]
"""Rows that a gradient can reach: (operator that flags them, entry it reads, rows of the table)."""


@dataclass(frozen=True)
class NoAttrs:
    """Attributes of an operator that has none."""


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel function: needed arrays, outputs and services."""

    needs: tuple[str, ...]
    makes: tuple[str, ...]
    services: frozenset[str]

    @classmethod
    def of(cls, kernel: Callable[..., Any]) -> Signature:
        """Read the parameters after `xp` and `a`; once for all functions made by one `def`, by their code.

        A kernel of any arrays says which it takes in its attribute `signature`.
        """
        told = getattr(kernel, "signature", None)
        if isinstance(told, Signature):
            return told
        function = getattr(kernel, "__func__", kernel)  # a class method's first parameter is bound already
        if not isinstance(function, FunctionType) or function.__dict__:
            return cls._read(kernel)
        code, first = function.__code__, 2 + (function is not kernel)
        signature = _signatures.setdefault(code, {}).get(first)
        if signature is None:
            names, count, end = code.co_varnames, code.co_argcount, code.co_argcount + code.co_kwonlyargcount
            rest = names[end : end + 1] if code.co_flags & inspect.CO_VARARGS else ()
            signature = cls.sorted([*names[:count], *rest][first:], names[count:end])
            _signatures[code][first] = signature
        return signature

    @classmethod
    def _read(cls, kernel: Callable[..., Any]) -> Signature:
        params = list(inspect.signature(kernel).parameters.values())[2:]
        given = [p.name for p in params if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)]
        return cls.sorted(given, [p.name for p in params if p.kind is p.KEYWORD_ONLY])

    @classmethod
    def sorted(cls, given: Iterable[str], keyword: Sequence[str]) -> Signature:
        """The signature of a kernel with these parameters after `xp` and `a`."""
        return cls(
            tuple(given),
            tuple(k for k in keyword if k not in SERVICES),
            frozenset(k for k in keyword if k in SERVICES),
        )


def with_parameters(
    kernel: Callable[..., None], needs: Sequence[str], makes: Sequence[str], services: Sequence[str]
) -> Callable[..., None]:
    """`kernel`, a function of any arrays, as one with these parameters: what `Signature.of` reads there."""
    kernel.signature = Signature.sorted(needs, (*makes, *services))  # type: ignore[attr-defined]
    return kernel


_signatures: weakref.WeakKeyDictionary[CodeType, dict[int, Signature]] = weakref.WeakKeyDictionary()


class Op:
    """Base of all operator declarations. Subclasses are never instantiated."""

    abstract: ClassVar[bool] = False  # a family's base that has a `forward` but is no operator; not inherited
    op_name: ClassVar[str]  # public name; the class's own name unless given
    aliases: ClassVar[tuple[str, ...]] = ()
    inputs: ClassVar[tuple[str, ...]] = ()
    outputs: ClassVar[tuple[str, ...]] = ("out",)
    hidden: ClassVar[int] = 0  # the last `hidden` outputs are for backward only
    aux: ClassVar[tuple[str, ...]] = ()  # inputs that are auxiliary states

    # Optional input -> the attribute that says that it is in use; "no_..." says that it is not.
    optional: ClassVar[Mapping[str, str]] = {}

    variadic: ClassVar[str] = ""
    variadic_outputs: ClassVar[str] = ""
    subgraphs: ClassVar[
        tuple[str, ...]
    ] = ()  # attributes that are graphs, in the order of a file: see ops/control/control.py
    Attrs: ClassVar[type] = NoAttrs

    takes_open_shapes: ClassVar[bool] = False  # `infer_shape` knows what to do with an axis of UNKNOWN
    accepts: ClassVar[str] = "any"  # "float" or "number" (no bool): dtypes the default `infer_type` lets in

    typed_by_data: ClassVar[bool] = False  # the first output's dtype is the first input's, others may differ

    # Inputs that have one dtype with the outputs, where the others may be of any; () if all have one.
    same_type: ClassVar[tuple[str, ...]] = ()

    in_place: ClassVar[Mapping[str, str | tuple[str, ...]]] = {}  # output -> inputs it may overwrite
    backward_in_place: ClassVar[Mapping[str, str | tuple[str, ...]]] = {}
    mutates: ClassVar[tuple[str, ...]] = ()  # inputs that forward also writes
    backward_mutates: ClassVar[tuple[str, ...]] = ()  # inputs that backward also writes

    # Inputs that forward reads only for their shape: no value is kept alive for that.
    shape_only: ClassVar[tuple[str, ...]] = ()

    initial: ClassVar[Mapping[str, str]] = {}  # input -> its initializer, where its name does not tell

    same_shape: ClassVar[bool] = False  # all inputs and outputs have one shape (inferred both ways)
    inferred: ClassVar[tuple[str, ...]] = ()  # inputs whose shape follows from the others
    is_loss: ClassVar[bool] = False  # backward needs no head gradient
    flops_per_input: ClassVar[int | None] = None  # operations for each element of the first input
    flops_per_output: ClassVar[int] = 1  # operations for each element of the outputs, unless the former says
    cheap: ClassVar[bool] = False  # costs little next to the bytes of its output: worth recomputing
    random: ClassVar[bool] = False  # forward draws from `rng`
    recomputable: ClassVar[bool] = True  # forward may run twice in a step
    relays: ClassVar[bool] = False  # terms of its gradient go on to its input one by one, by `derivative`
    phases: ClassVar[int] = 2  # of what is `exchanged`: the parts of a sum are reduced, then gathered

    # input -> the `d_<output>` that *is* its gradient: no kernel, no copy. An input that is in
    # neither this nor `backward`'s outputs has no gradient.
    gradient_is: ClassVar[Mapping[str, str]] = {}

    # The gradient written with operators, for gradients of gradients: `derivative(w, a, ins, outs, heads)`
    # -> gradients by input name. `w` is a graph.derivative.Writer (`w.broadcast_mul(x, y)`), `ins` and `outs`
    # are entries by name, `heads` the gradients of outputs by output name, those that arrive. Inputs left
    # out have no gradient. It computes what `backward` computes.
    derivative: ClassVar[Callable[..., Mapping[str, Entry]] | None] = None

    # What the operator computes, in tensors of a `te.computation.Computation`: `compute(t, a, **inputs)`
    # -> the outputs by name. `compute_gradient(t, a, heads, arrays)` -> the gradients; they are derived where
    # it is None. Both may return None. `compute_check(xp, a, shapes, x)` raises for numbers that mean nothing
    # in the input `checked`.
    # Who extends ops.declared.Declared has no forward and backward but those that follow from these.
    compute: ClassVar[Callable[..., Any] | None] = None
    elementwise: ClassVar[bool] = (
        False  # `compute` is made of steps alone, on inputs that broadcast to outputs
    )
    compute_gradient: ClassVar[Callable[..., Any] | None] = None
    compute_check: ClassVar[Callable[..., None] | None] = None
    checked: ClassVar[str] = "label"

    forward: ClassVar[Callable[..., None]]
    backward: ClassVar[Callable[..., None] | None] = None
    grad_op: ClassVar[type[Op] | None] = None
    forward_op: ClassVar[type[Op] | None] = None  # on a gradient operator: its forward operator
    signature: ClassVar[Signature]

    # -- names ---------------------------------------------------------------------------------

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        """Names of the inputs in use under `a`; override when more than `optional` decides."""
        if cls.variadic:
            return tuple(f"arg{i}" for i in range(a.num_args))
        if not cls.optional:
            return cls.inputs
        absent = {n for n, told in cls.optional.items() if bool(getattr(a, told)) == told.startswith("no_")}
        return tuple(n for n in cls.inputs if n not in absent)

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        """Names of all outputs under `a`, the hidden ones last."""
        if cls.variadic_outputs:
            return tuple(f"output{i}" for i in range(cls.num_outputs_of(a)))
        return cls.outputs

    @classmethod
    def timed_as(cls, a: Any) -> Any:
        """The part of `a` that a call's time depends on, besides the shapes."""
        return a

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        """Number of outputs of an operator with `variadic_outputs`."""
        return len(cls.outputs)

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return len(cls.output_names(a)) - cls.hidden

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        """`in_place` with every value a tuple; override when it depends on `a`."""
        return {k: (v,) if isinstance(v, str) else v for k, v in cls.in_place.items()}

    @classmethod
    def backward_in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        """`in_place_options` of backward."""
        return {k: (v,) if isinstance(v, str) else v for k, v in cls.backward_in_place.items()}

    @classmethod
    def mutated(cls, a: Any) -> tuple[str, ...]:
        """`mutates`; override when it depends on `a`, as for an operator of any number of inputs."""
        return cls.mutates

    @classmethod
    def shape_only_names(cls, a: Any) -> tuple[str, ...]:
        """`shape_only`; override when it depends on `a`, as for an operator of any number of inputs."""
        return cls.shape_only

    @classmethod
    def lone_state(cls, a: Any) -> dict[str, Any]:
        """The `state` of a call that is evaluated by itself, without the program that it is part of."""
        return {}

    @classmethod
    def exchanged(cls, a: Any) -> tuple[str, ...]:
        """Arrays that forward sends to the other ranks of a job or gets from them; usually none."""
        return ()

    @classmethod
    def preview(cls, node: Node) -> Node:
        """A node with the first output of `node`, which is of this operator, that changes nothing."""
        return node

    @classmethod
    def inferred_names(cls, a: Any) -> tuple[str, ...]:
        """`inferred`; override when it depends on `a`. `infer_shape` may leave unknown shapes None."""
        return cls.inferred

    @classmethod
    def has_stream(cls, a: Any) -> bool:
        """True if a call may draw random numbers, itself or in a subgraph: it gets a stream then."""
        if cls.random or "rng" in cls.signature.services:
            return True
        return any(n.op is not None and n.op.has_stream(n.attrs) for n in cls._inner_nodes(a))

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        """Parameters of `backward` that it does not read under `a`: it gets None for them."""
        return frozenset()

    @classmethod
    def class_numbers(cls, a: Any, inputs: Shapes) -> Mapping[str, tuple[int, float | None]]:
        """Inputs that hold class numbers -> (how many classes, the label whose rows are left out or None)."""
        return {}

    @classmethod
    def touched_rows(
        cls, a: Any, ins: Mapping[str, Entry], out_rows: Touched | None, csr: frozenset[Entry]
    ) -> Mapping[str, Touched]:
        """The rows that the gradient of an input can reach, for the inputs of which that is not all.

        `ins` are the inputs by name, `csr` the entries that MXNet would store as csr, `out_rows` the rows of
        the first output that its own gradient can reach, None for all.
        """
        return {}

    @classmethod
    def draws(cls, a: Any, train: bool) -> bool:
        """True if a program must have random numbers ready; override where `a` or training decides."""
        return cls.random or any(n.op is not None and n.op.draws(n.attrs, train) for n in cls._inner_nodes(a))

    @classmethod
    def _inner_nodes(cls, a: Any) -> Iterator[Node]:
        return (n for f in cls.subgraphs for n in getattr(a, f).graph.nodes)

    @classmethod
    def operand_shape(cls, a: Any, name: str, shape: Shape, whole: Shape) -> Shape:
        """The shape under which an input of an elementwise operator broadcasts to its output's, `whole`."""
        return shape

    # -- shapes and types ----------------------------------------------------------------------

    @staticmethod
    def infer_shape(a: Any, *shapes: Any, **named: Any) -> tuple[Shapes, Shapes]:
        """Completed input shapes and output shapes.

        Called, by position, when every input outside `inferred` is known; those inside may be None.
        The default says that all are of one shape. (`named` only lets an override name its inputs.)
        """
        first = shapes[0]
        assert first is not None
        return tuple(first for _ in shapes), (first,)

    @staticmethod
    def infer_inputs(
        a: Any, inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]
    ) -> Sequence[Shape | None]:
        """Input shapes that are known or follow from the outputs, asked for while some input is open.

        Unknown shapes are None, unknown lengths -1. The default: nothing follows. Override it where the first
        states of recurrent networks, zeros of an open batch, get their length through the operator.
        """
        return inputs

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        """Completed input and output dtypes; None is unknown. The default says that all are equal, or those
        of the inputs in `same_type`.
        """
        if not cls.same_type:
            dtype = one_type(dtypes, "all inputs")
            ins: tuple[DType | None, ...] = (dtype,) * len(dtypes)
        else:
            names = cls.input_names(a)
            dtype = one_type(
                [d for n, d in zip(names, dtypes) if n in cls.same_type], " and ".join(cls.same_type)
            )
            ins = tuple(dtype if n in cls.same_type else d for n, d in zip(names, dtypes))
        require_kind(cls, dtype)
        return ins, (dtype,) * len(cls.output_names(a))

    # -- cost ----------------------------------------------------------------------------------

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        """Floating-point operations of one forward call; the default follows `flops_per_input`, or
        `flops_per_output`.
        """
        if cls.flops_per_input is not None:
            return cls.flops_per_input * prod(inputs[0])
        return cls.flops_per_output * sum(prod(s) for s in outputs)

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        """Operations of one backward call, all gradients wanted; default: twice forward's."""
        return 2 * cls.flops(a, inputs, outputs)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        """Bytes of scratch for one forward call; `dtype` is the first input's."""
        return 0

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        """Bytes of scratch for one backward call; shapes are the forward call's."""
        return 0

    # -- declaration checks --------------------------------------------------------------------

    def __init_subclass__(cls) -> None:
        if "op_name" not in cls.__dict__:
            cls.op_name = cls.__name__
        if "forward" not in cls.__dict__:
            if not hasattr(cls, "forward"):
                return  # an abstract base: a family of operators that share a shape rule
        cls.signature = Signature.of(cls.forward)
        if cls.forward_op is not None:
            return
        ins = (cls.variadic,) if cls.variadic else cls.inputs
        outs = (cls.variadic_outputs,) if cls.variadic_outputs else cls.outputs
        _check(cls, "forward takes", cls.signature.needs, ins)
        if sorted(cls.signature.makes) != sorted(outs):
            raise DefinitionError(
                f"{cls.__name__}.forward makes {cls.signature.makes}; its outputs are {outs}."
            )
        _check_in_place(cls, "in_place", cls.in_place, outs, ins)
        _check(cls, "mutates", cls.mutates, ins)
        _check(cls, "aux names", cls.aux, ins)
        _check(cls, "shape_only names", cls.shape_only, ins)
        _check(cls, "inferred names", cls.inferred, ins)
        _check(cls, "same_type names", () if cls.variadic else cls.same_type, ins)
        _check(cls, "optional names", tuple(cls.optional), ins)
        _check(cls, "gradient_is maps", tuple(cls.gradient_is), (*ins, *cls.inputs))
        if cls.backward is None:
            cls.grad_op = None
        else:
            _check_backward(cls, Signature.of(cls.backward), ins, outs)
            cls.grad_op = _Unmade()  # type: ignore[assignment]


class _Gradient(Op):
    """Base of the gradient operators, each of which is made of its `forward_op`."""

    recomputable = False
    forward_op: ClassVar[type[Op]]

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return _expand(cls.forward_op, a, cls.inputs)

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        return _expand(cls.forward_op, a, cls.outputs)

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return cls.forward_op.backward_in_place_options(a)


def _check(op: type[Op], what: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    if bad := [n for n in names if n not in known]:
        raise DefinitionError(f"{op.__name__}.{what} {bad}; it may name {list(known)}.")


def _check_in_place(
    op: type[Op],
    what: str,
    pairs: Mapping[str, str | tuple[str, ...]],
    outs: tuple[str, ...],
    ins: tuple[str, ...],
) -> None:
    for out, donors in pairs.items():
        for donor in (donors,) if isinstance(donors, str) else donors:
            if out not in outs or donor not in ins:
                raise DefinitionError(
                    f"{op.__name__}.{what} maps {out!r} to {donor!r}; outputs are {outs}, inputs are {ins}."
                )


def _check_backward(op: type[Op], told: Signature, ins: tuple[str, ...], outs: tuple[str, ...]) -> None:
    """Check what the signature of `op.backward` says."""
    _check(op, "backward asks for", told.needs, (*ins, *outs, *(f"d_{o}" for o in outs)))
    _check(op, "backward makes", told.makes, tuple(f"d_{i}" for i in ins))
    _check(op, "backward_mutates", op.backward_mutates, told.needs)
    _check_in_place(op, "backward_in_place", op.backward_in_place, told.makes, told.needs)


class _Unmade:
    """A placeholder for the gradient operator of a class: few programs need many of them."""

    def __get__(self, instance: Any, op: type[Op]) -> type[Op] | None:
        with _lock:
            if vars(op)["grad_op"] is self:
                op.grad_op = _gradient_op(op)
        return op.grad_op


def _gradient_op(op: type[Op]) -> type[Op]:
    """The gradient operator, whose forward is `op.backward`."""
    assert op.backward is not None
    signature = Signature.of(op.backward)
    return type(
        f"_backward_{op.op_name}",
        (_Gradient,),
        dict(
            op_name=f"_backward_{op.op_name}",
            inputs=signature.needs,
            outputs=signature.makes,
            Attrs=op.Attrs,
            forward_op=op,
            in_place=op.backward_in_place,
            mutates=op.backward_mutates,
            forward=staticmethod(op.backward),
            __doc__=f"Gradient of {op.op_name}.",
            __module__=op.__module__,
        ),
    )


def _expanded(op: Any, a: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """`names` with variadic names replaced by the single ones, without those that `a` does not use."""
    ins, outs = op.input_names(a), op.output_names(a)
    single: list[str] = []
    for name in names:
        prefix, base = ("d_", name[2:]) if name.startswith("d_") else ("", name)
        if op.variadic and base == op.variadic:
            single += [prefix + i for i in ins]
        elif op.variadic_outputs and base == op.variadic_outputs:
            single += [prefix + o for o in outs]
        elif base in ins or base in outs:
            single.append(name)
    missing = op.unneeded(a)
    return tuple(n for n in single if n not in missing)


_expand: Callable[[Any, Any, tuple[str, ...]], tuple[str, ...]] = functools.lru_cache(maxsize=4096)(_expanded)


def known_shape(shape: Shape | None) -> bool:
    """True if a shape has no open axis."""
    return shape is not None and UNKNOWN not in shape


def agreed_shape(a: Shape, b: Shape) -> Shape | None:
    """One shape that agrees with both, UNKNOWN standing for anything; None if there is none."""
    if len(a) != len(b) or any(x != y and UNKNOWN not in (x, y) for x, y in zip(a, b)):
        return None
    return tuple(y if x == UNKNOWN else x for x, y in zip(a, b))


MOST_ELEMENTS = 2**58
"""The most elements of one array: their bytes still fit a signed 64-bit number."""
MOST_AXES = 32
"""The most axes of one array, which every version of numpy takes."""


def require_possible(shape: Shape, name: str) -> None:
    """Raise ShapeError if no array can have `shape`: a length below UNKNOWN, more than MOST_AXES axes, or
    more than any memory holds.
    """
    if len(shape) > MOST_AXES:
        raise ShapeError(f"{name!r} cannot have {len(shape)} axes: arrays have at most {MOST_AXES}.")
    if any(d < UNKNOWN for d in shape):
        raise ShapeError(f"{name!r} would be {shape}; no axis can have a negative length.")
    if prod(abs(d) or 1 for d in shape) > MOST_ELEMENTS:  # numpy leaves zeros out, too
        raise ShapeError(f"{name!r} cannot be {shape}: that is beyond any memory.")


def require_rank(shape: Shape, least: int, what: str) -> None:
    """Raise ShapeError unless `shape` has at least `least` axes."""
    if len(shape) < least:
        raise ShapeError(f"{what} must have at least {least} axes, got {shape}.")


def one_type(dtypes: Sequence[DType | None], what: str) -> DType | None:
    """The one dtype of those known in `dtypes`, or None. Raises DTypeError, about `what`, if they differ."""
    known = [d for d in dtypes if d is not None]
    if any(d != known[0] for d in known):
        raise DTypeError(f"{what} must have one dtype, got {[str(d) for d in dtypes]}.")
    return known[0] if known else None


def require_kind(op: type[Op], dtype: DType | None) -> None:
    """Raise DTypeError unless `op.accepts` lets `dtype` in; None is unknown and passes."""
    if dtype is None or op.accepts == "any":
        return
    if not is_floating(dtype) and (op.accepts == "float" or dtype == np.dtype(bool)):
        wanted = "a floating type" if op.accepts == "float" else "numbers, not bool"
        raise DTypeError(f"needs {wanted}, got {dtype}; convert with Cast (astype), to float32 for instance.")
