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
from .free_axes import Axis, free_axes, Length, Lengths, lengths_of
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
    dynamic: bool = False,
    dynamic_input_shapes: Any = None,
    run_shape_inference: bool = False,
    input_type: Any = None,
    input_shape: Any = None,
) -> str:
    """Write a network for inference as an ONNX file of opset 17, and return the file's path.

    sym: a Symbol or its JSON file.  params: arrays by name, with or without "arg:" and "aux:", several such
    dicts in a list, or a .params file.  in_shapes: one shape for each input that is no parameter, in their
    order, or by name.  in_types: their types, one for all or one each.  verbose: prints what is written.
    dynamic: leaves axes of the inputs free.  dynamic_input_shapes: which ones, as in_shapes with a name or
    None in place of a number: ("batch", 3, 224, 224); axes of one name have one length. Without it all axes
    are free whose length the network does not fix; where inputs have equal lengths in the same axis, these
    are one length if they can be.  run_shape_inference: the file tells the shapes inside the network too, as
    far as onnx infers them.  input_type, input_shape: older names of `in_types` and `in_shapes`. Needs the
    package onnx.

    Losses become what they compute in inference, and their labels no inputs; dropout is left out, batch
    normalization uses its moving averages.

    Raises NotSupportedError that lists all operators without a form in ONNX, ArgumentError for shapes or
    types that do not fit the inputs, ShapeError for an axis that cannot be free, with the node that fixes it.
    """
    network = sym if isinstance(sym, Symbol) else load(sym)
    arrays = _arrays(params)
    shapes = in_shapes if in_shapes is not None else input_shape
    if dynamic_input_shapes is not None and not dynamic:
        raise ArgumentError("dynamic_input_shapes needs dynamic=True.")
    types = in_types if input_type is None else input_type
    model = _model(network, arrays, shapes, types, dynamic, dynamic_input_shapes)
    onnx_package().checker.check_model(model)
    if run_shape_inference:
        model = onnx_package().shape_inference.infer_shapes(model)
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


def _model(
    network: Symbol,
    arrays: Mapping[str, np.ndarray],
    shapes: Any,
    types: Any,
    dynamic: bool,
    dynamic_shapes: Any,
) -> Any:
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

    def infer(given: Mapping[str, Shape]) -> Mapping[Entry, Shape]:
        return infer_shapes(graph, {**given, **{n: a.shape for n, a in stored.items()}}).shapes

    free: dict[Axis, str] = {}
    if dynamic:
        wanted = dynamic_shapes and _by_name(data, dynamic_shapes, "dynamic_input_shapes")
        free = free_axes(known, wanted, infer)
    inferred = lengths_of(known, free, infer)
    dtypes = infer_types(graph, {**kinds, **{n: a.dtype for n, a in stored.items()}}, np.float32).dtypes

    writer, names = ModelWriter(), {}
    for node in graph.variables:
        is_stored = node.name in stored
        names[Entry(node)] = (
            writer.array(node.name, stored[node.name]) if is_stored else writer.unique(node.name)
        )
        if node.name in data:
            writer.data[names[Entry(node)]] = inferred[Entry(node)]
    for node in graph.nodes:
        if node.op is None:
            continue
        writer.label = node.name
        exported = ExportedNode(writer, node, [names[e] for e in node.inputs], inferred, dtypes)
        made = WRITERS[exported.op_name](exported)
        for place, name in enumerate([made] if isinstance(made, str) else made):
            names[Entry(node, place)] = name
    variables = {n.name: inferred[Entry(n)] for n in graph.variables}
    called = {variables[name][axis]: called for (name, axis), called in free.items()}
    return _assembled(network, writer, names, inferred, dtypes, called)


def _assembled(
    network: Symbol,
    writer: ModelWriter,
    names: Mapping[Entry, str],
    shapes: Mapping[Entry, Lengths],
    dtypes: Mapping[Entry, Any],
    called: Mapping[Length, str],
) -> Any:
    """The ModelProto of nodes whose outputs are the network's, under its names for them.

    called: the names of free lengths.
    """
    helper = onnx_package().helper

    def declared(name: str, entry: Entry) -> Any:
        shape = [d if isinstance(d, int) else called.get(d) for d in shapes[entry]]
        return helper.make_tensor_value_info(name, NUMBER[np.dtype(dtypes[entry])], shape)

    outputs = []
    for entry in network.entries:
        name = writer.unique(output_name(entry))
        writer.nodes.append(helper.make_node("Identity", [names[entry]], [name], name))
        outputs.append(declared(name, entry))
    read = {name for node in writer.nodes for name in node.input}
    inputs = [
        declared(n.name, Entry(n))
        for n in network.graph.variables
        if n.name in writer.data and n.name in read
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
        if what != "in_types" and several and not isinstance(several[0], (list, tuple)):
            several = [tuple(several)]
        if len(several) != len(names):
            raise ArgumentError(f"{what} must have one for each of {list(names)}, got {len(several)}.")
        values = dict(zip(names, several))
    if missing := [n for n in names if n not in values]:
        raise ArgumentError(f"{what} has nothing for {missing}.")
    return {n: v if what == "in_types" else tuple(v) for n, v in values.items()}
