"""Descriptions of a convolution for oneDNN: memory layouts and primitives."""

from __future__ import annotations

import ctypes
from typing import Any

from ....core.dtype import float32
from ....graph.ir import Shape
from ....graph.opdef import DType
from ....ops.nn.conv_kernels import Geometry
from ..onednn import Attr, cached, Memory, memory, memory_any, OneDNNError, Primitive
from ..onednn.constants import ADD, DIRECT, INFERENCE, MUL, RELU, TRAINING, WEIGHTS


def data_memory(g: Geometry) -> Memory:
    """The data's layout: channels last."""
    return _last((g.n, g.c, *g.size), g.dtype)


def out_memory(g: Geometry) -> Memory:
    """The output's layout: channels last."""
    return _last((g.n, g.f, *g.out), g.dtype)


def weight_memory(g: Geometry, dtype: DType) -> Memory:
    """The weight's layout in the user's order."""
    return memory(_weight_shape(g), dtype)


def vector_memory(g: Geometry, dtype: DType = float32) -> Memory:
    """The bias's layout."""
    return memory((g.f,), dtype)


def _last(shape: Shape, dtype: Any) -> Memory:
    return memory(shape, dtype, (0, *range(2, len(shape)), 1))


def _weight_shape(g: Geometry) -> Shape:
    if g.groups == 1:
        return (g.f, g.c, *g.kernel)
    return (g.groups, g.f // g.groups, g.c // g.groups, *g.kernel)


def window(g: Geometry) -> tuple[Any, ...]:
    """Strides, dilations (0 is none), padding at either end."""
    axes = ctypes.c_int64 * len(g.kernel)
    right = tuple(
        (o - 1) * s + d * (k - 1) + 1 - (i + p)
        for o, s, d, k, i, p in zip(g.out, g.stride, g.dilate, g.kernel, g.size, g.pad)
    )
    return axes(*g.stride), axes(*(d - 1 for d in g.dilate)), axes(*g.pad), axes(*right)


def _any(g: Geometry, dtype: DType) -> Memory:
    return memory_any(_weight_shape(g), dtype)


@cached
def forward_primitive(
    g: Geometry, bias: bool, add: bool, relu: bool, train: bool, scale: bool = False
) -> Primitive:
    """relu(convolution [factor] + bias + addend); factors, the bias after them and the addend are operands
    of the post-operations, in this order.
    """
    attr = _factors(g, bias) if scale else Attr()
    if add:
        attr.binary(ADD, out_memory(g))
    if relu:
        attr.eltwise(RELU)
    return _forward(g, bias and not scale, train, _any(g, g.dtype), attr)


def forward_over_primitive(
    g: Geometry, bias: bool, relu: bool, train: bool, weight: Memory, scale: bool = False
) -> Primitive | None:
    """relu(convolution [factor] + bias + old content of the output), with the weight in that layout.

    An addend that is an operand must not alias the output: kernels that go over the channels in
    several rounds keep their partial sums there.
    """
    attr = (_factors(g, bias) if scale else Attr()).add_to_output()
    if relu:
        attr.eltwise(RELU)
    try:
        made = _forward(g, bias and not scale, train, weight, attr)
    except OneDNNError:
        return None
    return None if made.is_reference or made.wants(WEIGHTS) != weight else made


def channel_memory(g: Geometry) -> Memory:
    """A number for each channel of the output, as an operand of a post-operation."""
    return memory((1, g.f, *(1 for _ in g.out)), float32)


def _factors(g: Geometry, bias: bool) -> Attr:
    attr = Attr().binary(MUL, channel_memory(g))
    return attr.binary(ADD, channel_memory(g)) if bias else attr


@cached
def by_data_primitive(g: Geometry) -> Primitive:
    """The data gradient."""
    return _backward("data", g, g.dtype, None)


@cached
def by_weight_primitive(g: Geometry, bias: bool) -> Primitive:
    """The gradients in weight and bias, both float32."""
    return _backward("weights", g, float32, vector_memory(g) if bias else None)


def _forward(g: Geometry, bias: bool, train: bool, weight: Memory, attr: Attr) -> Primitive:
    kind, direct = ctypes.c_int(TRAINING if train else INFERENCE), ctypes.c_int(DIRECT)
    vector = vector_memory(g) if bias else None
    return Primitive(
        "convolution_forward",
        kind, direct, data_memory(g), weight, vector, out_memory(g), *window(g),
        attr=attr,
    )  # fmt: skip


def _backward(which: str, g: Geometry, weight: DType, vector: Memory | None) -> Primitive:
    # Backward primitives are created from a forward one, good or not.
    direct = ctypes.c_int(DIRECT)
    hint = Primitive(
        "convolution_forward",
        ctypes.c_int(TRAINING), direct, data_memory(g), _any(g, g.dtype), None, out_memory(g), *window(g),
    )  # fmt: skip
    vectors = () if which == "data" else (vector,)
    return Primitive(
        f"convolution_backward_{which}",
        direct, data_memory(g), _any(g, weight), *vectors, out_memory(g), *window(g), hint.descriptor,
        keep=hint,
    )  # fmt: skip
