"""Convolution with its channels last, on oneDNN.

oneDNN's good kernels want weights in a blocked layout of their own. Weights stay as users see them, so each
call reorders them into its scratch; PyTorch does the same, and it costs one pass over the weights. A layout
that is kept between the passes would cost memory for every layer at once instead.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....graph.ir import Shape
from ....ops.conv import geometry
from ....ops.conv_channels_last import _convolution_channels_last, _convolution_epilogue
from ....ops.conv_kernels import Geometry
from ....ops.layout import first
from ....ops.scratch import carve, Piece, scratch_bytes
from ...base import ChosenKernel, connected, Request
from ..onednn import Attr, bind, cached, in_turn, library, Memory, memory, memory_any, Primitive, reorder, Run
from ..onednn.constants import (
    ADD,
    BIAS,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DIRECT,
    DST,
    INFERENCE,
    POST_OP,
    RELU,
    SRC,
    SRC_1,
    TRAINING,
    WEIGHTS,
)

_byte = np.dtype("uint8")


@dataclass(frozen=True)
class Layers:
    """The descriptors of one convolution: data and output with channels last, plain weights, and `any`."""

    g: Geometry
    bias: bool

    @property
    def data(self) -> Memory:
        return _last((self.g.n, self.g.c, *self.g.size), self.g.dtype)

    @property
    def out(self) -> Memory:
        return _last((self.g.n, self.g.f, *self.g.out), self.g.dtype)

    @property
    def weight_shape(self) -> Shape:
        g = self.g
        if g.groups == 1:
            return (g.f, g.c, *g.kernel)
        return (g.groups, g.f // g.groups, g.c // g.groups, *g.kernel)

    @property
    def weight(self) -> Memory:
        return memory(self.weight_shape, float32)

    @property
    def weight_any(self) -> Memory:
        return memory_any(self.weight_shape, float32)

    @property
    def vector(self) -> Memory | None:
        return memory((self.g.f,), float32) if self.bias else None

    @property
    def window(self) -> tuple[Any, ...]:
        """strides, dilates (0 is none), padding at either end: as oneDNN wants them."""
        g = self.g
        axes = ctypes.c_int64 * len(g.kernel)
        right = tuple(
            (o - 1) * s + d * (k - 1) + 1 - (i + p)
            for o, s, d, k, i, p in zip(g.out, g.stride, g.dilate, g.kernel, g.size, g.pad)
        )
        return axes(*g.stride), axes(*(d - 1 for d in g.dilate)), axes(*g.pad), axes(*right)


def _last(shape: Shape, dtype: Any) -> Memory:
    return memory(shape, dtype, (0, *range(2, len(shape)), 1))


@cached
def _forward(g: Geometry, bias: bool, add: bool, relu: bool, train: bool) -> Primitive:
    a = Layers(g, bias)
    attr = Attr()
    if add:
        attr.binary(ADD, a.out)
    if relu:
        attr.eltwise(RELU)
    kind = ctypes.c_int(TRAINING if train else INFERENCE)
    return Primitive(
        "convolution_forward",
        kind, ctypes.c_int(DIRECT), a.data, a.weight_any, a.vector, a.out, *a.window,
        attr=attr,
    )  # fmt: skip


@cached
def _d_data(g: Geometry) -> Primitive:
    a, hint = Layers(g, False), _hint(g)
    return Primitive(
        "convolution_backward_data",
        ctypes.c_int(DIRECT), a.data, a.weight_any, a.out, *a.window, hint.descriptor,
        keep=hint,
    )  # fmt: skip


@cached
def _d_weight(g: Geometry, bias: bool) -> Primitive:
    a, hint = Layers(g, bias), _hint(g)
    return Primitive(
        "convolution_backward_weights",
        ctypes.c_int(DIRECT), a.data, a.weight_any, a.vector, a.out, *a.window, hint.descriptor,
        keep=hint,
    )  # fmt: skip


def _hint(g: Geometry) -> Primitive:
    """The forward primitive that backward ones are made after, good or not."""
    a = Layers(g, False)
    return Primitive(
        "convolution_forward",
        ctypes.c_int(TRAINING), ctypes.c_int(DIRECT), a.data, a.weight_any, None, a.out, *a.window,
    )  # fmt: skip


class Packed:
    """A convolution whose weights (or their gradient) lie in `work` in the layout it wants, if that is not
    plain.

    `work` is [weights | scratch of the reorder and of the convolution, which run one after the other].
    """

    def __init__(self, g: Geometry, primitive: Primitive, arg: int) -> None:
        plain = Layers(g, False).weight
        found = primitive.wants(WEIGHTS if arg == WEIGHTS else DIFF_WEIGHTS)
        assert found is not None
        self.primitive = primitive
        self.layout = found
        self.plain = plain
        self.arg = arg
        self.reorder: Primitive | None = None
        if found != plain:
            self.reorder = reorder(plain, found) if arg == WEIGHTS else reorder(found, plain)
        scratch = max(primitive.scratch, self.reorder.scratch if self.reorder else 0)
        held = found.nbytes if self.reorder else 0
        self.pieces: list[Piece] = [((held,), _byte), ((scratch,), _byte)]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def bind(self, weight: Any, arrays: dict[int, tuple[Memory, Any]], work: Any) -> list[Run]:
        """The calls, with `weight` plain."""
        held, scratch = carve(work, self.pieces)
        if self.reorder is None:
            return [bind(self.primitive, {**arrays, self.arg: (self.plain, weight)}, scratch)]
        main = bind(self.primitive, {**arrays, self.arg: (self.layout, held)}, scratch)
        if self.arg == WEIGHTS:
            move = {SRC: (self.plain, weight), DST: (self.layout, held)}
            return [bind(self.reorder, move, scratch), main]
        move = {SRC: (self.layout, held), DST: (self.plain, weight)}
        return [main, bind(self.reorder, move, scratch)]


@cached
def _packed_forward(g: Geometry, bias: bool, add: bool, relu: bool, train: bool) -> Packed | None:
    primitive = _forward(g, bias, add, relu, train)
    return None if primitive is None else Packed(g, primitive, WEIGHTS)


@cached
def _packed_d_data(g: Geometry) -> Packed | None:
    primitive = _d_data(g)
    return None if primitive is None else Packed(g, primitive, WEIGHTS)


@cached
def _packed_d_weight(g: Geometry, bias: bool) -> Packed | None:
    primitive = _d_weight(g, bias)
    return None if primitive is None else Packed(g, primitive, DIFF_WEIGHTS)


def forward(r: Request) -> ChosenKernel | None:
    """The forward pass, with or without what follows it."""
    g = _geometry(r)
    if g is None:
        return None
    bias, add, relu = not r.attrs.no_bias, getattr(r.attrs, "add", False), getattr(r.attrs, "relu", False)
    packed = _packed_forward(g, bias, add, relu, r.train)
    if packed is None:
        return None
    a = Layers(g, bias)

    def connect(
        xp: Any, _: Any, data: Any, weight: Any, bias: Any = None, addend: Any = None, *, out: Any, work: Any
    ) -> Run:
        arrays = {SRC: (a.data, data), DST: (a.out, out)}
        if bias is not None:
            arrays[BIAS] = (memory((g.f,), float32), bias)
        if addend is not None:
            arrays[POST_OP | SRC_1] = (a.out, addend)
        return in_turn(packed.bind(weight, arrays, work))

    like = _like_epilogue if add or relu or r.op is _convolution_epilogue else _like_forward
    return connected(connect, packed.nbytes, f"onednn {packed.primitive.implementation}", like=like)


def _like_forward(xp: Any, a: Any, data: Any, weight: Any, bias: Any, *, out: Any, work: Any) -> None: ...


def _like_epilogue(
    xp: Any, a: Any, data: Any, weight: Any, bias: Any, addend: Any, *, out: Any, work: Any
) -> None: ...


def backward(r: Request) -> ChosenKernel | None:
    """The gradients in data, weight and bias: those that are wanted."""
    g = _geometry(r)
    if g is None:
        return None
    bias = r.is_used("d_bias") and not r.attrs.no_bias
    by_data = _packed_d_data(g) if r.is_used("d_data") else None
    by_weight = _packed_d_weight(g, bias) if r.is_used("d_weight") or bias else None
    if (r.is_used("d_data") and by_data is None) or ((r.is_used("d_weight") or bias) and by_weight is None):
        return None
    a = Layers(g, bias)
    weights = a.weight.nbytes  # d_weight has to go somewhere if only d_bias is wanted
    spare = weights if bias and not r.is_used("d_weight") else 0
    own = max(p.nbytes for p in (by_data, by_weight) if p is not None) if by_data or by_weight else 0
    pieces: list[Piece] = [((spare,), _byte), ((own,), _byte)]

    def connect(
        xp: Any,
        _: Any,
        d_out: Any,
        data: Any,
        weight: Any,
        *,
        d_data: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
    ) -> Run:
        unread, scratch = carve(work, pieces)
        calls: list[Run] = []
        if by_weight is not None and (d_weight is not None or d_bias is not None):
            arrays = {SRC: (a.data, data), DIFF_DST: (a.out, d_out)}
            if bias:
                arrays[DIFF_BIAS] = (memory((g.f,), float32), d_bias)
            calls += by_weight.bind(unread if d_weight is None else d_weight, arrays, scratch)
        if by_data is not None and d_data is not None:
            calls += by_data.bind(weight, {DIFF_SRC: (a.data, d_data), DIFF_DST: (a.out, d_out)}, scratch)
        return in_turn(calls)

    names = dict.fromkeys(p.primitive.implementation for p in (by_weight, by_data) if p is not None)
    return connected(connect, scratch_bytes(pieces), f"onednn {', '.join(names)}")


def _geometry(r: Request) -> Geometry | None:
    """The convolution, if oneDNN can do it: float32, and not empty."""
    if library() is None or set(r.dtypes) != {float32}:
        return None
    if 0 in r.inputs[0] or 0 in r.outputs[0] or 0 in r.inputs[1]:
        return None
    g = geometry(r.attrs, first(r.inputs[0]), float32)
    assert isinstance(g, Geometry)
    return g


ROWS = {
    _convolution_channels_last: [forward],
    _convolution_channels_last.grad_op: [backward],
    _convolution_epilogue: [forward],
}
