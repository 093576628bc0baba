"""erf and its inverse."""

from __future__ import annotations

import math

from ...te.error_function import erfinv_values
from ..blocks import pieces
from .unary import Real

SMALL = 1024  # elements at a time: some eight float64 temporaries of 8 KiB
_ROOT_PI = math.sqrt(math.pi)


class erf(Real):
    """Error function, ``out = 2 / sqrt(pi) * integral of exp(-t**2) from 0 to data``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * 2 / sqrt(pi) * exp(-data**2)``.
    """

    backward_reads = ("d_out", "data")
    flops_per_output = 60

    @staticmethod
    def compute(w, a, data):
        return {"out": w("erf", data)}


class erfinv(Real):
    """Inverse of the error function; infinite at -1 and 1, nan outside.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * sqrt(pi) / 2 * exp(out**2)``: `data`
    is not read.
    """

    backward_in_place = {"d_data": ("d_out", "out")}
    flops_per_output = 200

    @staticmethod
    def forward(xp, a, data, *, out):
        for y, into in pieces(data, out, size=SMALL):
            into[...] = erfinv_values(xp, y.astype("float64"), data.dtype.itemsize)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            slope = y * y
            xp.exp(slope, out=slope)
            xp.multiply(slope, _ROOT_PI / 2, out=slope)
            xp.multiply(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w._mul_scalar(w.exp(w.square(outs["out"])), scalar=_ROOT_PI / 2)
        return {"data": w.elemwise_mul(heads["out"], slope)}
