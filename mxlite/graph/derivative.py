"""Writing a gradient with operators, so that it has a gradient itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .attrs import parse_attrs
from .ir import Entry, Node
from .opdef import Op

FindOp = Callable[[str], type[Op]]


class Writer:
    """What `Op.derivative` writes with: `w.broadcast_mul(x, y)` is an entry, and the node behind it is kept.

    Inputs are entries, by position; parameters go by keyword, as a user writes them. An operator of any
    number of inputs counts them. `made` holds the nodes in the order they were written, which is an
    execution order.
    """

    def __init__(self, find_op: FindOp, name: str) -> None:
        self._find_op = find_op
        self._name = name
        self.made: list[Node] = []

    def __getattr__(self, op_name: str) -> Callable[..., Entry]:
        return lambda *inputs, **parameters: self.all(op_name, *inputs, **parameters)[0]

    def all(self, op_name: str, *inputs: Entry, **parameters: Any) -> tuple[Entry, ...]:
        """The call of an operator that has several outputs; returns all visible ones."""
        op = self._find_op(op_name)
        if op.variadic:
            parameters.setdefault("num_args", len(inputs))
        attrs = parse_attrs(op, parameters)
        assert len(inputs) == len(op.input_names(attrs)), (op_name, op.input_names(attrs), len(inputs))
        node = Node(op, attrs, inputs, f"{self._name}_backward{len(self.made)}")
        self.made.append(node)
        return tuple(Entry(node, i) for i in range(node.num_visible_outputs))
