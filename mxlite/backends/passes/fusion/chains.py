"""Fusion of consecutive elementwise operators into one node, which reads and writes memory once.

    conv -> bn -> add -> relu -> conv         conv -> bn -> [add, relu] -> conv
                  ^                     =>                  ^
              shortcut                                  shortcut

Groups contain nodes of one shape, on one side of the border between forward and backward, and with the same
annotations; `groups.py` says how they grow. What reduces joins them later (`reductions.py`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from ....graph import Node
from ...elementwise.formula import is_elementwise
from ...rewrite import graph_pass, Stage, Step
from ..target import Target
from .groups import fused, Group
from .members import MemberSearch


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
    search = _Chains(step, target)
    return fused(step, search.groups() if search.known else [], search.fused)


class _Chains(MemberSearch):
    """Groups of elementwise nodes of one shape."""

    def key(self, node: Node) -> Any:
        op = node.op
        if op is None or not is_elementwise(op) or not self._has_large_array(node):
            return None
        forward = node in self.forward
        if forward and not (op.recomputable and op.cheap):
            return None
        member = self.member(node)
        if member is None or not member.formula.is_chain:
            return None
        first, *_ = member.outputs
        shape = self.graph.shapes[first]
        if prod(shape) < self.least:
            return None
        return shape, forward, tuple(sorted(node.annotations.items()))

    def is_chain(self, group: Group) -> bool:
        return True

    def _has_large_array(self, node: Node) -> bool:
        """True if there is a large array: faster to check than how they broadcast."""
        forward = node.forward or node
        return any(prod(self.graph.shapes[e]) >= self.least for e in (*forward.inputs, *forward.outputs))
