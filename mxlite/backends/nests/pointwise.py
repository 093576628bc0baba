"""Computations that neither reduce nor pick elements, as an expression of each element: the gradient of a sum
is one, though the sum is not."""

from __future__ import annotations

import functools
from math import prod

from ...te.computation import common_shape, needed_by, operands_of, REDUCTIONS
from ...te.expression import ExpressionValue, Writer
from ..base import Request
from ..elementwise.program import broadcasts, can_store, kinds_of, Program
from .program import arrays_of, computation

_OTHER = frozenset(REDUCTIONS) | {"index", "gather", "scatter", "scan"}


def pointwise(r: Request, known: frozenset[str], floats: frozenset[str]) -> Program | None:
    """The expression for a request whose operator declares a computation; None if there is none, or if its
    elements are not all computed alike.

    Types are as in `elementwise.program.program`. An input that is read in two shapes is named twice.
    """
    return _pointwise(r, repr(r.attrs), known, floats)


@functools.lru_cache(maxsize=1024)
def _pointwise(r: Request, spelled: str, known: frozenset[str], floats: frozenset[str]) -> Program | None:
    """`spelled` are the attributes as text: 0.0 and -0.0 are equal, but not the same constant."""
    kinds = kinds_of(r)
    ins, outs = arrays_of(r, kinds)
    if kinds is None or not outs or (r.op.forward_op or r.op).compute_check is not None:
        return None
    if not can_store([kinds[n][1] for n in ins], [kinds[n][1] for n in outs], known, floats):
        return None
    found = computation(r, {n: shape for n, (shape, _) in kinds.items()})
    if found is None or any(n not in found[1] for n in outs):
        return None
    t, outputs, shapes = found
    nodes = sorted(needed_by(t, [outputs[n].number for n in outs]))
    if any(t.nodes[i][0] in _OTHER for i in nodes):
        return None
    whole = common_shape([*(t.shapes[i] for i in nodes), *(shapes[n] for n in outs)])
    if any(prod(shapes[n]) != prod(whole) for n in outs):
        return None
    w, values, names, views = Writer(), dict[int, ExpressionValue](), list[str](), list[tuple[int, ...]]()
    for i in nodes:
        kind, *rest = t.nodes[i]
        if kind == "input":
            values[i] = w.input()
            names.append(rest[0])
            views.append(t.shapes[i])
        elif kind == "constant":
            values[i] = w.constant(rest[0])
        elif kind == "number":
            values[i] = w.number(rest[0])
        elif kind == "broadcast":
            values[i] = values[rest[0]]
        else:
            values[i] = w(kind, *(values[x] for x in operands_of(t.nodes[i])))
    if not set(names) <= set(ins) or not all(broadcasts(v, whole) for v in views):
        return None
    expression, constants = w.expression([values[outputs[n].number] for n in outs])
    return Program(expression, constants, tuple(names), tuple(views), tuple(outs), whole)
