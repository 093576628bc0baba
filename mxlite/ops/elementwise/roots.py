"""Powers, roots and logarithms of each element."""

from __future__ import annotations

import math

from ..blocks import pieces
from .unary import Real


class exp(Real):
    """Exponential, ``out = e**data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient, ``d_out * out``, does not read `data`.
    """

    backward_in_place = {"d_data": ("d_out", "out")}
    function = "exp"

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.multiply(d_out, out, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], outs["out"])}


class log(Real):
    """Natural logarithm; -inf at 0, nan below.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / data``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "log"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        xp.divide(d_out, data, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_div(heads["out"], ins["data"])}


class log1p(Real):
    """``out = log(1 + data)``, accurate near 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (1 + data)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "log1p"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.divide(d, x + 1, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_div(heads["out"], w._plus_scalar(ins["data"], scalar=1))}


class expm1(Real):
    """``out = e**data - 1``, accurate near 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (out + 1)``.
    """

    backward_in_place = {"d_data": ("d_out", "out")}
    function = "expm1"

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            xp.multiply(d, y + 1, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w._plus_scalar(outs["out"], scalar=1))}


class sqrt(Real):
    """Square root; nan below 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (2 * out)``: `data` is not read.
    """

    backward_in_place = {"d_data": ("d_out", "out")}
    function = "sqrt"

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.divide(d_out, out, out=d_data)
        xp.multiply(d_data, 0.5, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._mul_scalar(w.elemwise_div(heads["out"], outs["out"]), scalar=0.5)}


class rsqrt(Real):
    """Inverse square root, ``out = 1 / sqrt(data)``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * |out|**3 / 2``: `data` is not read.
    `out` is negative at -0 alone, where it is -inf, and the gradient is -inf as at 0.
    """

    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.sqrt(data, out=out)
        xp.divide(1.0, out, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            size = xp.absolute(y)
            xp.multiply(d, size, out=into)
            xp.multiply(into, size, out=into)
            xp.multiply(into, size, out=into)
            xp.multiply(into, -0.5, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        cube = w._power_scalar(w.abs(outs["out"]), scalar=3)
        return {"data": w._mul_scalar(w.elemwise_mul(heads["out"], cube), scalar=-0.5)}


class log2(Real):
    """Logarithm to base 2; -inf at 0, nan below.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (data * log(2))``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "log2"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.divide(d, x * math.log(2), out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w.elemwise_div(heads["out"], ins["data"])
        return {"data": w._mul_scalar(slope, scalar=1 / math.log(2))}


class log10(Real):
    """Logarithm to base 10; -inf at 0, nan below.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (data * log(10))``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "log10"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.divide(d, x * math.log(10), out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w.elemwise_div(heads["out"], ins["data"])
        return {"data": w._mul_scalar(slope, scalar=1 / math.log(10))}


class cbrt(Real):
    """Cube root, of negative numbers too.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (3 * out**2)``: `data` is not read.
    """

    backward_in_place = {"d_data": ("d_out", "out")}
    function = "cbrt"

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            slope = y * y
            slope *= 3
            xp.divide(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_div(heads["out"], w._mul_scalar(w.square(outs["out"]), scalar=3))}


class rcbrt(Real):
    """Inverse cube root, ``out = 1 / cbrt(data)``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * out**4 / 3``: `data` is not read.
    """

    backward_in_place = {"d_data": ("d_out", "out")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.cbrt(data, out=out)
        xp.divide(1.0, out, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            slope = y * y
            slope *= slope
            slope /= -3
            xp.multiply(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w._mul_scalar(w.square(w.square(outs["out"])), scalar=-1 / 3)
        return {"data": w.elemwise_mul(heads["out"], slope)}
