"""`export_model`: a symbol and its parameters become an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .... import ndarray as nd
from ....core import ArgumentError
from ....core.disk.files import opened
from ....graph import Entry, infer_shapes, infer_types, Shape
from ....graph.ir import output_name
from ....symbol import load, Symbol
from ...building.errors import NotSupportedError
from ...params import load_params
from ..dtypes import NUMBER
from ..package import onnx_package
from .exported_node import ExportedNode
from .model_writer import ModelWriter
from .writers import WRITERS

OPSET = 17
"""The opset of files that are written: the first with layer normalization."""


def export_model(
    sym: Any,
    params: Any,
    in_shapes: Any = None,
    in_types: Any = np.float32,
    onnx_file_path: Any = "model.onnx",
    verbose: bool = False,
    *,
    input_shape: Any = None,
    input_type: Any = None,
) -> str:
    """Write a network for inference as an ONNX file of opset 17, and return the file's path.

    sym: a Symbol or its JSON file.  params: arrays by name, with or without "arg:" and "aux:", several such
    dicts in a list, or a .params file.  in_shapes: one shape for each input that is no parameter, in their
    order, or by name.  in_types: their types, one for all or one each.  verbose: prints what is written.
    input_shape, input_type: the older names of `in_shapes` and `in_types`.  Needs the package onnx.

    Shapes in the file are fixed. Losses become what they compute in inference, and their labels no inputs;
    dropout is left out, batch normalization uses its moving averages.

    Raises NotSupportedError that lists all operators without a form in ONNX, ArgumentError for shapes or
    types that do not fit the inputs.
    """
    network = sym if isinstance(sym, Symbol) else load(sym)
    arrays = _arrays(params)
    shapes = in_shapes if in_shapes is not None else input_shape
    model = _model(network, arrays, shapes, in_types if input_type is None else input_type)
    onnx_package().checker.check_model(model)
    path = os.fspath(onnx_file_path)
    with opened(path, "wb") as file:
        file.write(model.SerializeToString())
    if verbose:
        print(f"{path}: {len(model.graph.node)} nodes, {len(model.graph.initializer)} arrays")
    return path


def _arrays(params: Any) -> dict[str, np.ndarray]:
    """Arrays by their names in the symbol."""
    if isinstance(params, (str, os.PathLike)):
        params = load_params(params)
    parts = [params] if isinstance(params, Mapping) else list(params)
    named = {name.removeprefix("arg:").removeprefix("aux:"): a for part in parts for name, a in part.items()}
    return {n: a.asnumpy() if isinstance(a, nd.NDArray) else np.asarray(a) for n, a in named.items()}


def _model(network: Symbol, arrays: Mapping[str, np.ndarray], shapes: Any, types: Any) -> Any:
    """The ModelProto."""
    graph = network.graph
    missing = sorted({n.op.op_name for n in graph.nodes if n.op is not None} - set(WRITERS))
    if missing:
        raise NotSupportedError(f"These operators have no form in ONNX here: {', '.join(missing)}")
    labels = _labels(network)
    data = [n.name for n in graph.variables if n.name not in arrays and n.name not in labels]
    known = _by_name(data, shapes, "in_shapes")
    kinds = {n: np.dtype(t) for n, t in _by_name(data, types, "in_types").items()}
    stored = {n.name: arrays[n.name] for n in graph.variables if n.name in arrays}
    inferred = infer_shapes(graph, {**known, **{n: a.shape for n, a in stored.items()}}).shapes
    dtypes = infer_types(graph, {**kinds, **{n: a.dtype for n, a in stored.items()}}, np.float32).dtypes

    writer, names = ModelWriter(), {}
    for node in graph.variables:
        is_stored = node.name in stored
        names[Entry(node)] = (
            writer.array(node.name, stored[node.name]) if is_stored else writer.unique(node.name)
        )
    for node in graph.nodes:
        if node.op is None:
            continue
        writer.label = node.name
        exported = ExportedNode(writer, node, [names[e] for e in node.inputs], inferred, dtypes)
        made = WRITERS[exported.op_name](exported)
        for place, name in enumerate([made] if isinstance(made, str) else made):
            names[Entry(node, place)] = name
    return _assembled(network, writer, names, data, inferred, dtypes)


def _assembled(
    network: Symbol,
    writer: ModelWriter,
    names: Mapping[Entry, str],
    data: Sequence[str],
    shapes: Mapping[Entry, Shape],
    dtypes: Mapping[Entry, Any],
) -> Any:
    """The ModelProto of nodes whose outputs are the network's, under its names for them."""
    helper = onnx_package().helper
    outputs = []
    for entry in network.entries:
        name = writer.unique(output_name(entry))
        writer.nodes.append(helper.make_node("Identity", [names[entry]], [name], name))
        outputs.append(helper.make_tensor_value_info(name, NUMBER[np.dtype(dtypes[entry])], shapes[entry]))
    read = {name for node in writer.nodes for name in node.input}
    inputs = [
        helper.make_tensor_value_info(n.name, NUMBER[np.dtype(dtypes[Entry(n)])], shapes[Entry(n)])
        for n in network.graph.variables
        if n.name in data and n.name in read
    ]
    store = onnx_package().numpy_helper.from_array
    stored = [store(np.ascontiguousarray(a), name) for name, a in writer.arrays.items() if name in read]
    graph = helper.make_graph(writer.nodes, "network", inputs, outputs, stored)
    return helper.make_model(
        graph, producer_name="mxlite", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
    )


def _labels(network: Symbol) -> set[str]:
    """Variables that only losses read, as their labels."""
    read: dict[str, bool] = {}
    for node in network.graph.nodes:
        for place, entry in enumerate(node.inputs):
            if entry.node.op is None:
                is_label = node.op is not None and node.op.is_loss and place > 0
                read[entry.node.name] = read.get(entry.node.name, True) and is_label
    return {name for name, is_label in read.items() if is_label}


def _by_name(names: Sequence[str], given: Any, what: str) -> dict[str, Any]:
    """What is given for each input, by its name."""
    if isinstance(given, Mapping):
        values = dict(given)
    elif what == "in_types" and not isinstance(given, (list, tuple)):
        values = dict.fromkeys(names, given)
    else:
        several = list(given or ())
        if what == "in_shapes" and several and not isinstance(several[0], (list, tuple)):
            several = [tuple(several)]
        if len(several) != len(names):
            raise ArgumentError(f"{what} must have one for each of {list(names)}, got {len(several)}.")
        values = dict(zip(names, several))
    if missing := [n for n in names if n not in values]:
        raise ArgumentError(f"{what} has nothing for {missing}.")
    return {n: tuple(v) if what == "in_shapes" else v for n, v in values.items()}
