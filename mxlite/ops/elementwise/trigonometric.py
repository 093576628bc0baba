"""Trigonometric and hyperbolic functions and their inverses; angles are in radians."""

from __future__ import annotations

import math

from ..blocks import pieces
from .unary import Real, Sloped


class sin(Sloped):
    """Sine of angles in radians.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * cos(data)``.
    """

    accepts = "float"
    function = "sin"
    slope = "cos"


class cos(Real):
    """Cosine of angles in radians.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * sin(data)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "cos"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = xp.sin(x)
            xp.negative(slope, out=slope)
            xp.multiply(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.negative(w.elemwise_mul(heads["out"], w.sin(ins["data"])))}


class tan(Real):
    """Tangent of angles in radians.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (1 + out**2)``: `data` is not read.
    """

    backward_in_place = {"d_data": ("d_out", "out")}
    function = "tan"

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            slope = y * y
            slope += 1
            xp.multiply(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w._plus_scalar(w.square(outs["out"]), scalar=1))}


class arcsin(Real):
    """Inverse sine in [-pi/2, pi/2]; nan outside [-1, 1].

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / sqrt(1 - data**2)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "arcsin"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = (1 - x) * (1 + x)
            xp.sqrt(slope, out=slope)
            xp.divide(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {
            "data": w.elemwise_mul(heads["out"], w.rsqrt(w._rminus_scalar(w.square(ins["data"]), scalar=1)))
        }


class arccos(Real):
    """Inverse cosine in [0, pi]; nan outside [-1, 1].

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out / sqrt(1 - data**2)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "arccos"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = (1 - x) * (1 + x)
            xp.sqrt(slope, out=slope)
            xp.negative(slope, out=slope)
            xp.divide(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w.negative(w.rsqrt(w._rminus_scalar(w.square(ins["data"]), scalar=1)))
        return {"data": w.elemwise_mul(heads["out"], slope)}


class arctan(Real):
    """Inverse tangent in (-pi/2, pi/2).

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (1 + data**2)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "arctan"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = x * x
            slope += 1
            xp.divide(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_div(heads["out"], w._plus_scalar(w.square(ins["data"]), scalar=1))}


class sinh(Sloped):
    """Hyperbolic sine, ``out = (e**data - e**-data) / 2``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * cosh(data)``.
    """

    accepts = "float"
    function = "sinh"
    slope = "cosh"


class cosh(Sloped):
    """Hyperbolic cosine, ``out = (e**data + e**-data) / 2``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * sinh(data)``.
    """

    accepts = "float"
    function = "cosh"
    slope = "sinh"


class arcsinh(Real):
    """Inverse hyperbolic sine.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / sqrt(data**2 + 1)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "arcsinh"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.divide(d, xp.hypot(x, 1), out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_div(heads["out"], w._hypot_scalar(ins["data"], scalar=1))}


class arccosh(Real):
    """Inverse hyperbolic cosine; nan below 1.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / sqrt(data**2 - 1)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "arccosh"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = (x - 1) * (x + 1)
            xp.sqrt(slope, out=slope)
            xp.divide(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {
            "data": w.elemwise_mul(heads["out"], w.rsqrt(w._minus_scalar(w.square(ins["data"]), scalar=1)))
        }


class arctanh(Real):
    """Inverse hyperbolic tangent; infinite at -1 and 1, nan outside.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (1 - data**2)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}
    function = "arctanh"

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = (1 - x) * (1 + x)
            xp.divide(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_div(heads["out"], w._rminus_scalar(w.square(ins["data"]), scalar=1))}


class degrees(Real):
    """Angles in degrees of angles in radians, ``out = data * 180 / pi``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient reads no input.
    """

    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.multiply(data, 180 / math.pi, out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.multiply(d_out, 180 / math.pi, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._mul_scalar(heads["out"], scalar=180 / math.pi)}


class radians(Real):
    """Angles in radians of angles in degrees, ``out = data * pi / 180``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient reads no input.
    """

    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.multiply(data, math.pi / 180, out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.multiply(d_out, math.pi / 180, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._mul_scalar(heads["out"], scalar=math.pi / 180)}
