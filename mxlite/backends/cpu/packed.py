"""Convolutions and dense layers with prepacked weights, for inference, where weights do not change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from ...core.dtype import as_dtype
from ...graph import Op, Shape, Shapes
from ...graph.opdef import DType

if TYPE_CHECKING:
    from .convolution.direct import Forward
    from .packed_dense import DenseWay


@dataclass(frozen=True)
class PackedAttrs:
    """`of`: the attributes of the convolution or dense layer; `way`: its algorithm; `shape`: that of the
    weight.
    """

    of: Any
    way: Forward | DenseWay
    shape: Shape
    out: Shape


class PackWeight(Op):
    """The weight of a convolution or dense layer in the layout of its kernel: bytes that only that can read.

    weight: (F, C/G, *K) or (F, C)  ->  out: (bytes,) uint8.
    """

    op_name = "_pack_weight"
    inputs = ("weight",)
    Attrs = PackedAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        return (a.shape,), ((a.way.layout.nbytes,),)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: Any) -> Any:
        return dtypes, (as_dtype("uint8"),)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return int(a.way.scratch)

    @staticmethod
    def forward(xp: Any, a: Any, weight: Any, *, out: Any, work: Any) -> None:
        a.way.pack(weight, out, work)()


class PackedConvolution(Op):
    """A convolution with the output of `_pack_weight`; see `_convolution_epilogue`."""

    op_name = "_packed_convolution"
    inputs = ("data", "packed", "factor", "bias", "addend")
    Attrs = PackedAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        there = (getattr(a.of, "scale", False), not a.of.no_bias, getattr(a.of, "add", False))
        return ("data", "packed", *(n for n, used in zip(cls.inputs[2:], there) if used))

    @classmethod
    def in_place_options(cls, a: Any) -> Any:
        return {"out": ("addend",)} if getattr(a.of, "add", False) else {}

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        assert all(s is not None for s in shapes)
        return tuple(s for s in shapes if s is not None), (a.out,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: Any) -> Any:
        return dtypes, (dtypes[0],)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        total = 2
        for d in (*outputs[0], *a.shape[1:]):
            total *= d
        return total

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return a.way.nbytes

    @staticmethod
    def forward(
        xp: Any, a: Any, data: Any, packed: Any, factor: Any, bias: Any, addend: Any, *, out: Any, work: Any
    ) -> None:
        a.way.connect(data, packed, bias, addend, out, work, factor)()


class PackedDense(PackedConvolution):
    """A dense layer with the output of `_pack_weight`; see `FullyConnected`."""

    op_name = "_packed_dense"
