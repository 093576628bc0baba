"""Gradients of a computation, by reverse-mode differentiation of its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..graph.ir import Shape
from .computation import common_shape, Computation, LEAVES, operands_of, Tensor


def adjoint(
    t: Computation, outputs: Mapping[str, Tensor], heads: Mapping[str, Tensor], wrt: Mapping[str, Tensor]
) -> dict[str, Tensor] | None:
    """The gradients `wrt` tensors, given those of `outputs`; None if a step has none.

    A tensor on which no output with a head depends has no entry. What equals a maximum gets the whole
    gradient, as in MXNet.
    """
    found: dict[int, Tensor] = {}
    for name, head in heads.items():
        number = outputs[name].number
        found[number] = _sum(t, found[number], head) if number in found else head
    targets = {x.number for x in wrt.values()}
    needed = _leading_to(t, targets)
    for number in range(max((x.number for x in outputs.values()), default=-1), -1, -1):
        if number not in found or number not in needed or number in targets:
            continue
        node = t.nodes[number]
        rule = RULES.get(node[0])
        if rule is None:
            return None
        y, operands = t.tensor(number), [t.tensor(i) for i in operands_of(node)]
        whole = operands[0].shape if node[0].startswith("reduce_") else y.shape
        parts = rule(t, found[number], y, *operands)
        if parts is None:
            return None
        for x, part in zip(operands, parts):
            if part is not None and x.number in needed:
                if node[0] not in ("gather", "scatter"):  # whose operands have axes of their own
                    part = t.reduced_to(part, whole, x.shape)
                found[x.number] = _sum(t, found[x.number], part) if x.number in found else part
    return {name: found[x.number] for name, x in wrt.items() if x.number in found}


def _leading_to(t: Computation, targets: set[int]) -> set[int]:
    """The nodes that depend on one of `targets`."""
    found = set(targets)
    for number, node in enumerate(t.nodes):
        if node[0] not in LEAVES and found.intersection(operands_of(node)):
            found.add(number)
    return found


def _sum(t: Computation, x: Tensor, y: Tensor) -> Tensor:
    """The sum of two gradients: what is added to zeros at an index is added to the other one there."""
    kind, *operands = t.nodes[y.number]
    if kind == "scatter" and t.nodes[operands[0]] == t.nodes[_zeros(t, x.shape).number]:
        _, index, terms, at = operands
        return t.at_index(kind, [x, t.tensor(index), t.tensor(terms)], at)
    return x + y


def _zeros(t: Computation, shape: Shape) -> Tensor:
    return t.broadcast(0.0, shape)


def _picks_once(t: Computation, number: int) -> bool:
    """True if each index of a gather picks of elements of its own, so that no two gradients meet."""
    _, x, _, at = t.nodes[number]
    whole = t.shapes[x]
    return t.shapes[number] == tuple(1 if i - len(whole) == at else n for i, n in enumerate(whole))


def _of_gather(t: Computation, d: Tensor, y: Tensor, x: Tensor, index: Tensor) -> Any:
    """The gradient of an input of which elements were picked."""
    at = t.nodes[y.number][-1]
    if _picks_once(t, y.number):
        return t.where("eq", t.index(x, at), index, d, 0.0), None
    if len(y.shape) != len(x.shape):
        return None
    return t.add_at(_zeros(t, x.shape), index, t.broadcast(d, y.shape), at), None


def _of_scatter(t: Computation, d: Tensor, y: Tensor, base: Tensor, index: Tensor, terms: Tensor) -> Any:
    """The gradients of a base, and of what was added to it: the elements at the same places."""
    if t.nodes[d.number][0] != "input":
        return None
    picked = t.pick(d, index, t.nodes[y.number][-1])
    return d, None, t.reduced_to(picked, common_shape([picked.shape, terms.shape]), terms.shape)


def _of_scan(t: Computation, d: Tensor, y: Tensor, first: Tensor, factor: Tensor, x: Tensor) -> Any:
    """The gradients of a first value, factors and terms: a scan from the other end."""
    *_, at, reverse, exclusive = t.nodes[y.number]
    d = t.broadcast(d, y.shape)
    is_sum = t.is_number(factor, 1.0)
    if exclusive:  # what elements behind one say about the value at it
        total, before = t.scan(d, at, factor, 0.0, not reverse, exclusive=True), y
    elif is_sum:
        total, before = t.scan(d, at, reverse=not reverse), y
    else:
        total = d + t.scan(factor * d, at, factor, 0.0, not reverse, exclusive=True)
        before = t.scan(x, at, factor, first, reverse, exclusive=True)
    of_first = factor * total + d if exclusive else factor * total
    begin = float(y.shape[at] - 1 if reverse else 0)
    return t.where("eq", t.index(y, at), begin, of_first, 0.0), None if is_sum else total * before, total


RULES: Mapping[str, Callable[..., tuple[Tensor | None, ...] | None]] = {
    "add": lambda t, d, y, a, b: (d, d),
    "sub": lambda t, d, y, a, b: (d, -d),
    "mul": lambda t, d, y, a, b: (d * b, d * a),
    "div": lambda t, d, y, a, b: (d / b, -(d * y / b)),
    "neg": lambda t, d, y, a: (-d,),
    "abs": lambda t, d, y, a: (d * t.sign(a),),
    "sqrt": lambda t, d, y, a: (d * 0.5 / y,),
    "rsqrt": lambda t, d, y, a: (d * y * y * y * -0.5,),
    "exp": lambda t, d, y, a: (d * y,),
    "log": lambda t, d, y, a: (d / a,),
    "log1p": lambda t, d, y, a: (d / (a + 1),),
    "expm1": lambda t, d, y, a: (d * (y + 1),),
    "tanh": lambda t, d, y, a: (d * (1 - y * y),),
    "sigmoid": lambda t, d, y, a: (d * ((1 - y) * y),),
    "softplus": lambda t, d, y, a: (d * t.sigmoid(a),),
    "erf": lambda t, d, y, a: (d * (t.exp(-(a * a)) * (2 / math.sqrt(math.pi))),),
    "log2": lambda t, d, y, a: (d / (a * math.log(2)),),
    "log10": lambda t, d, y, a: (d / (a * math.log(10)),),
    "cbrt": lambda t, d, y, a: (d / (y * y * 3),),
    "sin": lambda t, d, y, a: (d * t.cos(a),),
    "cos": lambda t, d, y, a: (-(d * t.sin(a)),),
    "tan": lambda t, d, y, a: (d * (y * y + 1),),
    "arcsin": lambda t, d, y, a: (d / t.sqrt((1 - a) * (a + 1)),),
    "arccos": lambda t, d, y, a: (-(d / t.sqrt((1 - a) * (a + 1))),),
    "arctan": lambda t, d, y, a: (d / (a * a + 1),),
    "sinh": lambda t, d, y, a: (d * t.cosh(a),),
    "cosh": lambda t, d, y, a: (d * t.sinh(a),),
    "arcsinh": lambda t, d, y, a: (d / t.hypot(a, 1.0),),
    "arccosh": lambda t, d, y, a: (d / t.sqrt((a - 1) * (a + 1)),),
    "arctanh": lambda t, d, y, a: (d / ((1 - a) * (a + 1)),),
    "pow": lambda t, d, y, a, b: (t.pow(a, b - 1) * b * d, t.log(a) * y * d),
    "hypot": lambda t, d, y, a, b: (a / y * d, b / y * d),
    "arctan2": lambda t, d, y, a, b: (b / (a * a + b * b) * d, -(a / (a * a + b * b) * d)),
    "copysign": lambda t, d, y, a, b: (d * (t.copysign(1.0, a) * t.copysign(1.0, b)), None),
    "fmod": lambda t, d, y, a, b: (d, -(t.trunc(a / b) * d)),
    **{name: lambda t, d, y, a: (None,) for name in ("sign", "floor", "ceil", "trunc", "rint")},
    "broadcast": lambda t, d, y, a: (d,),
    "gather": _of_gather,
    "scatter": _of_scatter,
    "scan": _of_scan,
    "normal": lambda t, d, y, a: (d * (t.bell(a) * (1 / math.sqrt(2 * math.pi))),),
    "bell": lambda t, d, y, a: (-(d * a * y),),
    "max": lambda t, d, y, a, b: (d * t.zero_where("lt", a, b), d * t.one_where("lt", a, b)),
    "min": lambda t, d, y, a, b: (d * t.zero_where("gt", a, b), d * t.one_where("gt", a, b)),
    "to_float16": lambda t, d, y, a: (t.to_float16(d),),
    "to_bfloat16": lambda t, d, y, a: (t.to_bfloat16(d),),
    "select": lambda t, d, y, c, a, b: (None, t.select(c, d, 0.0), t.select(c, 0.0, d)),
    "reduce_sum": lambda t, d, y, a: (d,),
    "reduce_prod": lambda t, d, y, a: (d * y / a,),
    "reduce_max": lambda t, d, y, a: (t.where("eq", a, y, d, 0.0),),
    "reduce_min": lambda t, d, y, a: (t.where("eq", a, y, d, 0.0),),
    **{name: lambda t, d, y, a, b: (None, None) for name in ("eq", "ne", "gt", "ge", "lt", "le")},
}
"""The gradients of a node's operands, from that of the node, the node, and the operands; None if they are no
computation.
"""
