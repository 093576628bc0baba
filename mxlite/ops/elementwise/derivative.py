"""Gradients of elementwise operators written with operators, so that they have gradients themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...graph.ir import Entry
from ...graph.opdef import Op
from ...te.computation import Node, operands_of
from ...te.operator import computation
from ...te.steps import COMPARISONS, NUMPY

_OF_TWO = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "max": "maximum", "min": "minimum",
    "pow": "power", "hypot": "hypot", "eq": "equal", "ne": "not_equal", "gt": "greater",
    "ge": "greater_equal", "lt": "lesser", "le": "lesser_equal",
}  # fmt: skip
"""What operators of two arrays are called behind "broadcast_", for each step."""
_SAME_SHAPE = frozenset({"add", "sub", "mul", "div"})  # those that are also "elemwise_"
_NUMBER_BEHIND = {"add": "_plus_scalar", "sub": "_minus_scalar"}
_NUMBER_BEFORE = {"sub": "_rminus_scalar", "div": "_rdiv_scalar", "pow": "_rpower_scalar"}
_MIRRORED = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge"}
_OTHER_NAMES = {"neg": "negative"}


def derivative_of(
    op: type[Op],
    w: Any,
    a: Any,
    ins: Mapping[str, Entry],
    outs: Mapping[str, Entry],
    heads: Mapping[str, Entry],
) -> Mapping[str, Entry]:
    """`Op.derivative` of an elementwise operator, from the steps of its gradient."""
    assert op.grad_op is not None
    names = (*op.input_names(a), *op.output_names(a))
    known: dict[str, tuple[int, ...]] = {n: () for name in names for n in (name, f"d_{name}")}
    found = computation(op.grad_op, a, known, frozenset(known))
    if found is None:
        return {}
    t, made, _ = found
    arrays = {**outs, **ins, **{f"d_{n}": e for n, e in heads.items()}}
    steps = _Steps(w, t.nodes, arrays, op.same_shape)
    written = {n.removeprefix("d_"): steps.entry(x.number) for n, x in made.items()}
    return {n: e if op.same_shape else w._sum_like(e, ins[n]) for n, e in written.items()}


class _Steps:
    """Nodes of a computation as operators; a number stays one as long as it can."""

    def __init__(self, w: Any, nodes: list[Node], arrays: Mapping[str, Entry], same_shape: bool) -> None:
        self.w, self.nodes, self.arrays, self.same_shape = w, nodes, arrays, same_shape
        self.made: dict[int, Entry | float] = {}

    def value(self, number: int) -> Entry | float:
        if number not in self.made:
            self.made[number] = self._made(self.nodes[number])
        return self.made[number]

    def entry(self, number: int) -> Entry:
        """A node as an entry; one that is a number, in the shape of the head gradient."""
        return self._array(self.value(number), self.arrays["d_out"])

    def _made(self, node: Node) -> Entry | float:
        w, name = self.w, str(node[0])
        if name == "input":
            return self.arrays[node[1]]
        if name in ("number", "constant"):
            return float(node[1])
        operands = [self.value(x) for x in operands_of(node)]
        if name == "broadcast":
            return operands[0]
        arrays = [x for x in operands if isinstance(x, Entry)]
        if not arrays:
            return float(NUMPY[name](*(np.float64(x) for x in operands if not isinstance(x, Entry))))
        if name == "select":
            return self._selected(*operands)
        if name in _WRITTEN:
            return _WRITTEN[name](w, *(self._array(x, arrays[0]) for x in operands))
        if len(operands) == 1:
            made: Entry = getattr(w, _OTHER_NAMES.get(name, name))(*operands)
            return made
        return self._of_two(name, *operands)

    def _of_two(self, name: str, x: Entry | float, y: Entry | float) -> Entry:
        called: str = _OF_TWO[name]
        if isinstance(x, Entry) and isinstance(y, Entry):
            kind = "elemwise" if self.same_shape and name in _SAME_SHAPE else "broadcast"
            made: Entry = getattr(self.w, f"{kind}_{called}")(x, y)
            return made
        if isinstance(x, Entry):
            operator, array, scalar = _NUMBER_BEHIND.get(name, f"_{called}_scalar"), x, y
        else:
            assert isinstance(y, Entry)
            name = _MIRRORED.get(name, name)
            behind = _NUMBER_BEHIND.get(name, f"_{_OF_TWO[name]}_scalar")
            operator, array, scalar = _NUMBER_BEFORE.get(name, behind), y, x
        found: Entry = getattr(self.w, operator)(array, scalar=scalar)
        return found

    def _selected(self, *three: Entry | float) -> Entry:
        """`where`, whose three arrays (condition, what holds where it does, elsewhere) have one shape."""
        given = [x for x in three if isinstance(x, Entry)]
        whole: Entry = given[0] if self.same_shape else self.w.add_n(*self._together(given))
        arrays = [self._array(x, whole) for x in three]
        made: Entry = self.w.where(*(arrays if self.same_shape else self._together(arrays)))
        return made

    def _together(self, given: list[Entry]) -> list[Entry]:
        """Entries stretched to the shape to which they broadcast."""
        zero = self.w.zeros_like(given[0])
        for x in given[1:]:
            zero = self.w.broadcast_add(zero, self.w.zeros_like(x))
        return [self.w.broadcast_add(x, zero) for x in given]

    def _array(self, x: Entry | float, like: Entry) -> Entry:
        return x if isinstance(x, Entry) else self._filled(x, like)

    def _filled(self, x: float, like: Entry) -> Entry:
        filled: Entry = self.w._mul_scalar(self.w.ones_like(like), scalar=x)
        return filled


_WRITTEN: Mapping[str, Callable[..., Entry]] = {
    "bell": lambda w, x: w.exp(w._mul_scalar(w.square(x), scalar=-0.5)),
    "normal": lambda w, x: w._mul_scalar(
        w._plus_scalar(w.erf(w._mul_scalar(x, scalar=math.sqrt(0.5))), scalar=1.0), scalar=0.5
    ),
    "arctan2": lambda w, x, y: w.arctan2(x, y),
    "fmod": lambda w, x, y: w.fmod(x, y),
    "to_float16": lambda w, x: w.Cast(x, dtype="float16"),
    "to_bfloat16": lambda w, x: w.Cast(x, dtype="bfloat16"),
}
"""Steps that are operators of other names, or several."""
assert COMPARISONS <= set(_OF_TWO)
