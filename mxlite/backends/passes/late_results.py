"""What only the backward pass reads of a chain is made there, so that the rest can be kept without it.

    total, c0 -> chain -> gates, c, h                 total, c0 -> chain -> c, h
    ...                                               ...
    gates, c0, d_h -> gradient                        total, c0 -> chain -> gates
                                                      gates, c0, d_h -> gradient

A plan keeps all results of a node or runs it again. Of a cell of a recurrent network unrolled over time the
next step reads c and h, for which the gates would be kept at every step; and what crosses from one step to
the next, which a plan keeps so that others can run again, would be most of what there is.

The chain is computed twice then, of which each time does a part: a step that holds less from the outset and
takes longer, to plan with besides the other one. Both parts are of the same expression, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from math import inf

from ...graph import Entry, Node, Rewriter
from ..elementwise.fused import _fused_elementwise, FusedAttrs
from ..rewrite import graph_pass, Stage, Step
from .target import Target
from .ways import is_stage, Reads

LEAST_SHARE = 1 / 8
"""Of the bytes that backward reads of the forward pass, without which a step of another kind is of no use."""


def is_of_use(step: Step) -> bool:
    """Whether `late_results` would be made of a large part of what the forward pass keeps. O(inputs)."""
    graph, reads = step.graph, Reads(step)
    found = _late(reads, step.shown)
    total = sum(graph.nbytes(e) for e in reads.first if e.node in step.forward and e not in step.kept)
    return sum(graph.nbytes(Entry(n, i)) for n, of in found.items() for i in of) > LEAST_SHARE * total


@graph_pass(Stage.STEP_VARIANT, after=("divided",), instead="chains in two", pays=is_of_use)
def late_results(step: Step, target: Target) -> Step:
    """Chains in two. O(inputs)."""
    reads = Reads(step)
    found = _late(reads, step.shown)
    if not found:
        return step
    made = Rewriter(step.graph)

    def add(old: Node, new: Node, outputs: Sequence[int]) -> None:
        """`new` makes these outputs of `old`."""
        for i, k in enumerate(outputs):
            made.put(Entry(old, k), Entry(new, i))
        made.order.append(new)

    for node in made.walk(step.num_forward):
        if node in found:
            rest = [i for i in range(node.num_outputs) if i not in found[node]]
            first = replace(_part(node, made.inputs(node), rest), annotations=dict(node.annotations))
            made.node_of[node] = first
            add(node, first, rest)
            continue
        for source in dict.fromkeys(e.node for e in node.inputs if e.node in found and e not in made.moved):
            # Of forward results alone it could be made any time: it waits for another array of its reader.
            after = made.all_of([e for e in node.inputs if e.node in reads.backward][:1])
            late = replace(_part(source, made.inputs(source), found[source]), after=after)
            add(source, replace(late, name=f"{source.name}_late"), found[source])
        made.keep(node)
    return step.rewritten(made)


def _late(reads: Reads, shown: Set[Entry]) -> dict[Node, list[int]]:
    """Chains of the forward pass of which backward alone reads these outputs, and others more."""
    found: dict[Node, list[int]] = {}
    for node in reads.forward:
        if node.op is not _fused_elementwise or is_stage(node):
            continue
        outs = [Entry(node, i) for i in range(node.num_outputs)]
        late = [i for i, e in enumerate(outs) if e in reads.first and e not in reads.early and e not in shown]
        if not late or len(late) == len(outs):
            continue
        at = min(reads.first[outs[i]] for i in late)
        if all(reads.written.get(e, inf) >= at for e in node.inputs):
            found[node] = late
    return found


def _part(node: Node, inputs: Sequence[Entry], outputs: Sequence[int]) -> Node:
    """A chain that makes these of the outputs of `node`, of those of `inputs` that they need."""
    a: FusedAttrs = node.attrs
    expression, places = a.expression.only(outputs).of_needed_inputs()
    attrs = replace(
        a,
        expression=expression,
        views=tuple(a.views[i] for i in places),
        dtypes=tuple(a.dtypes[i] for i in outputs),
    )
    return Node(_fused_elementwise, attrs, tuple(inputs[i] for i in places), node.name)
