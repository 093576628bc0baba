"""Code sinking for chains: outputs that only the backward pass reads are computed there.

    total, c0 -> chain -> gates, c, h                 total, c0 -> chain -> c, h
    ...                                               ...
    gates, c0, d_h -> gradient                        total, c0 -> chain -> gates
                                                      gates, c0, d_h -> gradient

A plan keeps all results of a node or recomputes the node. The next time step of an unrolled recurrent network
reads c and h of a cell, so that the gates would be kept at every time step; and most of all values would
cross from one time step to the next, where a plan keeps them so that others can be recomputed.

So the chain becomes two nodes, each of which computes a part of its outputs: a variant of the step that holds
less even without recomputation and takes longer, which the planner is offered beside the usual one. Both
parts are cut from the same computation, and so the bits are equal.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from math import inf

from ....graph import Entry, Node, Rewriter
from ...fused.computation import ComputationAttrs, FusedComputation
from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .remat_candidates import is_stage, Reads

LEAST_SHARE = 1 / 8
"""Least share of the forward bytes that backward reads which sinking must free for the variant to be
offered."""


def is_of_use(step: Step) -> bool:
    """True if `sink_results` would free a large part of what the forward pass keeps. O(inputs)."""
    graph, reads = step.graph, Reads(step)
    found = _late(reads, step.shown)
    total = sum(graph.nbytes(e) for e in reads.first if e.node in step.forward and e not in step.kept)
    return sum(graph.nbytes(Entry(n, i)) for n, of in found.items() for i in of) > LEAST_SHARE * total


@graph_pass(
    Stage.STEP_VARIANT,
    after=("split_norm_statistics",),
    anchors=(FusedComputation,),
    instead="chains in two",
    pays=is_of_use,
)
def sink_results(step: Step, target: Target) -> Step:
    """The step whose chains are sunk in part. O(inputs)."""
    reads = Reads(step)
    found = _late(reads, step.shown)
    if not found:
        return step
    made = Rewriter(step.graph)

    def add(old: Node, new: Node, outputs: Sequence[int]) -> None:
        """Replace these outputs of `old` by those of `new`."""
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
            # With only forward inputs it could run at any time: it is tied to another input of its reader.
            after = made.all_of([e for e in node.inputs if e.node in reads.backward][:1])
            late = replace(_part(source, made.inputs(source), found[source]), after=after)
            add(source, replace(late, name=f"{source.name}_late"), found[source])
        made.keep(node)
    return step.rewritten(made)


def _late(reads: Reads, shown: Set[Entry]) -> dict[Node, list[int]]:
    """Chains of the forward pass with the outputs that only backward reads, if they have others too."""
    found: dict[Node, list[int]] = {}
    for node in reads.forward:
        if node.op is not FusedComputation or node.attrs.reduces or is_stage(node):
            continue
        outs = node.outputs
        late = [i for i, e in enumerate(outs) if e in reads.first and e not in reads.early and e not in shown]
        if not late or len(late) == len(outs):
            continue
        at = min(reads.first[outs[i]] for i in late)
        if all(reads.written.get(e, inf) >= at for e in node.inputs):
            found[node] = late
    return found


def _part(node: Node, inputs: Sequence[Entry], outputs: Sequence[int]) -> Node:
    """A chain that computes these outputs of `node`, from those of `inputs` that they need."""
    a: ComputationAttrs = node.attrs
    attrs, places = a.part(outputs)
    return Node(FusedComputation, attrs, tuple(inputs[i] for i in places), node.name)
