"""`import_model`: an ONNX file becomes a symbol and its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...core import FormatError
from ...core.errors import nearest, UnknownNameError
from ...graph import Shape
from ...symbol import Group, Symbol
from .errors import Declared, OpenShapeError
from .graph_reader import declared_shape, GraphReader, input_shape, Scope
from .model import open_model

Imported = tuple[Symbol, dict[str, nd.NDArray], dict[str, nd.NDArray]]


def import_model(model_file: Any, shapes: Mapping[str, Shape] | None = None) -> Imported:
    """The symbol, arguments and auxiliary states of an ONNX model.

    model_file: a path, the file's bytes, or a ModelProto.  shapes: of inputs whose lengths the model leaves
    open, by name; for these shapes it is imported.  Needs the package onnx (`pip install 'mxlite[onnx]'`).

    Floating initializers with axes become arguments under their own names, means and variances of batch
    normalization auxiliary states; constants become arguments whose learning rate is multiplied by 0.

    Raises FormatError for a broken file, OpenShapeError if a shape has to be given, NotSupportedError for
    parts that mxlite cannot run.
    """
    proto, folder = open_model(model_file)
    symbol, arrays = build(proto, folder, shapes or {}, {})
    states = set(symbol.list_auxiliary_states())
    named = {n: nd.array(arrays[n], dtype=arrays[n].dtype) for n in symbol.list_inputs() if n in arrays}
    return (
        symbol,
        {n: a for n, a in named.items() if n not in states},
        {n: a for n, a in named.items() if n in states},
    )


def build(
    model: Any, folder: str | None, shapes: Mapping[str, Shape], known: Mapping[str, np.ndarray]
) -> tuple[Symbol, dict[str, np.ndarray]]:
    """The model's symbol and the arrays of its variables.

    `known` are inputs whose numbers may be used where an operator's shape depends on them; they stay inputs.
    """
    reader = GraphReader(model, folder)
    graph = model.graph
    scope: Scope = {}
    reader.initializers(graph, scope, top=True)
    stored = set(scope)
    inputs = [i for i in graph.input if i.name not in stored]
    names = dict.fromkeys(i.name for i in inputs)
    for name in shapes:
        if name not in names:
            raise UnknownNameError(
                f"The model has no input {name!r}; it has {list(names)}.{nearest(name, names)}"
            )
    if unknown := {n: d for n, d in _open(inputs).items() if n not in shapes}:
        raise OpenShapeError(unknown)
    for info in inputs:
        shape, dtype = input_shape(info, shapes.get(info.name))
        array = known.get(info.name)
        if array is not None and (array.dtype != dtype or array.shape != shape):
            raise FormatError(
                f"input {info.name!r} is {dtype}{list(shape)}, got {array.dtype}{list(array.shape)}."
            )
        value = reader.builder.variable(info.name, shape, dtype)
        if array is not None and value.entry is not None:
            reader.builder.arrays[value.entry.node.name] = array
        scope[info.name] = value
    reader.nodes(graph.node, scope)
    outputs = [reader.builder.output(reader.named(scope, o.name), o.name) for o in graph.output]
    if not outputs:
        raise FormatError("The model has no outputs.")
    return Group(outputs), reader.builder.arrays


def _open(inputs: Iterable[Any]) -> dict[str, Declared]:
    """The inputs of which some or all lengths are open."""
    tensors = [i for i in inputs if i.type.WhichOneof("value") == "tensor_type"]
    declared = {i.name: declared_shape(i) for i in tensors}
    return {n: d for n, d in declared.items() if d is None or any(isinstance(length, str) for length in d)}
