"""The optimizer's update as part of the graph: a gradient then dies right after its use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.dtype import float32
from .attrs import parse_attrs
from .ir import Entry, Graph, Node, variable
from .opdef import Op

HYPER = "_update_hyper"
"""Variable of shape (parameters, rates), float64: rows of learning rate, weight decay, ... of this step."""

MASTER = "weight32"
"""The state that is a float32 copy of a 16-bit weight; the other states of that weight are float32 too."""


@dataclass(frozen=True)
class UpdateRule:
    """How an optimizer changes one parameter inside the graph.

    `op` has inputs (weight, grad, *states, hyper) and no outputs; it mutates weight and states.
    `attrs` are its parameters without `row`, which is the parameter's row in `hyper`; a row has `rates`
    numbers. `mixed` stands in for `op` where the weight is of 16 bits, with MASTER as its last state.
    """

    op: type[Op]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    mixed: type[Op] | None = None
    rates: int = 2

    def op_of(self, dtype: Any) -> type[Op]:
        """The operator for a weight of this type."""
        return self.mixed if self.mixed is not None and dtype.itemsize == 2 else self.op

    def states_of(self, dtype: Any) -> tuple[str, ...]:
        """The states of a weight of this type."""
        return (*self.states, MASTER) if self.op_of(dtype) is not self.op else self.states


def state_name(parameter: str, state: str) -> str:
    """The name of the variable that holds one optimizer state of one parameter."""
    return f"{parameter}:{state}"


def fuse_updates(graph: Graph, rule: UpdateRule, gradients: Sequence[tuple[Entry, Entry]]) -> Graph:
    """`graph` with one update node for each (parameter variable, gradient entry), as effects.

    Weights whose type `graph` does not know count as float32. States become variables `state_name(parameter,
    state)`. The updates stand last in `order`; the planner runs each as soon as its gradient is there and
    the old weight is read no more.
    """
    hyper = variable(HYPER)
    effects = []
    extra: list[Node] = [hyper.node]
    for row, (weight, grad) in enumerate(gradients):
        dtype = graph.dtypes.get(weight, float32)
        op = rule.op_of(dtype)
        states = [variable(state_name(weight.node.name, s)) for s in rule.states_of(dtype)]
        extra += [s.node for s in states]
        effects.append(
            Node(
                op,
                parse_attrs(op, {**rule.attrs, "row": row}),
                (weight, grad, *states, hyper),
                f"{weight.node.name}_update",
            )
        )
    return replace(graph, effects=(*graph.effects, *effects), order=(*graph.nodes, *extra, *effects))
