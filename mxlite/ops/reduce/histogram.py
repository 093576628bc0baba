"""Histograms: the number of elements between edges."""

from __future__ import annotations

from typing import Any

from ...core.dtype import as_dtype
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import DType, Op, Shapes
from ..blocks import pieces


class histogram(Op):
    """output0[i] elements are in [output1[i], output1[i+1]), the last edge included.

    data: (...);  bins: (B+1,) ascending edges, unless `bin_cnt` gives the number of equal bins in `range`
    ->  output0: (B,) int64;  output1: (B+1,) of `data`'s dtype. Elements outside, and nan, are left out. No
    gradient.
    """

    op_name = "_histogram"
    inputs = ("data", "bins")
    outputs = ("output0", "output1")
    accepts = "number"
    flops_per_input = 8

    @record
    class Attrs:
        bin_cnt: int | None = None
        range: tuple[float, ...] | None = None

        def __post_init__(self) -> None:
            if self.bin_cnt is None:
                return
            if self.bin_cnt < 1:
                raise OpAttributeError(f"bin_cnt must be at least 1, got {self.bin_cnt}.")
            if self.range is None or len(self.range) != 2 or not self.range[0] < self.range[1]:
                raise OpAttributeError(f"range must be (lowest, highest), got {self.range}.")

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return cls.inputs[: 1 + (a.bin_cnt is None)]

    @staticmethod
    def infer_shape(a: Any, data: Any, bins: Any = None) -> tuple[Shapes, Shapes]:
        if a.bin_cnt is not None:
            return (data,), ((a.bin_cnt,), (a.bin_cnt + 1,))
        if len(bins) != 1 or bins[0] < 2:
            raise ShapeError(f"bins must be 2 rising edges or more, got {bins}.")
        return (data, bins), ((bins[0] - 1,), bins)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: Any) -> Any:
        return (dtypes[0],) * len(dtypes), (as_dtype("int64"), dtypes[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return 8 * (outputs[0][0] + 1)

    @staticmethod
    def forward(
        xp: Any, a: Any, data: Any, bins: Any = None, *, output0: Any, output1: Any, work: Any
    ) -> None:
        ends = work.view("float64")
        if a.bin_cnt is None:
            xp.copyto(ends, bins)
        else:
            ends[...] = xp.linspace(*a.range, a.bin_cnt + 1)
        if output1 is not None:
            xp.copyto(output1, ends, casting="unsafe")
        if output0 is None:
            return
        output0.fill(0)
        for (part,) in pieces(data):
            inside = part[(part >= ends[0]) & (part <= ends[-1])]
            place = xp.searchsorted(ends, inside, side="right") - 1  # that of the last edge is no bin's
            output0 += xp.bincount(xp.clip(place, 0, output0.size - 1), minlength=output0.size)
