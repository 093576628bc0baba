"""The computation of a request: an operator's own, or the gradient derived from it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from math import prod
from typing import Any

from ...core.errors import ShapeError
from ...graph.ir import Shape
from ...te.adjoint import adjoint
from ...te.computation import Computation, needed_by, Tensor
from ..base import Request
from ..elementwise.program import can_store, kinds_of
from ..elementwise.rules import RULES, view_of, write
from .build import nests_of
from .nest import Nests


def nests_for(r: Request, known: frozenset[str], wanted: frozenset[str] | None = None) -> Nests | None:
    """The loop nests for a request; None if its operator declares no computation, or not for these arrays.

    `known` are the types that the backend's code can load and store. `wanted`: some of the request's outputs,
    which then are computed in the same way as with the others, to the bit.
    """
    return _nests(r, repr(r.attrs), known, wanted)


@functools.lru_cache(maxsize=1024)
def _nests(r: Request, spelled: str, known: frozenset[str], wanted: frozenset[str] | None) -> Nests | None:
    """`spelled` are the attributes as text: 0.0 and -0.0 are equal, but not the same constant."""
    op, a, kinds = r.op, r.attrs, kinds_of(r)
    if kinds is None:
        return None
    ins = [n for n in op.input_names(a) if r.is_used(n) and n not in op.shape_only_names(a)]
    outs = [n for n in op.output_names(a) if r.is_used(n)]
    if not outs or any(0 in kinds[n][0] for n in (*ins, *outs)):
        return None
    if not can_store([kinds[n][1] for n in ins], [kinds[n][1] for n in outs], known):
        return None
    found = computation(r, {n: shape for n, (shape, _) in kinds.items()})
    if found is None:
        return None
    t, outputs, shapes = found
    reads = {t.nodes[i][1] for i in _inputs(t, outputs)}
    if not reads <= set(ins) or any(n not in outputs for n in outs):
        return None
    donors = {o: frozenset(ds) for o, ds in op.in_place_options(a).items()}
    dtypes = {n: str(kinds[n][1]) for n in (*ins, *outs)}
    return nests_of(t, {n: outputs[n] for n in outs}, {n: shapes[n] for n in outs}, dtypes, donors, wanted)


def computation(
    r: Request, known: Mapping[str, Shape]
) -> tuple[Computation, dict[str, Tensor], dict[str, Shape]] | None:
    """The tensors of a request's outputs by name, with the shapes to which they broadcast; None if there are
    none.
    """
    op, a = r.op, r.attrs
    forward = op.forward_op or op
    if forward.compute is None:
        return _by_rule(r, known) if op in RULES else None
    t = Computation()
    given = {n: t.input(n, known[n]) for n in forward.input_names(a)}
    made = forward.compute(t, a, **given)
    if made is None:
        return None
    if op.forward_op is None:
        return t, made, {n: _whole(x, known[n]) for n, x in made.items()}
    names = op.input_names(a)
    whole = {o: _whole(x, known[o]) for o, x in made.items() if x is not None}
    heads = {o: t.input(f"d_{o}", n) for o, n in whole.items() if f"d_{o}" in names and r.is_used(f"d_{o}")}
    if forward.compute_gradient is not None:
        kept = {n: t.input(n, known[n]) for n in names if not n.startswith("d_") and n not in given}
        gradients = forward.compute_gradient(t, a, heads, {**given, **kept})
        if gradients is None:
            return None
        return t, gradients, {n: _whole(x, known[n]) for n, x in gradients.items() if r.is_used(n)}
    read = _read(t, [x for x in made.values() if x is not None])
    wrt = {}
    for name in op.output_names(a):
        if r.is_used(name):
            used = [i for i, node in enumerate(t.nodes) if node[:2] == ("input", name[2:]) and i in read]
            if len(used) != 1:
                return None
            wrt[name] = t.tensor(used[0])
    arrived = {o: t.reduced_to(d, whole[o], made[o].shape) for o, d in heads.items()}
    gradients = adjoint(t, made, arrived, wrt)
    if gradients is None:
        return None
    for n in wrt:
        gradients.setdefault(n, t.number(0.0))  # no head gradient depends on it
    for name, x in made.items():  # what backward gets need not be computed again
        if name in names and r.is_used(name) and t.nodes[x.number][0] != "input":
            t.nodes[x.number] = ("input", name, x.shape)
    return t, gradients, {n: x.shape for n, x in wrt.items()}


def _by_rule(
    r: Request, known: Mapping[str, Shape]
) -> tuple[Computation, dict[str, Tensor], dict[str, Shape]] | None:
    """The same for a gradient of operands that were broadcast, which is summed over their copies."""
    op, a = r.op, r.attrs
    if op.forward_op is None:
        return None
    t, whole = Computation(), known[op.forward_op.output_names(a)[0]]
    views = {n: view_of(op, a, n.removeprefix("d_"), known[n], whole) for n in known}
    ignored = op.shape_only_names(a)
    ins = {n: t.input(n, views[n]) for n in op.input_names(a) if r.is_used(n) and n not in ignored}
    wanted = [n for n in op.output_names(a) if r.is_used(n)]
    if any(len(v) > len(whole) for v in views.values()):
        return None
    made = write(t, op, a, ins, r.dtype)
    if made is None or any(n not in made for n in wanted):
        return None
    found = {n: t.reduced_to(made[n], whole, views[n]) for n in wanted}
    return t, found, {n: views[n] for n in wanted}


def _whole(x: Tensor, shape: Shape) -> Shape:
    """The shape of an output in its domain: the tensor's own, unless that broadcasts to the array's."""
    if prod(x.shape) == prod(shape):
        return x.shape
    if len(x.shape) <= len(shape) and all(d in (1, n) for d, n in zip(reversed(x.shape), reversed(shape))):
        return shape
    raise ShapeError(f"a tensor of shape {x.shape} was computed for an output of {shape}.")


def _read(t: Computation, roots: Any) -> set[int]:
    return needed_by(t, [x.number for x in roots])


def _inputs(t: Computation, outputs: Mapping[str, Tensor]) -> list[int]:
    return [i for i in _read(t, outputs.values()) if t.nodes[i][0] == "input"]
