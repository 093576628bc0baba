"""Elementwise operators whose steps only this backend has: the gamma function and its kin, and bits."""

from __future__ import annotations

from functools import partial
from math import pi, sqrt
from typing import Any

from .....ops import find_op
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating
from ...rows import gradient_of, table
from ...runtime.device import Device
from .elementwise import loop, looped

_VALUES: dict[str, Any] = {
    **{n: lambda w, a, x, n=n: w(n, x) for n in ("gamma", "gammaln", "erfinv")},
    "digamma": lambda w, a, x: w("polygamma", 0, x),
    "polygamma": lambda w, a, x: w("polygamma", a.n, x),
}
_SLOPES: dict[str, Any] = {
    "gamma": lambda w, a, d, x, y: d * (y * w("polygamma", 0, x)),
    "gammaln": lambda w, a, d, x: d * w("polygamma", 0, x),
    "digamma": lambda w, a, d, x: d * w("polygamma", 1, x),
    "polygamma": lambda w, a, d, x: d * w("polygamma", a.n + 1, x),
    "erfinv": lambda w, a, d, y: d * (w("exp", y * y) * (sqrt(pi) / 2)),
}
"""The gradient, of what `backward` needs."""
_BITS = "bitwise_and bitwise_or bitwise_xor bitwise_not left_shift right_shift".split()


def _row(device: Device, r: Request, formula: Any, is_bits: bool = False) -> ChosenKernel | None:
    names, shapes, dtypes = r.op.signature.needs, r.inputs, r.dtypes
    if len(names) != len(shapes):  # a gradient, of arrays that are alike
        shapes, dtypes = shapes * len(names), dtypes * len(names)
    if is_bits == floating(r.dtype):
        return None
    made = loop(device, lambda w, *x: formula(w, r.attrs, *x), shapes, dtypes, r.outputs[0], r.dtype)
    return looped(r, made, "cuda function")


def _bits_row(device: Device, r: Request) -> ChosenKernel | None:
    is_not = r.op.op_name == "bitwise_not" and r.dtype.kind == "b"
    steps = (lambda w, a, x: w.zero_where("ne", x, 0.0)) if is_not else lambda w, a, *x: w(r.op.op_name, *x)
    return _row(device, r, steps, is_bits=True)


rows = table(
    *((find_op(n), partial(_row, formula=f), None) for n, f in _VALUES.items()),
    *((gradient_of(find_op(n)), partial(_row, formula=f), None) for n, f in _SLOPES.items()),
    *((find_op(n), _bits_row, None) for n in _BITS),
)
