"""1x1 convolutions as matrix products, which they are with channels last.

data (N, *S, C) is a matrix (R, C) of R = N * |S| rows, the weight (F, C) has the layout of the product, so
nothing is reordered. For the weight gradient oneDNN's products are up to twice as fast as its
convolutions; for the other two only if the weight, which a convolution reorders, is large compared with R.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ....core.dtype import float32
from ....graph.opdef import DType
from ....ops.nn.conv_kernels import Geometry
from ....ops.norm.norm_arrays import NO_PROLOGUE, PrologueArrays
from ....ops.scratch import carve, Piece, scratch_bytes
from ...base import Knobs
from ..compiled.matrix import product as generated
from ..compiled.nests import ColumnSum
from ..onednn import in_turn, Run
from ..onednn.product import Layout, product
from ..product_part import ProductPart
from ..runtime.threads import num_threads
from .direct import part_of

FEW_ROWS = 1024
NARROW = 1 << 15
"""Elements of a weight up to which a product is bound by memory: generated code, whose copy also normalizes,
is then at least as fast as a norm and oneDNN's product, and beyond it up to 5 % slower. For 16 bits it
is faster at any size if oneDNN casts them."""
FEW_FILTERS = 128
"""Filters up to which that holds for a weight gradient, whatever the channels: each normalized number
is multiplied only so often. With more than two filters for each channel it does not: then the
generated product takes up to twice oneDNN's time, and normalizing few channels first takes little."""
PER_THREAD = 32
"""Channels that each thread should have of the larger side of a weight gradient."""

_byte = np.dtype("uint8")


def suits(g: Geometry) -> bool:
    """True if a convolution is a product of float32 matrices."""
    return is_product(g) and g.dtype == float32


def is_product(g: Geometry) -> bool:
    """True if a convolution is a product of matrices."""
    return set(g.kernel) == {1} == set(g.stride) and not any(g.pad) and g.groups == 1


def has_few_rows(g: Geometry) -> bool:
    """True if a product is faster than a convolution that reorders the weight, forward and for data."""
    return suits(g) and _rows(g) <= FEW_ROWS


def _rows(g: Geometry) -> int:
    return g.n * prod(g.size)


def _part(x: Layout, y: Layout, out: Layout, bias: bool = False, adds: bool = False) -> ProductPart:
    """A product as a part of a space; by rule it is oneDNN's."""
    own = float32 if bias else None
    return ProductPart(x, y, out, own, lambda: product(x, y, out, bias, 1.0, float(adds)), 1.0, float(adds))


class Pointwise:
    """A product with its scratch and its name. Raises LookupError if there is none."""

    def __init__(self, part: ProductPart, knobs: Knobs) -> None:
        made = part.product(knobs or part.default)
        if made is None:
            raise LookupError
        self.product = made
        self.name = made.name
        self.nbytes = made.scratch


class PointwiseForward(Pointwise):
    """out = data @ weight.T + bias."""

    def __init__(self, g: Geometry, bias: bool, knobs: Knobs = ()) -> None:
        super().__init__(self.part(g, bias), knobs)

    @staticmethod
    def part(g: Geometry, bias: bool) -> ProductPart:
        """The product."""
        r = _rows(g)
        return _part(Layout.dense(r, g.c), Layout.dense(g.f, g.c).turned, Layout.dense(r, g.f), bias)

    def connect(
        self, data: Any, weight: Any, bias: Any, addend: Any, out: Any, work: Any, factor: Any = None
    ) -> Run:
        return self.product.bind(data, weight, out, bias, work)


class PointwiseByData(Pointwise):
    """d_data = d_out @ weight."""

    def __init__(self, g: Geometry, knobs: Knobs = ()) -> None:
        super().__init__(self.part(g), knobs)

    @staticmethod
    def part(g: Geometry) -> ProductPart:
        """The product."""
        r = _rows(g)
        return _part(Layout.dense(r, g.f), Layout.dense(g.f, g.c), Layout.dense(r, g.c))

    def connect(self, d_out: Any, weight: Any, d_data: Any, work: Any) -> Run:
        return self.product.bind(d_out, weight, d_data, None, work)


class PointwiseByWeight(Pointwise):
    """d_weight = d_out.T @ data, and d_bias the sum of d_out's rows; `adds`: accumulated into both."""

    def __init__(self, g: Geometry, bias: bool, adds: bool, knobs: Knobs = ()) -> None:
        super().__init__(self.part(g, adds), knobs)
        self.sum_of = ColumnSum(_rows(g), g.f, g.dtype, float32, adds) if bias else None
        more = self.sum_of.nbytes if self.sum_of is not None else 0
        self.pieces: list[Piece] = [((self.nbytes,), _byte), ((more,), _byte)]
        self.nbytes = scratch_bytes(self.pieces)

    @staticmethod
    def part(g: Geometry, adds: bool) -> ProductPart:
        """The product."""
        r = _rows(g)
        x, y, out = Layout.dense(r, g.f).turned, Layout.dense(r, g.c), Layout.dense(g.f, g.c)
        return _part(x, y, out, adds=adds)

    def connect(self, d_out: Any, data: Any, d_weight: Any, d_bias: Any, work: Any) -> Run:
        own, more = carve(work, self.pieces)
        calls = [self.product.bind(d_out, data, d_weight, None, own)]
        if d_bias is not None and self.sum_of is not None:
            calls.append(self.sum_of.connect(d_out, d_bias, more))
        return in_turn(calls)


class NormedPointwise:
    """A product of normalized data by generated code, whose copy into the cache normalizes."""

    def __init__(
        self,
        g: Geometry,
        x: Layout,
        y: Layout,
        out: Layout,
        line: generated.Line,
        bias: DType | None = None,
    ) -> None:
        if (
            not is_product(g) or part_of(g).dtype == g.dtype != float32
        ):  # the processor multiplies those natively
            raise LookupError
        x, y, out = (replace(z, dtype=g.dtype) for z in (x, y, out))
        made = generated.product(x, y, out, bias, line=line)
        if made is None:
            raise LookupError
        self.product = made
        self.name = made.name
        self.bits: tuple[Any, ...] | None = ()
        self.pieces: list[Piece] = [((made.scratch,), _byte)]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)


class NormedPointwiseForward(NormedPointwise):
    """out = relu(data * factor + shift) @ weight.T + bias."""

    def __init__(self, g: Geometry, bias: bool, relu: bool) -> None:
        if g.dtype == float32 and g.c * g.f > NARROW:
            raise LookupError
        r, line = _rows(g), generated.Line("x", relu)
        x, y, out = Layout.dense(r, g.c), Layout.dense(g.f, g.c).turned, Layout.dense(r, g.f)
        super().__init__(g, x, y, out, line, g.dtype if bias else None)

    def connect(
        self, data: Any, weight: Any, bias: Any, addend: Any, out: Any, work: Any, line: Sequence[Any]
    ) -> Run:
        return self.product.bind(data, weight, out, bias, work, line)


class NormedPointwiseByWeight(NormedPointwise):
    """d_weight = d_out.T @ relu(data * factor + shift + added), and d_bias the sum of d_out's rows."""

    def __init__(self, g: Geometry, bias: bool, relu: bool, addend: str) -> None:
        if max(g.c, g.f) < PER_THREAD * num_threads():
            raise LookupError
        if g.dtype == float32 and (g.f > 2 * g.c or (g.c * g.f > NARROW and g.f > FEW_FILTERS)):
            raise LookupError
        r, line = _rows(g), generated.Line("y", relu, addend)
        x, y, out = Layout.dense(r, g.f).turned, Layout.dense(r, g.c), Layout.dense(g.f, g.c)
        super().__init__(g, x, y, out, line)
        self.sum_of = ColumnSum(r, g.f, g.dtype, g.dtype) if bias else None
        if self.sum_of is not None:
            self.bits = self.sum_of.bits
            self.pieces.append(((self.sum_of.nbytes,), _byte))

    def connect(
        self, d_out: Any, data: Any, d_weight: Any, d_bias: Any, work: Any, norm: PrologueArrays = NO_PROLOGUE
    ) -> Run:
        own, *more = carve(work, self.pieces)
        line = tuple(x for x in norm if x is not None)
        calls = [self.product.bind(d_out, data, d_weight, None, own, line)]
        if d_bias is not None and self.sum_of is not None:
            calls.append(self.sum_of.connect(d_out, d_bias, *more))
        return in_turn(calls)
