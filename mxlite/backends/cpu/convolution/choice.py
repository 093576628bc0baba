"""Choice of the algorithm for a convolution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, ClassVar, Protocol

from ....core import config
from ....core.dtype import float32
from ....graph.opdef import DType
from ....ops.nn.conv_kernels import Geometry
from ...base import Knobs
from .. import winograd
from ..compiled.nests import ColumnSum
from ..product_part import ProductPart
from ..runtime.threads import num_threads
from .by_columns import ColumnsByData, ColumnsByWeight, ColumnsForward, suits_columns, suits_columns_by_data
from .depthwise import DepthwiseByWeight, suits_depthwise
from .direct import ByData, ByWeight, Forward
from .generated import GeneratedByData, GeneratedByWeight, GeneratedForward
from .normalized import NormalizedByWeight
from .pointwise import (
    has_few_rows,
    NormedPointwiseByWeight,
    NormedPointwiseForward,
    PointwiseByData,
    PointwiseByWeight,
    PointwiseForward,
    suits,
)

GROUPS = (64, 128, 256)
"""Units of a group of Winograd's algorithm."""
SPLITS = (1, 2, 4)
"""Parts of its sums for a weight gradient."""
RULE, WINOGRAD, PRODUCT, COLUMNS, DIRECT, DEPTHWISE = range(6)
"""Algorithms by their number: 0 stands for what a rule takes."""
ALGORITHMS = (WINOGRAD, PRODUCT, COLUMNS, DIRECT, DEPTHWISE)


class Ways(Protocol):
    """The algorithms of one direction of a convolution `g`.

    `made(algorithm, knobs)`: the one of that number, cut as knobs say, by its own rule if all are 0, or None;
    `rule()`: the one that suits. `product_part()`: the matrix product that it is, if it is one. `channels`:
    those that it reads and makes; `shares`: numbers worth trying of the last field of Winograd's cut.
    """

    @property
    def g(self) -> Geometry: ...

    @property
    def channels(self) -> tuple[int, int]: ...

    @property
    def shares(self) -> tuple[int, ...]: ...

    def rule(self) -> Any: ...

    def made(self, algorithm: int, knobs: Knobs = ()) -> Any: ...

    def product_part(self) -> ProductPart | None: ...


@dataclass(frozen=True)
class ForwardWays:
    """The algorithms for ``relu(convolution [factor] + bias + addend)``."""

    g: Geometry
    weight: DType
    bias: bool
    add: bool
    relu: bool
    train: bool
    scale: bool = False
    shares: ClassVar[tuple[int, ...]] = GROUPS

    @property
    def channels(self) -> tuple[int, int]:
        return self.g.c, self.g.f

    def rule(self) -> Any:
        # In inference direct kernels find their weights prepacked; Winograd transforms them at each call.
        g, found = self.g, []
        if self.train or not _is_small(g):
            found.append(WINOGRAD)
        if self.train and has_few_rows(g):
            found.append(PRODUCT)
        if suits_columns(g):
            found.append(COLUMNS)
        return _first(self, *found, DIRECT)

    def made(self, algorithm: int, knobs: Knobs = ()) -> Any:
        g, weight, bias = self.g, self.weight, self.bias
        alone = not (self.add or self.relu or self.scale)
        if algorithm == WINOGRAD and _suits_winograd(g):
            layer = winograd.forward(g, self.add, self.relu, self.scale, **_cut(knobs, "group"))
            return None if layer is None else GeneratedForward(g, weight, layer)
        if algorithm == PRODUCT and alone and suits(g):
            return _direct(PointwiseForward, g, bias, knobs)
        if algorithm == COLUMNS and alone:
            return _direct(ColumnsForward, g, weight, bias)
        if algorithm == DIRECT:
            return _direct(Forward, g, weight, bias, self.add, self.relu, self.train, self.scale)
        return None

    def product_part(self) -> ProductPart | None:
        return PointwiseForward.part(self.g, self.bias) if suits(self.g) else None


@dataclass(frozen=True)
class DataWays:
    """The algorithms for the data gradient."""

    g: Geometry
    weight: DType
    shares: ClassVar[tuple[int, ...]] = GROUPS

    @property
    def channels(self) -> tuple[int, int]:
        return self.g.f, self.g.c

    def rule(self) -> Any:
        g, found = self.g, [WINOGRAD]
        if has_few_rows(g):
            found.append(PRODUCT)
        if suits_columns_by_data(g):
            found.append(COLUMNS)
        return _first(self, *found, DIRECT)

    def made(self, algorithm: int, knobs: Knobs = ()) -> Any:
        g, weight = self.g, self.weight
        if algorithm == WINOGRAD and _suits_winograd(g):
            layer = winograd.d_data(g, **_cut(knobs, "group"))
            return None if layer is None else GeneratedByData(g, weight, layer)
        if algorithm == PRODUCT and suits(g):
            return _direct(PointwiseByData, g, knobs)
        if algorithm == COLUMNS:
            return _direct(ColumnsByData, g, weight)
        return _direct(ByData, g, weight) if algorithm == DIRECT else None

    def product_part(self) -> ProductPart | None:
        return PointwiseByData.part(self.g) if suits(self.g) else None


@dataclass(frozen=True)
class WeightWays:
    """The algorithms for the gradients in weight and bias. `adds`: accumulate, in float32."""

    g: Geometry
    weight: DType
    bias: bool
    adds: bool = False
    shares: ClassVar[tuple[int, ...]] = SPLITS

    @property
    def channels(self) -> tuple[int, int]:
        return self.g.c, self.g.f

    def rule(self) -> Any:
        g = self.g
        if (found := _first(self, WINOGRAD, PRODUCT)) is not None:
            return found
        way = self.made(DIRECT)
        if way is None or way.is_padded:
            if (found := self.made(DEPTHWISE)) is not None:
                return found
        # oneDNN's gemm uses columns too, those of a sample for each thread: that takes more time and bytes.
        if suits_columns(g) or (way is not None and way.is_gemm):
            return self.made(COLUMNS) or way
        return way

    def made(self, algorithm: int, knobs: Knobs = ()) -> Any:
        g, weight, bias, adds = self.g, self.weight, self.bias, self.adds
        if algorithm == WINOGRAD and _suits_winograd(g):
            layer = winograd.d_weight(g, adds=adds, **_cut(knobs, "splits"))
            if layer is not None:
                return GeneratedByWeight(g, weight, layer, _column_sum(g, weight, bias, adds))
        if algorithm == PRODUCT and suits(g):
            return _direct(PointwiseByWeight, g, bias, adds, knobs)
        if algorithm == DEPTHWISE and suits_depthwise(g) and (not adds or weight == float32):
            sums = _column_sum(g, weight, bias, adds)
            return GeneratedByWeight(g, weight, DepthwiseByWeight(g, adds), sums)
        if algorithm == COLUMNS:
            return _direct(ColumnsByWeight, g, weight, bias, adds)
        return _direct(ByWeight, g, weight, bias, adds) if algorithm == DIRECT else None

    def product_part(self) -> ProductPart | None:
        return PointwiseByWeight.part(self.g, self.adds) if suits(self.g) else None


def forward(
    g: Geometry, weight: DType, bias: bool, add: bool, relu: bool, train: bool, scale: bool = False
) -> Any:
    """The algorithm for ``relu(convolution [factor] + bias + addend)``, or None."""
    return ForwardWays(g, weight, bias, add, relu, train, scale).rule()


def by_data(g: Geometry, weight: DType) -> Any:
    """The algorithm for the data gradient, or None."""
    return DataWays(g, weight).rule()


def by_weight(g: Geometry, weight: DType, bias: bool, adds: bool = False) -> Any:
    """The algorithm for the gradients in weight and bias, or None. `adds`: accumulate, in float32."""
    return WeightWays(g, weight, bias, adds).rule()


def _first(ways: Ways, *algorithms: int) -> Any:
    """The first of some algorithms that there is."""
    return next((way for a in algorithms if (way := ways.made(a)) is not None), None)


def _cut(knobs: Knobs, last: str) -> dict[str, Any]:
    """How Winograd's algorithm is cut, as keywords."""
    if not any(knobs):
        return {}
    m, c, f, most, share = knobs[:5]
    return {"m": m, "parts": (c, f), "most": most, last: share}


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
    """True if there are so few tiles of outputs, 4 long along each axis, that reading transformed weights
    dominates the time.
    """
    return g.n * prod(-(-n // 4) for n in g.out) < 16


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
