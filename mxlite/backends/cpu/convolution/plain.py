"""Convolutions of arrays in the user's layout, channels first.

Most run with channels last, between copies in scratch: moving the channels of an array costs little
compared with convolving it. Two kinds are matrix products in place, which oneDNN calls gemm: those with one
kernel element, for which copies would cost as much as the product, and the data gradient of few channels,
which its kernels for channels last pad to sixteen.

    work: data with channels last | output with channels last | scratch of the algorithms
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....graph.ir import Shape
from ....graph.opdef import DType
from ....ops.layout import last, moves
from ....ops.nn.conv_kernels import Geometry
from ....ops.scratch import carve, Piece, scratch_bytes
from ..onednn import bind, cached, in_turn, memory, Primitive, Run
from ..onednn.constants import (
    BIAS,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DIRECT,
    DST,
    SRC,
    TRAINING,
    WEIGHTS,
)
from .choice import by_data, by_weight, forward
from .shapes import vector_memory, weight_memory, window

FEW = 4  # channels

Mover = Callable[[Shape, DType, bool], Any]
"""(shape (N, C, *S), dtype, True for channels last) -> the kernel (source, target) that moves them."""

_byte = np.dtype("uint8")


class PlainConvolution:
    """The passes of one convolution that a kernel needs; raises LookupError if there is none.

    passes: some of "forward", "by_data" and "by_weight". bias: True if forward adds one, or by_weight
    computes its gradient.
    """

    def __init__(self, g: Geometry, dtype: DType, passes: frozenset[str], bias: bool, mover: Mover) -> None:
        if g.groups > 1 and g.c == g.groups and (len(g.kernel) != 2 or g.f != g.c):
            raise LookupError  # oneDNN has depthwise kernels for images only
        self.g, self.dtype, self.bias = g, dtype, bias
        self.shapes = {"data": (g.n, g.c, *g.size), "out": (g.n, g.f, *g.out)}
        self.products = {p: _product(g, p, bias) for p in passes if _is_product(g, p) and dtype == float32}
        ways = {"forward": self._forward_way, "by_data": self._data_way, "by_weight": self._weight_way}
        self.ways = {p: ways[p]() for p in passes if self.products.get(p) is None}
        if None in self.ways.values():
            raise LookupError
        self.movers: dict[tuple[str, bool], Any] = {}
        needs = {
            "forward": (("data", True), ("out", False)),
            "by_data": (("out", True), ("data", False)),
            "by_weight": (("data", True), ("out", True)),
        }
        for p in self.ways:
            for what, to_last in needs[p]:
                if moves(self.shapes[what]):
                    self.movers[what, to_last] = mover(self.shapes[what], dtype, to_last)
        scratch = [m.workspace for m in self.movers.values()] + [w.nbytes for w in self.ways.values()]
        scratch += [p.scratch for p in self.products.values() if p is not None]
        moved = {what for what, _ in self.movers}
        self.pieces: list[Piece] = [
            *((last(self.shapes[w]) if w in moved else (0,), dtype) for w in ("data", "out")),
            ((max(scratch, default=0),), _byte),
        ]

    def _forward_way(self) -> Any:
        return forward(self.g, self.dtype, self.bias, False, False, True)

    def _data_way(self) -> Any:
        return by_data(self.g, self.dtype)

    def _weight_way(self) -> Any:
        return by_weight(self.g, self.dtype, self.bias)

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    @property
    def name(self) -> str:
        made = [f"onednn {p.implementation}" for p in self.products.values() if p is not None]
        return ", ".join(dict.fromkeys([*(w.name for w in self.ways.values()), *made]))

    def bound(self, work: Any) -> Bound:
        """The convolution bound to its scratch."""
        return Bound(self, work)


class Bound:
    """The calls of one kernel. An array moved to channels last for one pass is reused in the next."""

    def __init__(self, c: PlainConvolution, work: Any) -> None:
        self.c = c
        x, y, self.scratch = carve(work, c.pieces)
        self.buffers = {"data": x, "out": y}
        self.there: set[str] = set()
        self.calls: list[Run] = []

    def forward(self, data: Any, weight: Any, bias: Any, out: Any) -> None:
        """out = data * weight + bias."""
        if self._is_product("forward", {SRC: data, WEIGHTS: weight, BIAS: bias, DST: out}):
            return
        x, y = self._read("data", data), self._written("out", out)
        self.calls.append(self.c.ways["forward"].connect(x, weight, bias, None, y, self.scratch))
        self._move_back("out", out)

    def by_data(self, d_out: Any, weight: Any, d_data: Any) -> None:
        """d_data from d_out and weight."""
        if self._is_product("by_data", {DIFF_DST: d_out, WEIGHTS: weight, DIFF_SRC: d_data}):
            return
        y, x = self._read("out", d_out), self._written("data", d_data)
        self.calls.append(self.c.ways["by_data"].connect(y, weight, x, self.scratch))
        self._move_back("data", d_data)

    def by_weight(self, d_out: Any, data: Any, d_weight: Any, d_bias: Any) -> None:
        """d_weight and d_bias from d_out and data."""
        arrays = {SRC: data, DIFF_DST: d_out, DIFF_WEIGHTS: d_weight, DIFF_BIAS: d_bias}
        if self._is_product("by_weight", arrays):
            return
        x, y = self._read("data", data), self._read("out", d_out)
        self.calls.append(self.c.ways["by_weight"].connect(y, x, d_weight, d_bias, self.scratch))

    def run(self) -> Run:
        return in_turn(self.calls)

    def _is_product(self, name: str, arrays: dict[int, Any]) -> bool:
        primitive = self.c.products.get(name)
        if primitive is None:
            return False
        known = _memories(self.c.g)
        given = {arg: (known[arg], x) for arg, x in arrays.items() if x is not None}
        self.calls.append(bind(primitive, given, self.scratch))
        return True

    def _read(self, what: str, array: Any) -> Any:
        """`array` with its channels last."""
        if not moves(self.c.shapes[what]):
            return array.reshape(last(array.shape))
        if what not in self.there:
            self._move(what, True, array, self.buffers[what])
            self.there.add(what)
        return self.buffers[what]

    def _written(self, what: str, array: Any) -> Any:
        """Buffer in which `array` is to be written with its channels last."""
        self.there.discard(what)
        return self.buffers[what] if moves(self.c.shapes[what]) else array.reshape(last(array.shape))

    def _move_back(self, what: str, array: Any) -> None:
        if moves(self.c.shapes[what]):
            self._move(what, False, self.buffers[what], array)

    def _move(self, what: str, to_last: bool, source: Any, target: Any) -> None:
        kernel = self.c.movers[what, to_last]
        self.calls.append(kernel.link(kernel.run, np, None, source, out=target, work=self.scratch))


def _is_product(g: Geometry, which: str) -> bool:
    """True if arrays go into the product without a copy."""
    if g.groups > 1:
        return False
    return prod(g.kernel) == 1 or (which == "by_data" and g.c <= FEW)


def _memories(g: Geometry) -> dict[int, Any]:
    """Plain layouts, by argument."""
    data, out = memory((g.n, g.c, *g.size), float32), memory((g.n, g.f, *g.out), float32)
    weight, vector = weight_memory(g, float32), vector_memory(g)
    return {
        SRC: data, DIFF_SRC: data, DST: out, DIFF_DST: out, WEIGHTS: weight, DIFF_WEIGHTS: weight,
        BIAS: vector, DIFF_BIAS: vector,
    }  # fmt: skip


@cached
def _product(g: Geometry, which: str, bias: bool) -> Primitive | None:
    at, direct = _memories(g), ctypes.c_int(DIRECT)
    vector = at[BIAS] if bias else None
    made = Primitive(
        "convolution_forward",
        ctypes.c_int(TRAINING), direct, at[SRC], at[WEIGHTS], vector if which == "forward" else None, at[DST],
        *window(g),
    )  # fmt: skip
    if which != "forward":
        vectors = (vector,) if which == "by_weight" else ()
        made = Primitive(
            f"convolution_backward_{'data' if which == 'by_data' else 'weights'}",
            direct, at[SRC], at[WEIGHTS], *vectors, at[DST], *window(g), made.descriptor,
            keep=made,
        )  # fmt: skip
    return made if "gemm" in made.implementation else None
