"""The optimizer's update as part of the graph: a gradient then dies right after its use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .attrs import parse_attrs
from .ir import Entry, Graph, Node, variable
from .opdef import Op

HYPER = "_update_hyper"
"""Variable of shape (parameters, 2), float64: rows of learning rate and weight decay of this step."""


@dataclass(frozen=True)
class UpdateRule:
    """How an optimizer changes one parameter inside the graph.

    `op` has inputs (weight, grad, *states, hyper) and no outputs; it mutates weight and states.
    `attrs` are its parameters without `row`, which is the parameter's row in `hyper`.
    """

    op: type[Op]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    states: tuple[str, ...] = ()


def state_name(parameter: str, state: str) -> str:
    """The name of the variable that holds one optimizer state of one parameter."""
    return f"{parameter}:{state}"


def fuse_updates(graph: Graph, rule: UpdateRule, gradients: Sequence[tuple[Entry, Entry]]) -> Graph:
    """`graph` with one update node for each (parameter variable, gradient entry), as effects.

    States become variables `state_name(parameter, state)`. The updates stand last in `order`; the
    planner runs each as soon as its gradient is there and the old weight is read no more.
    """
    hyper = variable(HYPER)
    effects = []
    extra: list[Node] = [hyper.node]
    for row, (weight, grad) in enumerate(gradients):
        states = [variable(state_name(weight.node.name, s)) for s in rule.states]
        extra += [s.node for s in states]
        effects.append(
            Node(
                rule.op,
                parse_attrs(rule.op, {**rule.attrs, "row": row}),
                (weight, grad, *states, hyper),
                f"{weight.node.name}_update",
            )
        )
    return replace(graph, effects=(*graph.effects, *effects), order=(*graph.nodes, *extra, *effects))
