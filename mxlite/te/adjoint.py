"""Gradients of a computation, by reverse-mode differentiation of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .computation import Computation, LEAVES, operands_of, Tensor


def adjoint(
    t: Computation, outputs: Mapping[str, Tensor], heads: Mapping[str, Tensor], wrt: Mapping[str, Tensor]
) -> dict[str, Tensor] | None:
    """The gradients `wrt` tensors, given those of `outputs`; None if a step has no derivative.

    A tensor on which no output with a head depends has no entry. What equals a maximum gets the whole
    gradient, as in MXNet.
    """
    found: dict[int, Tensor] = {}
    for name, head in heads.items():
        number = outputs[name].number
        found[number] = found[number] + head if number in found else head
    targets = {x.number for x in wrt.values()}
    needed = _leading_to(t, targets)
    for number in range(max((x.number for x in outputs.values()), default=-1), -1, -1):
        if number not in found or number not in needed or number in targets:
            continue
        node = t.nodes[number]
        rule = _RULES.get(node[0])
        if rule is None or (node[0] == "gather" and not _picks_once(t, number)):
            return None
        y, operands = t.tensor(number), [t.tensor(i) for i in operands_of(node)]
        whole = operands[0].shape if node[0].startswith("reduce_") or node[0] == "gather" else y.shape
        for x, part in zip(operands, rule(t, found[number], y, *operands)):
            if part is not None and x.number in needed:
                part = t.reduced_to(part, whole, x.shape)
                found[x.number] = found[x.number] + part if x.number in found else part
    return {name: found[x.number] for name, x in wrt.items() if x.number in found}


def _leading_to(t: Computation, targets: set[int]) -> set[int]:
    """The nodes that depend on one of `targets`."""
    found = set(targets)
    for number, node in enumerate(t.nodes):
        if node[0] not in LEAVES and found.intersection(operands_of(node)):
            found.add(number)
    return found


def _picks_once(t: Computation, number: int) -> bool:
    """True if each index of a gather picks of elements of its own, so that no two gradients meet."""
    _, x, _, at = t.nodes[number]
    whole = t.shapes[x]
    return t.shapes[number] == tuple(1 if i - len(whole) == at else n for i, n in enumerate(whole))


_RULES: Mapping[str, Callable[..., tuple[Tensor | None, ...]]] = {
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
    "broadcast": lambda t, d, y, a: (d,),
    "gather": lambda t, d, y, x, index: (
        t.where("eq", t.index(x, t.nodes[y.number][3]), index, d, 0.0),
        None,
    ),
    "sign": lambda t, d, y, a: (None,),
    "select": lambda t, d, y, c, a, b: (None, t.select(c, d, 0.0), t.select(c, 0.0, d)),
    "reduce_sum": lambda t, d, y, a: (d,),
    "reduce_prod": lambda t, d, y, a: (d * y / a,),
    "reduce_max": lambda t, d, y, a: (t.where("eq", a, y, d, 0.0),),
    "reduce_min": lambda t, d, y, a: (t.where("eq", a, y, d, 0.0),),
    **{name: lambda t, d, y, a, b: (None, None) for name in ("eq", "ne", "gt", "ge", "lt", "le")},
}
"""The gradients of a node's operands, from that of the node, the node, and the operands."""
