"""Previews of outputs that a step computes late, for a forward pass that is called by itself.

A backend may move the computation of an output to after the forward pass, together with a weight update (see
`backends/passes/tiling/cross_entropy_updates.py`). Then a whole step writes its outputs there. Forward alone
must show them as well, and change nothing: it runs **previews**, which compute the same and are left out of a
whole step.

    forward, then the rest     body, preview -> outputs     loss, update -> outputs, ...
    a whole step               body,                        loss, update -> outputs, ...

Both write to the arrays of the outputs, the same numbers. Previews are planned like everything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...backends import rewrite
from ...backends.rewrite import Rewrite, told
from ...graph import Entry, Node
from .step import PlannedStep

PREVIEWS = "previews"
"""The name of this rewrite."""


def makes_late(passes: Iterable[str]) -> bool:
    """True if one of `passes` moves outputs to after the forward pass; else there are no previews."""
    return "cross_entropy_updates" in passes


def with_previews(step: PlannedStep) -> PlannedStep:
    """`step` with a preview of each output that is computed after the forward pass. O(inputs)."""
    graph, count = step.graph, step.num_forward
    operators = [n for n in graph.nodes if n.op is not None]
    late = operators[count:]
    wanted = {e.node for e, key in step.storage.items() if key[0] == "out"}.intersection(late)
    if not wanted:
        return step
    previews: list[tuple[Node, Node]] = []
    for node in reversed(late):
        if node in wanted:
            assert node.op is not None
            previews.append((node, node.op.preview(node)))
            wanted |= {e.node for e in previews[-1][1].inputs}
    shapes, dtypes, storage = dict(graph.shapes), dict(graph.dtypes), dict(step.storage)
    shown: dict[Entry, Entry] = {}
    made: list[Node] = []
    for node, preview in reversed(previews):
        inputs = tuple(shown.get(e, e) for e in preview.inputs)
        made.append(replace(preview, inputs=inputs, name=f"{node.name}_preview"))
        for i in range(preview.num_outputs):
            was, e = Entry(node, i), Entry(made[-1], i)
            shown[was] = e
            shapes[e], dtypes[e] = shapes[was], dtypes[was]
            if was in storage:
                storage[e] = storage[was]
    variables = [n for n in graph.nodes if n.op is None]
    order = (*variables, *operators[:count], *made, *late)
    new = replace(graph, order=order, shapes=shapes, dtypes=dtypes)
    before = rewrite.Step.of(graph, shown, count, train=step.train)
    return replace(
        step,
        graph=told(Rewrite(PREVIEWS, before, before.became(new, shown, count + len(made)))).graph,
        storage=storage,
        num_forward=count + len(made),
        previews=frozenset(made),
    )
