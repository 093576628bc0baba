"""Planning problems of feature maps and their gradients only, for comparison with published tables.

Weights, their gradients, workspaces and states of optimizers are left out; each forward operator has one
backward operator, which reads the gradient of its output and the forward values that the derivative needs (a
convolution its input, a rectifier its output, pooling both). A sum has none: its inputs share the gradient of
its output. If a map is read twice, the second reader's backward accumulates into the gradient.

Seconds are max(flops / 10 T, bytes / 600 G); batch norm reads its input twice; backward of a convolution
takes twice as long as forward, of a norm 1.5 times, of others as long as forward.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mxlite as mx
from mxlite.backends.call import flops_of
from mxlite.graph import Entry, infer_shapes
from mxlite.memplan import Problem, Task, Value

FLOPS_PER_S, BYTES_PER_S = 10e12, 600e9
ALIASES = {"Flatten", "Reshape", "Dropout"}
WEIGHTED = {"Convolution", "Deconvolution", "FullyConnected"}
SUMS = {"elemwise_add", "ElementWiseSum"}
ACTIVATIONS = {"Activation", "LeakyReLU"}
READS = {"BatchNorm": "i", "Pooling": "io", "SoftmaxOutput": "o", "Concat": ""}
READS |= dict.fromkeys(WEIGHTED, "i") | dict.fromkeys(ACTIVATIONS, "o")
TIMES = {"BatchNorm": 1.5, **dict.fromkeys(WEIGHTED, 2.0)}  # backward / forward
PASSES = {"BatchNorm": 2}  # over the input


@dataclass
class _Layer:
    name: str
    op: str
    inputs: tuple[int, ...]  # values
    output: int
    seconds: float
    reads: set[int] = field(default_factory=set)
    backward_seconds: float = 0.0


def memonger_resnet(stages: Sequence[int], in_place: bool = True, batch: int = 32) -> Problem:
    """memonger's ResNet for 224x224 as in published tables: norm and rectifier are one operator, and the
    first pool is padded, so that the first stage has maps of 56x56.
    """
    symbol = json.loads(mx.models.resnet(version="memonger", stages=stages).tojson())
    for node in symbol["nodes"]:
        if node["name"] == "stem_pool":
            node["attrs"]["pad"] = "(1, 1)"
    net = mx.sym.load_json(json.dumps(symbol))
    return feature_maps(net, {"data": (batch, 3, 224, 224)}, joined="BatchNorm", in_place=in_place)


def feature_maps(
    symbol: Any, shapes: Mapping[str, tuple[int, ...]], *, joined: str = "", in_place: bool = True
) -> Problem:
    """Planning problem of a network for images that consists of the operators in this file's tables.

    joined: BatchNorm or Convolution, an operator that is fused with the activation after it.  in_place:
    whether activations, sums, backward of norms and accumulated gradients may overwrite an input.
    """
    values, layers = _forward(symbol, shapes, joined)
    tasks = []
    for layer in layers:
        free = in_place and (layer.op in SUMS or layer.op in ACTIVATIONS)
        pairs = tuple((layer.output, i) for i in layer.inputs) if free else ()
        cheap = layer.op not in WEIGHTED
        tasks.append(
            Task(
                layer.name, layer.op, layer.inputs, (layer.output,), pairs, seconds=layer.seconds, cheap=cheap
            )
        )
    gradient: dict[int, int] = {}
    for layer in reversed(layers):
        tasks += _backward(layer, values, gradient, in_place)
    return Problem(tuple(tasks), tuple(values), len(layers))


def _forward(
    symbol: Any, shapes: Mapping[str, tuple[int, ...]], joined: str
) -> tuple[list[Value], list[_Layer]]:
    graph = infer_shapes(symbol.graph, dict(shapes))
    values, layers = [Value("data", 0, True)], []
    number: dict[Any, int] = {}  # node of an entry -> value
    made: dict[int, _Layer] = {}
    readers: dict[Any, int] = {}
    for node in graph.nodes:
        for entry in node.inputs:
            readers[entry] = readers.get(entry, 0) + 1
    for node in graph.nodes:
        if node.op is None:
            if node.name in shapes:
                number[node] = 0
            continue
        maps = tuple(number[e.node] for e in node.inputs if e.node in number)
        op = node.op.op_name
        if op in ALIASES:
            number[node] = maps[0]
            continue
        ins = [graph.shapes[e] for e in node.inputs]
        outs = [graph.shapes[Entry(node, i)] for i in range(node.num_outputs)]
        nbytes = _bytes(outs[0])
        passes = PASSES.get(op, 1)
        moved = nbytes + passes * sum(_bytes(graph.shapes[e]) for e in node.inputs if e.node in number)
        flops = flops_of(node.op, node.attrs, (tuple(ins), tuple(outs))) if op in WEIGHTED else 0
        seconds = max(flops / FLOPS_PER_S, moved / BYTES_PER_S)
        if op in ACTIVATIONS and maps[0] in made and made[maps[0]].op == joined:
            # Fused with the preceding operator: the same output, which backward reads, too.
            before = made[maps[0]]
            before.reads.add(before.output)
            number[node] = before.output
            continue
        values.append(Value(node.name, nbytes))
        layer = _Layer(node.name, op, maps, len(values) - 1, seconds)
        reads = "" if op in SUMS else READS[op]
        layer.reads |= {*maps} if "i" in reads else set()
        layer.reads |= {layer.output} if "o" in reads else set()
        layer.backward_seconds = seconds * TIMES.get(op, 1.0)
        layers.append(layer)
        made[layer.output] = layer
        number[node] = layer.output
    return values, layers


def _backward(layer: _Layer, values: list[Value], gradient: dict[int, int], in_place: bool) -> list[Task]:
    own = gradient.get(layer.output, -1)
    targets = [i for i in dict.fromkeys(layer.inputs) if i]
    if layer.op in SUMS:
        tasks = []
        for i in targets:
            if i in gradient:
                tasks.append(_added(values, gradient, i, own, in_place))
            else:
                gradient[i] = own
        return tasks
    reads, outputs, pairs = [own] if own >= 0 else [], [], []
    for i in targets:
        values.append(Value(f"d_{values[i].name}", values[i].nbytes))
        d = len(values) - 1
        if i in gradient:
            reads.append(gradient[i])
            pairs.append((d, gradient[i]))
        elif own >= 0 and layer.op not in WEIGHTED:
            pairs.append((d, own))
        gradient[i] = d
        outputs.append(d)
    inputs = tuple(dict.fromkeys([*reads, *sorted(layer.reads)]))
    name = f"{layer.name}_backward"
    return [
        Task(
            name, layer.op, inputs, tuple(outputs), tuple(pairs) if in_place else (),
            seconds=layer.backward_seconds, recomputable=False,
        )
    ]  # fmt: skip


def _added(values: list[Value], gradient: dict[int, int], i: int, own: int, in_place: bool) -> Task:
    """A sum of two gradients as a separate task."""
    before = gradient[i]
    values.append(Value(f"d_{values[i].name}_sum", values[i].nbytes))
    gradient[i] = d = len(values) - 1
    seconds = 3 * values[i].nbytes / BYTES_PER_S
    pairs = ((d, before), (d, own)) if in_place else ()
    return Task(
        f"{values[i].name}_add", "add", (before, own), (d,), pairs, seconds=seconds, recomputable=False
    )


def _bytes(shape: tuple[int, ...]) -> int:
    result = 4
    for n in shape:
        result *= n
    return result
