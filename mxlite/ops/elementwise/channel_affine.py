"""An affine map with a factor and a shift for each channel."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import Shapes
from .elementwise import Elementwise


@record
class ChannelAffineAttrs:
    """`axis`: that of the channels, counted from the front."""

    axis: int = 1


class ChannelAffine(Elementwise):
    """An affine map by channels, ``out = data * factor + shift``.

    data: (N, C, ...) with C at `axis`;  factor, shift: (C,)  ->  out: as data.

    A pass puts it, with `_norm_statistics`, in the place of a norm whose readers are elementwise
    (`backends/passes/fusion/norm_chains.py`). The norm has the gradient; this has none.
    """

    op_name = "_channel_affine"
    inputs = ("data", "factor", "shift")
    accepts = "float"
    in_place = {"out": "data"}
    Attrs = ChannelAffineAttrs

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        channel = data[a.axis : a.axis + 1]
        return (data, channel, channel), (data,)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * prod(inputs[0])

    @classmethod
    def operand_shape(cls, a: Any, name: str, shape: Shape, whole: Shape) -> Shape:
        if name not in ("factor", "shift"):
            return shape
        return tuple(n if i == a.axis else 1 for i, n in enumerate(whole))

    @staticmethod
    def compute(w: Any, a: Any, data: Any, factor: Any, shift: Any) -> Mapping[str, Any]:
        return {"out": data * factor + shift}
