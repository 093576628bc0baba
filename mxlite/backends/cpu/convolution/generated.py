"""Winograd's algorithm, as generated code; see the package `winograd`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....graph.opdef import DType
from ....ops.nn.conv_kernels import Geometry
from ....ops.norm.norm_arrays import NO_PROLOGUE, PrologueArrays
from ....ops.scratch import carve, Piece, scratch_bytes
from ..onednn import in_turn, Run

_byte = np.dtype("uint8")


class Generated:
    """A convolution that works on float32 weights: those of 16 bits are cast into `work` at each call."""

    bits: tuple[Any, ...] | None = ()

    def __init__(self, g: Geometry, weight: DType, layer: Any) -> None:
        self.layer, self.name = layer, layer.name
        wide = weight != float32
        self.shape = (g.f, g.c // g.groups, *g.kernel)
        self.pieces: list[Piece] = [
            ((prod(self.shape) * wide,), float32), ((g.f * wide,), float32), ((layer.workspace,), _byte)
        ]  # fmt: skip

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)


class GeneratedForward(Generated):
    """out = relu(data * weight [factor] + bias + addend)."""

    def connect(
        self,
        data: Any,
        weight: Any,
        bias: Any,
        addend: Any,
        out: Any,
        work: Any,
        factor: Any = None,
        line: Sequence[Any] = (None, None),
    ) -> Run:
        wide, vector, own = carve(work, self.pieces)
        calls: list[Run] = []
        if wide.size:
            wide = wide.reshape(self.shape)
            calls.append(partial(np.copyto, wide, weight))
            if bias is not None:
                calls.append(partial(np.copyto, vector, bias))
                bias = vector
            weight = wide
        return in_turn([*calls, self.layer.connect(data, weight, bias, out, own, addend, factor, line)])


class GeneratedByData(Generated):
    """d_data from d_out and weight."""

    def connect(self, d_out: Any, weight: Any, d_data: Any, work: Any) -> Run:
        wide, _, own = carve(work, self.pieces)
        if not wide.size:
            run: Run = self.layer.connect(d_out, weight, None, d_data, own)
            return run
        wide = wide.reshape(self.shape)
        return in_turn([partial(np.copyto, wide, weight), self.layer.connect(d_out, wide, None, d_data, own)])


class GeneratedByWeight(Generated):
    """d_weight from d_out and data, and d_bias: the sum of d_out over all positions, as a product with
    ones.
    """

    def __init__(self, g: Geometry, weight: DType, layer: Any, sum_of: Any) -> None:
        super().__init__(g, weight, layer)
        self.sum_of = sum_of
        self.own = scratch_bytes(self.pieces)
        self.bits = (layer.cut, () if sum_of is None else sum_of.bits)

    @property
    def nbytes(self) -> int:
        return max(self.own, self.sum_of.nbytes if self.sum_of is not None else 0)

    def connect(
        self, d_out: Any, data: Any, d_weight: Any, d_bias: Any, work: Any, norm: PrologueArrays = NO_PROLOGUE
    ) -> Run:
        wide, _, own = carve(work, self.pieces)
        target = wide.reshape(self.shape) if wide.size else d_weight
        calls: list[Run] = [self.layer.connect(d_out, data, target, own, norm)]
        if wide.size:
            calls.append(partial(np.copyto, d_weight, target, casting="unsafe"))
        if d_bias is not None:
            calls.append(self.sum_of.connect(d_out, d_bias, work))
        return in_turn(calls)
