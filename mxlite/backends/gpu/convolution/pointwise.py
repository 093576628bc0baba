"""Convolutions of one tap and stride 1, channels last, as matrix products: nothing is copied.

With data (M, C), weight (F, C) and output (M, F), M counting samples and positions: output = data @ weight.T,
d_data = d_out @ weight, d_weight = d_out.T @ data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ....ops.nn.conv_kernels import Geometry
from ..matrix import gemm
from ..matrix.gemm import Product
from ..runtime.device import Device, Run
from .by_cudnn import DATA, Tail, WEIGHT


@dataclass(frozen=True)
class Pointwise:
    """One direction as a product; arrays are passed as in Gather and Correlate."""

    device: Device
    kind: str
    product: Product

    @property
    def name(self) -> str:
        return gemm.kernel_name(self.device, self.product)

    @property
    def nbytes(self) -> int:
        return gemm.workspace(self.device, self.product)

    @property
    def launches(self) -> int:
        return gemm.launches(self.device, self.product)

    def fits(self) -> bool:
        return gemm.fits(self.product)

    def connect(self, first: Any, second: Any, out: Any, work: Any, **tail: Any) -> Run:
        """The call. `first`, `second`: data and weight, d_out and weight, or data and d_out."""
        at = self.device.address
        a, b = (second, first) if self.kind == WEIGHT else (first, second)
        scratch = at(work) if self.nbytes else 0
        more, added = (0 if x is None else at(x) for x in (tail.get("bias"), tail.get("addend")))
        return gemm.product(self.device, self.product, at(a), at(b), at(out), more, scratch, added=added)


def finished(p: Product, tail: Tail) -> Product:
    """The product with its epilogue."""
    bias, activation = "columns" if tail.bias else "", "relu" if tail.relu else ""
    return replace(p, bias=bias, activation=activation, beta=1.0 if tail.addend else 0.0)


def pointwise(device: Device, kind: str, g: Geometry, last: bool, tail: Tail) -> Pointwise | None:
    """The direction `kind` as a product, if it is one whose epilogue a product supports."""
    if not last or g.groups != 1 or any(g.pad) or {*g.kernel, *g.stride} != {1}:
        return None
    m, dtype = g.n * prod(g.out), str(g.dtype)
    if 0 in (m, g.c, g.f):
        return None
    if kind == WEIGHT:
        p = Product(g.f, g.c, m, dtype, trans_a=True)
    elif kind == DATA:
        p = Product(m, g.c, g.f, dtype)
    else:
        p = Product(m, g.f, g.c, dtype, trans_b=True)
    p = finished(p, tail)
    found = Pointwise(device, kind, p)
    return found if found.fits() else None
