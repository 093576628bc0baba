"""A dense layer applies the activation before it while it reads, where the step keeps what that is given.

    h -> gelu -> g -> FullyConnected                      h -> _loaded_dense
              g, d_out -> gradient in the weight          h, weight, d_out -> _loaded_dense_gradient
    weight, d_out -> d_g;  d_g, h -> gradient of gelu

The gradient of GELU, SiLU and the like reads h; of g no more is needed than the dense layer behind it reads,
forwards and for the gradient in its weight. Here g is never made, and neither is d_g: the gradient in h takes
the place of h. A rectifier, whose gradient needs but g, stays as it is.

g must have no other reader, and be no output. The gradient of the bias becomes a node of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ....graph import Entry, Graph, Node, Rewriter
from ....graph.attrs import attrs_by_name
from ....ops.nn.dense import FullyConnected
from ...base import Request
from ...fused.loaded_dense import loadable, LoadedAttrs, LoadedDense, LoadedDenseGradient
from ...rewrite import graph_pass, Stage, Step
from ..entries import inputs_by_name, output, request_of
from ..target import Target

_STAGE = "__mirror_stage__"


class _LoadedDenseMatch(NamedTuple):
    """An activation, the layer behind it, and the nodes that make their gradients.

    by_weight makes d_weight and perhaps d_bias, by_data d_data, slope the gradient in what `activation` is
    given.
    """

    activation: Node
    layer: Node
    by_weight: Node
    by_data: Node
    slope: Node


@graph_pass(Stage.STEP, after=("split_gradients", "narrow_gradients"))
def loaded_dense(step: Step, target: Target) -> Step:
    """Dense layers that apply functions. O(inputs)."""
    if not step.has_backward:
        return step
    graph = step.graph
    found = [m for m in _matches(step) if all(map(target.has_kernel, _requests(graph, m)))]
    if not found:
        return step
    place = {n: i for i, n in enumerate(graph.nodes)}
    first = {min(m.by_weight, m.by_data, key=place.__getitem__): m for m in found}
    of_layer = {m.layer: m for m in found}
    by_weight = {m.by_weight for m in found}
    gone = {n for m in found for n in (m.activation, m.by_weight, m.by_data, m.slope)}
    made = Rewriter(graph)
    for node in made.walk(step.num_forward):
        if node in first:
            made.order.append(new := _gradient(first[node], made))
            made.put(output(first[node].slope, "d_data"), output(new, "d_data"))
            made.put(output(first[node].by_weight, "d_weight"), output(new, "d_weight"))
        inputs = made.inputs(node)
        if node in by_weight:
            bias = [i for i, n in enumerate(node.output_names) if n == "d_bias"]
            if any(Entry(node, i) in step.read for i in bias):
                named = dict(zip(node.input_names, inputs))
                absent = node.absent | {"data"}
                made.order.append(new := replace(node, inputs=(named["d_out"],), absent=absent))
                made.node_of[node] = new
                for i in bias:
                    made.put(Entry(node, i), Entry(new, i))
        if node in gone:
            continue
        if node in of_layer:
            m = of_layer[node]
            ins = made.inputs(m.activation) + inputs[1:]
            made.replace(node, replace(node, op=LoadedDense, attrs=_attrs(m), inputs=ins))
        else:
            made.keep(node)
    return step.rewritten(made)


def _matches(step: Step) -> list[_LoadedDenseMatch]:
    """What can change, in the order of the activations."""
    graph, readers = step.graph, step.readers
    backward_of: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.forward is not None:
            backward_of.setdefault(node.forward, []).append(node)
    matches = []
    for node in graph.nodes:
        if not loadable(node.op, node.attrs) or node.forward is not None or _STAGE in node.annotations:
            continue
        made = Entry(node)
        found = readers.all(made)
        if made in step.shown or len(found) != 2 or graph.shapes[made] != graph.shapes[node.inputs[0]]:
            continue
        layer, by_weight = found
        if layer.op is not FullyConnected or layer.inputs.count(made) != 1 or layer.inputs[0] != made:
            continue
        parts = backward_of.get(layer, [])
        by_data = [n for n in parts if n is not by_weight]
        if by_weight not in parts or by_weight.absent != {"weight"} or len(by_data) != 1:
            continue
        if by_data[0].absent != {"data"}:
            continue
        named = [inputs_by_name(n) for n in (by_weight, by_data[0])]
        if named[0]["data"] != made or named[0]["d_out"] != named[1]["d_out"]:
            continue
        slope = readers.only(output(by_data[0], "d_data"))
        if slope is None or slope.forward is not node or slope.op is not node.op.grad_op:  # type: ignore[union-attr]
            continue
        if not readers.wants(output(by_weight, "d_weight")):
            continue
        matches.append(_LoadedDenseMatch(node, layer, by_weight, by_data[0], slope))
    return matches


def _attrs(m: _LoadedDenseMatch) -> LoadedAttrs:
    assert m.activation.op is not None
    return LoadedAttrs(**attrs_by_name(m.layer.attrs), function=m.activation.op, given=m.activation.attrs)


def _gradient(m: _LoadedDenseMatch, made: Rewriter) -> Node:
    """The node that makes the gradients in data and weight."""
    named = inputs_by_name(m.by_data)
    inputs = (named["d_out"], named["weight"], m.activation.inputs[0])
    name = f"{m.layer.name}_backward_data"
    return Node(LoadedDenseGradient, _attrs(m), made.all_of(inputs), name)


def _requests(graph: Graph, m: _LoadedDenseMatch) -> tuple[Request, Request]:
    """The questions for kernels."""
    data = m.activation.inputs[0]
    ins, attrs, shapes = (data, *m.layer.inputs[1:]), _attrs(m), graph.shapes
    named = inputs_by_name(m.by_data)
    back = (named["d_out"], named["weight"], data)
    return (
        request_of(graph, LoadedDense, attrs, ins, (shapes[Entry(m.layer)],)),
        request_of(graph, LoadedDenseGradient, attrs, back, (shapes[data], shapes[named["weight"]])),
    )
