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
from ..building.losses import with_loss
from ..building.types import RUNS
from ..building.value import GraphValue
from .errors import Declared, OpenShapeError
from .graph_reader import declared_shape, GraphReader, input_shape, Scope
from .model import open_model
from .node import Value
from .sequence import SequenceValue

Imported = tuple[Symbol, dict[str, nd.NDArray], dict[str, nd.NDArray]]


Known = np.ndarray | list[np.ndarray] | None
"""The value of an input: an array, those of a sequence, or nothing for an optional one."""


def import_model(
    model_file: Any, shapes: Mapping[str, Shape] | None = None, loss: str | None = None
) -> Imported:
    """The symbol, arguments and auxiliary states of an ONNX model.

    model_file: a path, the file's bytes, or a ModelProto.  shapes: of inputs whose lengths the model leaves
    open, by name; for these shapes it is imported.  loss: "softmax" or "mse", put on the model's output, with
    a variable "softmax_label" or "mse_label" for what is wanted.  Needs the package onnx
    (`pip install 'mxlite[onnx]'`).

    Floating initializers with axes become arguments under their own names, means and variances of batch
    normalization auxiliary states; constants become arguments whose learning rate is multiplied by 0. A file
    does not tell a buffer, such as a mask, from a parameter: name it in a Module's `fixed_param_names`.

    The network is that of training: batch normalization and dropout ask at run time whether it trains, in a
    model exported for inference as in one exported for training. (Other runtimes drop at inference too where
    the file says training_mode.) An output without axes is a loss: `backward` needs no gradient for it.

    Raises FormatError for a broken file, OpenShapeError if a shape has to be given, NotSupportedError for
    parts that mxlite cannot run.
    """
    proto, folder = open_model(model_file)
    reader, outputs = read(proto, folder, shapes or {}, {})
    symbol = Group([s for name, value in outputs for s in symbols_of(reader, name, value)])
    if loss is not None:
        symbol = with_loss(symbol, loss, shapes)
    arrays = reader.builder.arrays
    states = set(symbol.list_auxiliary_states())
    named = {n: nd.array(arrays[n], dtype=arrays[n].dtype) for n in symbol.list_inputs() if n in arrays}
    return (
        symbol,
        {n: a for n, a in named.items() if n not in states},
        {n: a for n, a in named.items() if n in states},
    )


def read(
    model: Any,
    folder: str | None,
    shapes: Mapping[str, Shape],
    known: Mapping[str, Known],
    as_written: bool = False,
) -> tuple[GraphReader, list[tuple[str, Value]]]:
    """The reader of a model, and its outputs.

    `known` are inputs whose numbers may be used where an operator's shape depends on them; they stay inputs.
    """
    reader = GraphReader(model, folder, as_written)
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
        scope[info.name] = _input(reader, info, shapes.get(info.name), known)
    reader.nodes(graph.node, [o.name for o in graph.output], scope)
    outputs = [(o.name, reader.named(scope, o.name)) for o in graph.output]
    if not outputs:
        raise FormatError("The model has no outputs.")
    return reader, outputs


def symbols_of(reader: GraphReader, name: str, value: Value) -> list[Symbol]:
    """The outputs of the symbol for one of the model: several for a sequence."""
    if isinstance(value, SequenceValue):
        return [reader.builder.output(v, f"{name}_{i}") for i, v in enumerate(value.elements)]
    return [reader.builder.result(value, name)]


def _input(reader: GraphReader, info: Any, given: Shape | None, known: Mapping[str, Known]) -> Value | None:
    """The value of an input: a variable, or the variables of a sequence whose elements are known."""
    if info.name in known and info.type.WhichOneof("value") != "tensor_type":
        parts = known[info.name]
        if parts is None:
            return None
        if isinstance(parts, list):
            return SequenceValue(tuple(_variable(reader, f"{info.name}_{i}", p) for i, p in enumerate(parts)))
        return _variable(reader, info.name, parts)
    shape, dtype = input_shape(info, given)
    array = known.get(info.name)
    if array is None:
        return reader.builder.variable(info.name, shape, dtype)
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else "a sequence"
        raise FormatError(f"input {info.name!r} is {dtype}{list(shape)}, got {found}.")
    return _variable(reader, info.name, array)


def _variable(reader: GraphReader, name: str, array: np.ndarray) -> GraphValue:
    """An input whose numbers are known; a constant if its type is one that no operator takes."""
    b = reader.builder
    if array.dtype not in RUNS:
        return b.constant(array)
    value = b.variable(name, array.shape, array.dtype)
    assert value.entry is not None
    b.arrays[value.entry.node.name] = array
    return value


def _open(inputs: Iterable[Any]) -> dict[str, Declared]:
    """The inputs of which some or all lengths are open."""
    tensors = [i for i in inputs if i.type.WhichOneof("value") == "tensor_type"]
    declared = {i.name: declared_shape(i) for i in tensors}
    return {n: d for n, d in declared.items() if d is None or any(isinstance(length, str) for length in d)}
