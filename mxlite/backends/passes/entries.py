"""Entries of a graph by name, requests for kernels that read them, and marks that keep nodes apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph import Entry, Graph, Node, Op, Rewriter
from ...graph.opdef import Shapes
from ..base import Request

_MIRROR, _STAGE = "__force_mirroring__", "__mirror_stage__"


def output(node: Node, name: str) -> Entry:
    """The output of that name."""
    return Entry(node, node.output_names.index(name))


def request_of(
    graph: Graph | Rewriter,
    op: type[Op],
    attrs: Any,
    inputs: Sequence[Entry],
    outputs: Shapes = (),
    used: frozenset[str] | None = None,
    train: bool = True,
) -> Request:
    """The request for a kernel that reads arrays like `inputs`; see `Request`."""
    dtypes = tuple(graph.dtypes[e] for e in inputs)
    shapes = tuple(graph.shapes[e] for e in inputs)
    return Request(op, attrs, shapes, outputs, dtypes[0], dtypes, used, train)


def request_of_node(
    made: Rewriter, node: Node, used: frozenset[str] | None = None, train: bool = True
) -> Request:
    """The request for a kernel of a node whose shapes `made` knows."""
    assert node.op is not None
    outputs = tuple(made.shapes[e] for e in node.outputs)
    return request_of(made, node.op, node.attrs, node.inputs, outputs, used, train)


def agree(inner: Node, end: Node) -> bool:
    """True if the annotations of both nodes allow to fuse `inner` into `end`."""
    here, there = inner.annotations, end.annotations
    return here.get(_MIRROR) == there.get(_MIRROR) and here.get(_STAGE) in (None, there.get(_STAGE))
