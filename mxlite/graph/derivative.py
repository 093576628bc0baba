"""Writing a gradient with operators, so that it has a gradient itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import DerivativeError
from .attrs import parse_attrs
from .ir import Entry, Node, variable
from .opdef import Op

FindOp = Callable[[str], type[Op]]


class Writer:
    """A writer of nodes for `Op.derivative`: `w.broadcast_mul(x, y)` is an entry, and its node is recorded.

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
        """Call an operator that has several outputs; returns all visible ones."""
        op = self._find_op(op_name)
        if op.variadic:
            parameters.setdefault("num_args", len(inputs))
        attrs = parse_attrs(op, parameters)
        assert len(inputs) == len(op.input_names(attrs)), (op_name, op.input_names(attrs), len(inputs))
        node = Node(op, attrs, inputs, f"{self._name}_backward{len(self.made)}")
        self.made.append(node)
        return tuple(Entry(node, i) for i in range(node.num_visible_outputs))


def names_read(op: type[Op], attrs: Any, find_op: FindOp) -> frozenset[str]:
    """Inputs and outputs whose values `op.derivative` reads, found by a trial on variables.

    An input that an operator reads only for its shape (`Op.shape_only_names`) does not count. If
    `derivative` refuses, there is nothing to read.
    """
    assert op.derivative is not None
    names = op.output_names(attrs)
    ins = {n: variable(n) for n in op.input_names(attrs)}
    outs = {n: variable(n) for n in names}
    heads = {n: variable(f"d_{n}") for n in names[: op.num_visible_outputs(attrs)]}
    writer = Writer(find_op, op.op_name)
    try:
        gradients = op.derivative(writer, attrs, ins, outs, heads)
    except DerivativeError:
        return frozenset()
    read = set(gradients.values())
    for node in writer.made:
        assert node.op is not None
        unread = node.op.shape_only_names(node.attrs)
        read.update(e for n, e in zip(node.input_names, node.inputs) if n not in unread)
    return frozenset(n for n, e in (*ins.items(), *outs.items()) if e in read)
