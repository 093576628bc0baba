"""Metrics as part of a training step: a batch's contribution is computed with its predictions.

    forward ... -> output 0 -+-> backward ...
                             +-> _metric_hits(sums, taken, label, output 0)

The sums lie outside the arena; see `ops/reduce/metric_sums.py` for their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...backends import Backend
from ...backends.base import Request
from ...graph import Entry, Node, Op, variable
from .step import Key, PlannedStep


@dataclass(frozen=True)
class Counted:
    """`op` with `attrs`, of the family of `metric_sums.py`, on an output and perhaps an argument."""

    op: type[Op]
    attrs: Any
    output: int
    label: str | None = None


def sums_key(number: int) -> Key:
    """The storage of a metric's sums."""
    return ("var", f"_metric{number}_sums")


def taken_key(number: int) -> Key:
    """The storage of the flag that says if the last batch counts."""
    return ("var", f"_metric{number}_taken")


def with_metrics(step: PlannedStep, metrics: Sequence[Counted], backend: Backend) -> PlannedStep:
    """`step` with these metrics' sums over its batch. O(nodes).

    To the planner that is an update, which runs as soon as it can after the forward pass.

    Metrics without a kernel in the backend, or whose arrays do not match, are left out.
    """
    graph = step.graph
    arguments = {n.name: Entry(n) for n in graph.variables}
    nodes: list[Node] = []
    shapes, dtypes = dict(graph.shapes), dict(graph.dtypes)
    owned, category = dict(step.owned), dict(step.category)
    for number, m in enumerate(metrics):
        if (m.label is not None and m.label not in arguments) or m.output >= len(graph.outputs):
            continue
        arrays = [*([] if m.label is None else [arguments[m.label]]), graph.outputs[m.output]]
        given = tuple(shapes[e] for e in arrays)
        if not m.op.suits(m.attrs, *given):  # type: ignore[attr-defined]  # one of the family
            continue
        inputs = m.op.infer_shape(m.attrs, None, None, *given)[0]
        kinds: Any = m.op.infer_type(m.attrs, None, None, *(dtypes[e] for e in arrays))[0]
        request = Request(m.op, m.attrs, inputs, (), kinds[0], kinds, None, True)
        if all(row(request) is None for row in backend.kernels.get(m.op, ())):
            continue
        sums, taken = variable(sums_key(number)[1]), variable(taken_key(number)[1])
        node = Node(m.op, m.attrs, (sums, taken, *arrays), f"_metric{number}")
        for e, key, s, d in zip((sums, taken), (sums_key(number), taken_key(number)), inputs, kinds):
            shapes[e], dtypes[e] = s, d
            owned[key], category[key] = (s, d), "metrics"
        nodes += [sums.node, taken.node, node]
    if not nodes:
        return step
    made = tuple(n for n in nodes if n.op is not None)
    graph = replace(
        graph,
        effects=(*graph.effects, *made),
        order=(*graph.nodes, *nodes),
        shapes=shapes,
        dtypes=dtypes,
    )
    return replace(step, graph=graph, owned=owned, category=category)
