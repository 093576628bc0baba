"""The optimizer's update as part of the graph: a gradient then dies right after its use."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from ..core.dtype import float32
from ..core.record import record
from .attrs import parse_attrs
from .ir import Entry, Graph, Node, variable
from .opdef import Op

HYPER = "_update_hyper"
"""Variable of shape (parameters, rates), float64: rows of learning rate, weight decay, ... of this step."""

HISTORY = "_loss_scale_history"
"""Variable of shape (3,), float64, of a step with a loss scale; see `ops/optim/scaled_update.py`."""

MASTER = "weight32"
"""The state that is a float32 copy of a 16-bit weight; all other states of that weight are float32 too."""


@record
class UpdateRule:
    """The operator and parameters with which an optimizer changes one parameter inside the graph.

    `op` has inputs (weight, grad, *states, hyper) and no outputs; it mutates weight and states.
    `attrs` are its parameters without `row`, which is the parameter's row in `hyper`; a row has `rates`
    numbers. `mixed` stands in for `op` where the weight is of 16 bits, with MASTER as its last state; `lazy`
    where the gradient has flags of its rows, which it gets before `hyper`, if the weight is declared as
    row_sparse or `lazy_always`, and `lazy_mixed` where both hold: without these, all rows are changed.
    `splits`: True if `op` steps each element by itself, so that ranks may step parts of a weight.
    """

    op: type[Op]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    states: tuple[str, ...] = ()
    mixed: type[Op] | None = None
    rates: int = 2
    lazy: type[Op] | None = None
    lazy_always: bool = True
    lazy_mixed: type[Op] | None = None
    splits: bool = False

    def lazy_of(self, dtype: Any) -> type[Op] | None:
        """The operator that updates some rows of a weight of this type; None if all rows are changed."""
        return self.lazy if self.op_of(dtype) is self.op else self.lazy_mixed

    def op_of(self, dtype: Any) -> type[Op]:
        """The operator for a weight of this type."""
        return self.mixed if self.mixed is not None and dtype.itemsize == 2 else self.op

    def states_of(self, dtype: Any) -> tuple[str, ...]:
        """The states of a weight of this type."""
        return (*self.states, MASTER) if self.op_of(dtype) is not self.op else self.states


@record
class Scaling:
    """The operators of a loss scale that lives in the step: one looks at the gradients, one decides.

    `finite` reduces all gradients to one number, 0 if one of them overflowed. `gate` has inputs (finite,
    hyper, scale, history) and gives the rates of the updates; it changes the last two. `attrs` are its
    parameters.
    """

    finite: type[Op]
    gate: type[Op]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def state_name(parameter: str, state: str) -> str:
    """The name of the variable that holds one optimizer state of one parameter."""
    return f"{parameter}:{state}"


def fuse_updates(
    graph: Graph,
    rule: UpdateRule,
    gradients: Sequence[tuple[Entry, Entry]],
    scaling: Scaling | None = None,
    scale: Entry | None = None,
    rows: Mapping[Entry, Entry] = {},
    hyper: Entry | None = None,
    done: Container[Entry] = (),
) -> Graph:
    """`graph` with one update node for each (parameter variable, gradient entry), as effects.

    Weights whose type `graph` does not know count as float32. States become variables `state_name(parameter,
    state)`. The updates come last in `order`; the planner runs each as soon as its gradient exists and no
    reader of the old weight is left.

    `rows` are flags of the rows that a weight's gradient can reach: its update is the rule's lazy one.

    Weights in `done` have their updates already, which read `hyper` as these do.

    With `scaling` no update runs before all gradients have been checked, so they live until then; `scale`
    is the variable of the loss scale.
    """
    hyper = variable(HYPER) if hyper is None else hyper
    effects = []
    extra: list[Node] = [] if done else [hyper.node]
    rates = hyper
    if scaling is not None and gradients:
        assert scale is not None
        history = variable(HISTORY)
        attrs = parse_attrs(scaling.finite, {"num_args": len(gradients)})
        finite = Node(scaling.finite, attrs, tuple(g for _, g in gradients), "gradients_are_finite")
        attrs = parse_attrs(scaling.gate, scaling.attrs)
        gate = Node(scaling.gate, attrs, (Entry(finite), hyper, scale, history), "loss_scale_update")
        extra += [*(v.node for v in (scale, history) if v.node not in graph.nodes), finite, gate]
        effects.append(gate)
        rates = Entry(gate)
    for row, (weight, grad) in enumerate(gradients):
        if weight in done:
            continue
        dtype = graph.dtypes.get(weight, float32)
        op = rule.op_of(dtype)
        states = [variable(state_name(weight.node.name, s)) for s in rule.states_of(dtype)]
        extra += [s.node for s in states]
        if weight in rows and (lazy := rule.lazy_of(dtype)) is not None:
            op = lazy
            states.append(rows[weight])
        effects.append(
            Node(
                op,
                parse_attrs(op, {**rule.attrs, "row": row}),
                (weight, grad, *states, rates),
                f"{weight.node.name}_update",
            )
        )
    order = [*graph.nodes, *extra, *(n for n in effects if n not in extra)]
    return replace(graph, effects=(*graph.effects, *effects), order=tuple(order))
