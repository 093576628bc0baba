"""Choice of the algorithm for a convolution."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

from ....core import config
from ....core.dtype import float32
from ....graph.opdef import DType
from ....ops.nn.conv_kernels import Geometry
from .. import winograd
from ..compiled.nests import ColumnSum
from ..runtime.threads import num_threads
from .by_columns import ColumnsByData, ColumnsByWeight, ColumnsForward, suits_columns, suits_columns_by_data
from .depthwise import DepthwiseByWeight, suits_depthwise
from .direct import ByData, ByWeight, Forward
from .generated import GeneratedByData, GeneratedByWeight, GeneratedForward
from .normalized import NormalizedByWeight
from .pointwise import (
    NormedPointwiseByWeight,
    NormedPointwiseForward,
    PointwiseByData,
    PointwiseByWeight,
    PointwiseForward,
    suits,
)


def forward(
    g: Geometry, weight: DType, bias: bool, add: bool, relu: bool, train: bool, scale: bool = False
) -> Any:
    """The algorithm for ``relu(convolution [factor] + bias + addend)``, or None."""
    # In inference direct kernels find their weights prepacked; Winograd transforms them at each call.
    if _suits_winograd(g) and (train or not _is_small(g)):
        layer = winograd.forward(g, add, relu, scale)
        if layer is not None:
            return GeneratedForward(g, weight, layer)
    alone = not (add or relu or scale)
    if train and alone and suits(g) and (way := _direct(PointwiseForward, g, bias)) is not None:
        return way
    if alone and suits_columns(g) and (way := _direct(ColumnsForward, g, weight, bias)) is not None:
        return way
    return _direct(Forward, g, weight, bias, add, relu, train, scale)


def by_data(g: Geometry, weight: DType) -> Any:
    """The algorithm for the data gradient, or None."""
    if _suits_winograd(g):
        layer = winograd.d_data(g)
        if layer is not None:
            return GeneratedByData(g, weight, layer)
    if suits(g) and (way := _direct(PointwiseByData, g)) is not None:
        return way
    if suits_columns_by_data(g) and (way := _direct(ColumnsByData, g, weight)) is not None:
        return way
    return _direct(ByData, g, weight)


def by_weight(g: Geometry, weight: DType, bias: bool, adds: bool = False) -> Any:
    """The algorithm for the gradients in weight and bias, or None. `adds`: accumulate, in float32."""
    if _suits_winograd(g):
        layer = winograd.d_weight(g, adds=adds)
        if layer is not None:
            return GeneratedByWeight(g, weight, layer, _column_sum(g, weight, bias, adds))
    if suits(g) and (way := _direct(PointwiseByWeight, g, bias, adds)) is not None:
        return way
    way = _direct(ByWeight, g, weight, bias, adds)
    if suits_depthwise(g) and (not adds or weight == float32) and (way is None or way.is_padded):
        return GeneratedByWeight(g, weight, DepthwiseByWeight(g, adds), _column_sum(g, weight, bias, adds))
    # oneDNN's gemm uses columns too, those of a sample for each thread: that takes more time and bytes.
    if suits_columns(g) or (way is not None and way.is_gemm):
        return _direct(ColumnsByWeight, g, weight, bias, adds) or way
    return way


def normed_forward(g: Geometry, weight: DType, bias: bool, relu: bool) -> Any:
    """The algorithm for ``convolution of relu(data * factor + shift) + bias``, or None."""
    if _suits_winograd(g):
        layer = winograd.forward(g, prologue=winograd.Prologue(True, relu))
        if layer is not None:
            return GeneratedForward(g, weight, layer)
    return _made(NormedPointwiseForward, g, bias, relu) if weight == g.dtype else None


def normed_by_weight(g: Geometry, weight: DType, bias: bool, relu: bool, addend: str) -> Any:
    """The algorithm for the gradients in weight and bias of a convolution of relu(data * factor + shift +
    added), or None.
    """
    if _suits_winograd(g):
        layer = winograd.d_weight(g, prologue=winograd.Prologue(True, relu, addend))
        if layer is not None:
            return GeneratedByWeight(g, weight, layer, _column_sum(g, weight, bias))
    if weight == g.dtype and (way := _made(NormedPointwiseByWeight, g, bias, relu, addend)):
        return way
    if g.groups > 1:  # each number is used so little that normalizing it takes as long
        return None
    return _made(_normalized, g, weight, bias, relu, addend)


def bits_of(*ways: Any) -> tuple[Any, ...] | None:
    """`ChosenKernel.bits` of a kernel with these algorithms; those of oneDNN do not say."""
    found = [getattr(way, "bits", None) for way in ways]
    return None if None in found else tuple(found)


def _normalized(g: Geometry, weight: DType, bias: bool, relu: bool, addend: str) -> NormalizedByWeight:
    return NormalizedByWeight(g, lambda g: by_weight(g, weight, bias), relu, addend)


def _column_sum(g: Geometry, weight: DType, bias: bool, adds: bool = False) -> ColumnSum | None:
    """Kernel of the bias gradient, if there is a bias."""
    return ColumnSum(g.n * prod(g.out), g.f, g.dtype, weight, adds) if bias else None


def _suits_winograd(g: Geometry) -> bool:
    """True if there may be generated Winograd code for it, which is 1.3 to 3 times as fast as direct
    kernels.
    """
    return g.kernel == (3, 3) and g.stride == g.dilate == (1, 1) and g.groups == 1


def _is_small(g: Geometry) -> bool:
    """True if there are so few tiles of 4x4 outputs that reading transformed weights dominates the
    time.
    """
    return g.n * -(-g.out[0] // 4) * -(-g.out[1] // 4) < 16


def _direct(way: Callable[..., Any], *args: Any) -> Any:
    if "onednn" not in config.kernel_kinds():
        return None
    return _made(way, *args)


def _made(way: Callable[..., Any], *args: Any) -> Any:
    return _once(num_threads(), config.kernel_kinds(), way, *args)


@lru_cache(maxsize=4096)
def _once(threads: int, kinds: frozenset[str], way: Callable[..., Any], *args: Any) -> Any:
    try:
        return way(*args)
    except LookupError:  # oneDNN has no primitive, or is not there
        return None
