"""mx.autograd: gradients of imperative code (`ndarray/gradients/`), and recorded code as a Symbol."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..core import MXLiteError
from ..graph import attr_text, Entry, Graph, Node
from ..ndarray.gradients.autograd import (
    backward as backward,
    checkpoint as checkpoint,
    Function as Function,
    grad as grad,
    is_recording as is_recording,
    is_training as is_training,
    mark_variables as mark_variables,
    pause as pause,
    predict_mode as predict_mode,
    record as record,
    recorded_graph,
    set_recording as set_recording,
    set_training as set_training,
    train_mode as train_mode,
)
from ..ops import TABLE
from ..ops.control.custom import Custom
from .symbol import Symbol


def get_symbol(x: Any) -> Symbol:
    """The recorded computation of `x` as a symbol; arrays that were not recorded are its variables.

    Raises StateError for an array that is not on the tape, MXLiteError if a Python function or a gradient is
    part of the graph, which no symbol can hold.
    """
    graph = recorded_graph(x)
    fresh: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple(Entry(fresh[e.node], e.index) for e in node.inputs)
        known = node.op is None or TABLE.get(node.op.op_name) is node.op or issubclass(node.op, Custom)
        if not known:
            assert node.op is not None
            raise MXLiteError(f"{node.op.op_name} {node.name!r} has no symbol.")
        fresh[node] = Node(node.op, node.attrs, inputs, node.name, _given(node))
    return Symbol(Graph(tuple(Entry(fresh[e.node], e.index) for e in graph.outputs)))


def _given(node: Node) -> dict[str, str]:
    """The parameters that are not at their defaults, as text."""
    if node.op is None:
        return {}
    return {
        f.name: attr_text(value)
        for f in dataclasses.fields(node.op.Attrs)
        if (value := getattr(node.attrs, f.name)) != f.default
    }


__all__ = [
    "Function", "backward", "checkpoint", "get_symbol", "grad", "is_recording", "is_training",
    "mark_variables", "pause", "predict_mode", "record", "set_recording", "set_training", "train_mode",
]  # fmt: skip
