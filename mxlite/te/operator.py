"""An operator's computation, that of its gradient, and kernels of numpy that follow from them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from ..core.dtype import accumulator, is_floating
from ..core.errors import DefinitionError, ShapeError
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, Shapes, with_parameters
from .adjoint import adjoint
from .computation import Computation, needed_by, Tensor
from .evaluate import Evaluation

Found = tuple[Computation, dict[str, Tensor], dict[str, Shape]]
"""A computation, the tensors of its outputs by name, and the shapes to which they broadcast."""


def computation(
    op: type[Op], a: Any, known: Mapping[str, Shape], used: frozenset[str], dtype: DType | None = None
) -> Found | None:
    """What `op` computes, an operator with `compute` or the gradient of one; None if it says so of these
    shapes, or if a step has no derivative.

    `known` are the shapes of all arrays by name, `used` the inputs and outputs that there are. To `dtype`
    numbers are rounded: that of the forward call's first input.
    """
    forward = op.forward_op or op
    assert forward.compute is not None
    t = Computation()
    if forward.elementwise:
        t.dtype = dtype
        whole_shape = known[forward.output_names(a)[0]]
        views = {n: forward.operand_shape(a, n.removeprefix("d_"), s, whole_shape) for n, s in known.items()}
        known = {**known, **views}
    given = {n: t.input(n, known[n]) for n in forward.input_names(a)}
    made = forward.compute(t, a, **given)
    if made is None:
        return None
    if op.forward_op is None:
        return t, made, {n: domain_of(x, known[n]) for n, x in made.items() if x is not None}
    names = op.input_names(a)
    whole = {o: domain_of(x, known[o]) for o, x in made.items() if x is not None}
    heads = {o: t.input(f"d_{o}", n) for o, n in whole.items() if f"d_{o}" in names and f"d_{o}" in used}
    if forward.compute_gradient is not None:
        kept = {n: t.input(n, known[n]) for n in names if not n.startswith("d_") and n not in given}
        gradients = forward.compute_gradient(t, a, heads, {**given, **kept})
        if gradients is None:
            return None
        gradients = {n: x for n, x in gradients.items() if n in used}
        if forward.elementwise:  # of operands that were broadcast: the sum over their copies
            gradients = {n: t.reduced_to(x, whole_shape, known[n]) for n, x in gradients.items()}
            return t, gradients, {n: known[n] for n in gradients}
        return t, gradients, {n: domain_of(x, known[n]) for n, x in gradients.items()}
    read = needed_by(t, [x.number for x in made.values() if x is not None])
    wrt = {}
    for name in op.output_names(a):
        if name in used:
            seen = [i for i, node in enumerate(t.nodes) if node[:2] == ("input", name[2:]) and i in read]
            if len(seen) > 1:
                return None
            wrt[name] = t.tensor(seen[0]) if seen else t.input(name[2:], known[name])
    arrived = {o: t.reduced_to(d, whole[o], made[o].shape) for o, d in heads.items()}
    gradients = adjoint(t, made, arrived, wrt)
    if gradients is None:
        return None
    for n in wrt:
        gradients.setdefault(n, t.number(0.0))  # no head gradient depends on it
    for name, x in made.items():  # what backward gets need not be computed again
        if name in names and name in used and t.nodes[x.number][0] != "input":
            t.nodes[x.number] = ("input", name, x.shape)
    return t, gradients, {n: x.shape for n, x in wrt.items()}


def domain_of(x: Tensor, shape: Shape) -> Shape:
    """The shape of an output in its domain: the tensor's own, unless that broadcasts to the array's."""
    if prod(x.shape) == prod(shape):
        return x.shape
    if len(x.shape) <= len(shape) and all(d in (1, n) for d, n in zip(reversed(x.shape), reversed(shape))):
        return shape
    raise ShapeError(f"a tensor of shape {x.shape} was computed for an output of {shape}.")


# -- kernels ---------------------------------------------------------------------------------------


def forward_call(op: type[Op]) -> Callable[..., None]:
    """`Op.forward` of an operator that has `compute`."""

    def forward(xp: Any, a: Any, *inputs: Any, work: Any, shapes: tuple[Shapes, Shapes], **made: Any) -> None:
        given = dict(zip(op.input_names(a) if op.variadic else op.inputs, inputs))
        _run(op, op, xp, a, given, made, work, shapes)

    forward.is_derived = True  # type: ignore[attr-defined]
    needs = (op.variadic,) if op.variadic else op.inputs
    return with_parameters(forward, needs, op.outputs, ("work", "shapes"))


def gradient_call(op: type[Op], reads: tuple[str, ...], makes: tuple[str, ...]) -> Callable[..., None]:
    """`Op.backward` of such an operator: its needs and what it makes are these."""

    def backward(
        xp: Any, a: Any, *inputs: Any, work: Any, shapes: tuple[Shapes, Shapes], **made: Any
    ) -> None:
        assert op.grad_op is not None
        given = {n: x for n, x in by_name(op, a, zip(reads, inputs)).items() if x is not None}
        _run(op.grad_op, op, xp, a, given, by_name(op, a, made.items()), work, shapes)

    backward.is_derived = True  # type: ignore[attr-defined]
    return with_parameters(backward, reads, makes, ("work", "shapes"))


def by_name(op: type[Op], a: Any, arrays: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A call's arrays by name, one by one those that `op`, a forward operator, has any number of: its kernels
    take them as one tuple.
    """
    found: dict[str, Any] = {}
    for name, x in arrays:
        base = name.removeprefix("d_")
        if base and base in (op.variadic, op.variadic_outputs):
            names = op.input_names(a) if base == op.variadic else op.output_names(a)
            found |= {name.removesuffix(base) + n: part for n, part in zip(names, x)}
        else:
            found[name] = x
    return found


def is_derived(kernel: Callable[..., None] | None) -> bool:
    """True for a kernel that one of these has made."""
    return getattr(kernel, "is_derived", False)


def scratch_of(op: type[Op], a: Any, shapes: tuple[Shapes, Shapes], dtype: DType) -> int:
    """Bytes of scratch of such a kernel, whichever head gradients arrive; `dtype`: of the first input of the
    forward call, `shapes` its own.
    """
    forward = op.forward_op or op
    heads = [] if op is forward else [n for n in op.input_names(a) if n.startswith("d_")]
    some = _some(heads, 0 if forward.is_loss else 1)
    made = (_evaluation(op, a, repr(a), shapes, np.dtype(dtype), frozenset(x)) for x in some)
    return max(x.nbytes for x in made)


def _some(heads: list[str], least: int) -> Iterator[tuple[str, ...]]:
    """Every choice of head gradients, `least` of them if there are so many."""
    for count in range(min(least, len(heads)), len(heads) + 1):
        yield from combinations(heads, count)


def _run(
    op: type[Op],
    forward: type[Op],
    xp: Any,
    a: Any,
    given: Mapping[str, Any],
    made: Mapping[str, Any],
    work: Any,
    shapes: tuple[Shapes, Shapes],
) -> None:
    if all(x is None for x in made.values()):
        return
    if forward.compute_check is not None:
        forward.compute_check(xp, a, dict(zip(forward.input_names(a), shapes[0])), given[forward.checked])
    heads = frozenset() if op is forward else frozenset(n for n in given if n.startswith("d_"))
    dtype = _first_type(forward, forward.input_names(a)[0], given, made)
    _evaluation(op, a, repr(a), shapes, dtype, heads).run(xp, given, made, work)


def _first_type(forward: type[Op], first: str, given: Mapping[str, Any], made: Mapping[str, Any]) -> DType:
    """The type of the first input of the forward call, by its array or that of its gradient."""
    for x in (given.get(first), made.get(f"d_{first}"), *given.values()):
        if x is not None:
            dtype: DType = x.dtype
            return dtype
    raise DefinitionError(f"{forward.op_name} reads no array.")


def _evaluated(
    op: Any, a: Any, spelled: str, shapes: tuple[Shapes, Shapes], dtype: DType, heads: frozenset[str]
) -> Evaluation:
    """How numpy computes `op`, or the gradient `op`, from these head gradients; `dtype`: of the first input
    of the forward call, `shapes` its own. `spelled` are the attributes as text: 0.0 and -0.0 are equal, but
    not the same constant.
    """
    forward = op.forward_op or op
    ins, outs = forward.input_names(a), forward.output_names(a)
    known: dict[str, Shape] = {}
    dtypes: dict[str, DType] = {}
    in_types, out_types = forward.infer_type(a, dtype, *(None,) * (len(ins) - 1))
    for names, lengths, types in ((ins, shapes[0], in_types), (outs, shapes[1], out_types)):
        for n, shape, kind in zip(names, lengths, types):
            known[n] = known[f"d_{n}"] = tuple(shape)
            if kind is not None:
                dtypes[n] = dtypes[f"d_{n}"] = kind
    if all(kind is None for kind in out_types):
        raise DefinitionError(f"{forward.op_name}: its first input's type does not say its outputs' types.")
    reads = set(op.input_names(a)) - set(op.shape_only_names(a))
    reads = {n for n in reads if op is forward or not n.startswith("d_") or n in heads}
    makes = op.output_names(a)
    used = frozenset(reads) | set(makes)
    found = computation(op, a, known, used, dtype) if _has_elements(known, makes) else None
    if found is None:
        if _has_elements(known, makes):
            raise DefinitionError(f"{forward.op_name} declares no computation for {shapes} and {a}.")
        return Evaluation(Computation(), {}, {}, dtype, {}, {})
    t, made, domains = found
    made = {n: x for n, x in made.items() if n in makes and x is not None}
    absent = _inputs_of(t, made.values()) - reads
    if absent or set(made) != set(makes):
        missing = sorted(absent) or sorted(set(makes) - set(made))
        raise DefinitionError(f"{op.op_name} computes {sorted(made)}, but there is no {missing}.")
    donors = {
        o: frozenset(d for d in inputs if d in reads and prod(known[d]) == prod(known[o]))
        for o, inputs in op.in_place_options(a).items()
    }
    return Evaluation(t, made, domains, computed_type(dtype, out_types), dtypes, donors)


_evaluation: Callable[..., Evaluation] = functools.lru_cache(maxsize=4096)(_evaluated)


def computed_type(dtype: DType, outputs: Iterable[DType | None]) -> DType:
    """The type in which numbers are computed for a first input of `dtype` and these outputs: the widest
    floating one, float32 at least; whole numbers in the widest of theirs, truth values as bytes.
    """
    floats = [accumulator(d) for d in (dtype, *outputs) if d is not None and is_floating(d)]
    if floats:
        return max(floats, key=lambda d: d.itemsize)
    whole = [d for d in outputs if d is not None and d.kind in "iu"]
    return np.result_type(np.uint8 if dtype.kind == "b" else dtype, *whole)


def _has_elements(known: Mapping[str, Shape], names: Iterable[str]) -> bool:
    return any(prod(known[n]) for n in names)


def _inputs_of(t: Computation, roots: Iterable[Tensor]) -> set[str]:
    return {t.nodes[i][1] for i in needed_by(t, [x.number for x in roots]) if t.nodes[i][0] == "input"}
