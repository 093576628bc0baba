"""Fusion of consecutive elementwise operators into one node, which reads and writes memory once.

    conv -> bn -> add -> relu -> conv         conv -> bn -> [add, relu] -> conv
                  ^                     =>                  ^
              shortcut                                  shortcut

Groups contain nodes of one shape, on one side of the border between forward and backward, and with the same
annotations; `groups.py` says how they grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

from ....graph import Entry, Node
from ....graph.ir import Shape
from ....te.expression import ExpressionValue, Writer
from ...elementwise.formula import is_elementwise, view_of, write
from ...elementwise.program import program
from ...fused.elementwise import FusedAttrs, FusedElementwise, FusedElementwiseGradient
from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .groups import Fused, fused, Group, GroupSearch, outputs_of, readers_of, request_of

LEAST = 1024  # elements; below, calls cost more than memory


@graph_pass(
    Stage.STEP,
    after=(
        "inline_gradient_casts",
        "epilogue",
        "gradient_updates",
        "sample_tiles",
        "accumulate_gradients",
        "inline_remat",
    ),
)
def chains(step: Step, target: Target) -> Step:
    """Chains of elementwise operators as one, where code can be generated for them. O(nodes)."""
    known = target.storable()
    groups = _Chains(step, known).groups() if known else []
    return fused(step, groups, partial(_fused, step, readers_of(step, groups))) if groups else step


class _Chains(GroupSearch):
    """Groups of elementwise nodes of one shape."""

    def __init__(self, step: Step, known: frozenset[str]) -> None:
        """`known` are the dtypes that the backend's code can load and store."""
        super().__init__(step)
        self.known = known

    def key(self, node: Node) -> Any:
        if node.op is None or not is_elementwise(node.op) or not self._is_large(node):
            return None
        request = request_of(self.graph, node, self.wanted(node))
        p = None if request is None else program(request, self.known)
        if p is None or prod(p.shape) < LEAST:
            return None
        forward = node in self.forward
        if forward and not (node.op.recomputable and node.op.cheap):
            return None
        return p.shape, forward, tuple(sorted(node.annotations.items()))

    def _is_large(self, node: Node) -> bool:
        """True if there is an array of LEAST elements: faster to check than how they broadcast."""
        forward = node.forward or node
        made = forward.outputs
        return any(prod(self.graph.shapes[e]) >= LEAST for e in (*forward.inputs, *made))


def _fused(step: Step, read: Mapping[Entry, set[Group | None]], group: Group) -> Fused:
    """The node that replaces a group, and the index of its output for each entry."""
    graph, shape = step.graph, group.key[0]
    w = Writer()
    values: dict[Entry, ExpressionValue] = {}  # results of members
    inputs: dict[tuple[Entry, Shape], ExpressionValue] = {}  # their inputs, under each shape in use
    for node in group.members:
        assert node.op is not None
        ignored = node.op.shape_only_names(node.attrs)
        given: dict[str, ExpressionValue] = {}
        for name, e in zip(node.input_names, node.inputs):
            if name in ignored:
                continue
            if e in values:
                given[name] = values[e]
                continue
            place = (e, view_of(node.op, node.attrs, name, graph.shapes[e], shape))
            if place not in inputs:
                inputs[place] = w.input()
            given[name] = inputs[place]
        forward = node.forward or node
        made = write(w, node.op, node.attrs, given, graph.dtypes[forward.inputs[0]])
        assert made is not None
        for i, name in enumerate(node.output_names):
            if name in made:
                values[Entry(node, i)] = made[name]
    outputs, index = outputs_of(step, group, {e: x.number for e, x in values.items()}, read)
    expression, constants = w.expression([values[e] for e in outputs])
    attrs = FusedAttrs(
        expression, constants, tuple(v for _, v in inputs), shape, tuple(graph.dtypes[e] for e in outputs)
    )
    op = FusedElementwise if group.key[1] else FusedElementwiseGradient
    return group.node(op, attrs, tuple(e for e, _ in inputs)), index
