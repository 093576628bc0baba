"""A norm as two nodes: its statistics, and its result made from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...graph import Node, Rewriter
from ...graph.attrs import attrs_from
from ...ops.norm.norm import BatchNorm
from ...ops.norm.norm_statistics import NormStatistics
from ..base import Request
from ..rewrite import Step
from .entries import output, request_of


def statistics_of(norm: Node) -> Node:
    """The node that computes the statistics of `norm`, a norm or one that is fused with what follows."""
    attrs = attrs_from(BatchNorm.Attrs, norm.attrs)
    return Node(NormStatistics, attrs, norm.inputs[:5], f"{norm.name}_statistics")


def statistics_request(step: Step, norm: Node) -> Request:
    """The request for a kernel that computes the outputs of `norm` that are read, besides the result."""
    new, channel = statistics_of(norm), step.graph.shapes[output(norm, "mean")]
    read = (n for n in ("factor", "shift") if n in norm.output_names and step.readers.wants(output(norm, n)))
    used = frozenset((*new.input_names, "mean", "var", *read))
    outputs = (channel,) * len(new.output_names)
    return request_of(step.graph, NormStatistics, new.attrs, new.inputs, outputs, used)


def split(made: Rewriter, norm: Node, result: Callable[[Node, Node], Node]) -> None:
    """Add the statistics of `norm`, and its result, which `result` makes of the norm and its statistics."""
    now = replace(norm, inputs=made.inputs(norm))
    first = statistics_of(now)
    new = made.node_of[norm] = replace(result(now, first), name=norm.name, annotations=norm.annotations)
    made.order += [first, new]
    for name in first.output_names:  # the norm may lack two of them
        made.put(output(norm, "mean"), output(first, name))
    for name in norm.output_names:
        made.put(output(norm, name), output(first if name in first.output_names else new, name))
