"""The weight gradient of a depthwise convolution by generated code.

oneDNN has a kernel of its own for windows with one row of padding at most. It treats others as convolutions
of groups, and pads each group to 16 channels and 16 filters: 256 times the bytes of the weight, and time with
them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....ops.nn.conv_kernels import Geometry
from ....ops.norm.norm_arrays import NO_PROLOGUE, PrologueArrays
from ....ops.scratch import carve, Piece, scratch_bytes
from ..compiled import call, storable, threads_for, usable
from ..compiled.depthwise import code, MOST_COLUMNS, spans
from ..onednn import in_turn, Run
from ..onednn.primitive import address_of


def suits_depthwise(g: Geometry) -> bool:
    """True if there is code for the weight gradient: one filter for each channel of rows or images."""
    return (
        usable()
        and g.groups == g.c == g.f
        and len(g.kernel) <= 2
        and g.kernel[-1] <= MOST_COLUMNS
        and g.dtype.name in storable()
        and prod(g.out) > 0
    )


class DepthwiseByWeight:
    """d_weight from d_out and data, as a layer of `GeneratedByWeight`. `adds`: accumulated."""

    name = "compiled depthwise"
    cut = ()

    def __init__(self, g: Geometry, adds: bool) -> None:
        self.g, self.adds = g, adds
        code(g.kernel[-1], g.dtype.name)  # compile now, while plans are made

    @property
    def pieces(self) -> list[Piece]:
        return [((prod(self.g.kernel), self.g.c), float32)]

    @property
    def workspace(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(
        self, d_out: Any, data: Any, d_weight: Any, work: Any, norm: PrologueArrays = NO_PROLOGUE
    ) -> Run:
        g = self.g
        (sums,) = carve(work, self.pieces)
        one = (1,) * (2 - len(g.kernel))
        axes = zip(g.size, g.out, g.kernel, g.stride, g.dilate, g.pad)
        tables = [*(spans(1, 1, 1, 1, 1, 0) for _ in one), *(spans(*axis) for axis in axes)]
        arrays = (data, d_out, sums, *tables)
        (h, w), (oh, ow) = one + g.size, one + g.out
        kernel, stride, dilate = one + g.kernel, one + g.stride, one + g.dilate
        numbers = [g.n, h, w, oh, ow, kernel[0], *stride, *dilate, g.c]
        threads = threads_for(g.dtype.itemsize * prod(kernel) * g.n * (oh * ow) * g.c)
        made = code(kernel[1], g.dtype.name)
        run = call(made, "d_weight", [*map(address_of, arrays), *numbers], threads, keep=(arrays, made))
        target = d_weight.reshape(g.c, prod(kernel)).T

        def stored() -> None:
            if self.adds:
                np.add(target, sums, out=target)
            else:
                np.copyto(target, sums)

        return in_turn([run, stored])
