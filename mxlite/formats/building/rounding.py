"""Rounding to whole numbers."""

from __future__ import annotations

from .value import GraphValue


def rounded(x: GraphValue) -> GraphValue:
    """The nearest whole numbers; halves go to the even one. (MXNet's rint takes them down.)"""
    b = x.builder
    low = b.op("rint", x)
    odd = b.op("_mod_scalar", low, scalar=2.0)
    return b.where(b.binary("sub", x, low).equals(0.5), b.binary("add", low, odd), low)
