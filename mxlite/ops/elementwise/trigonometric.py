"""Trigonometric and hyperbolic functions and their inverses; angles are in radians."""

from __future__ import annotations

import math

from .unary import Real


class sin(Real):
    """Sine of angles in radians.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * cos(data)``.
    """

    backward_reads = ("d_out", "data")
    function = "sin"


class cos(Real):
    """Cosine of angles in radians.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * sin(data)``.
    """

    backward_reads = ("d_out", "data")
    function = "cos"


class tan(Real):
    """Tangent of angles in radians.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (1 + out**2)``: `data` is not read.
    """

    backward_reads = ("d_out", "out")
    function = "tan"


class arcsin(Real):
    """Inverse sine in [-pi/2, pi/2]; nan outside [-1, 1].

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / sqrt(1 - data**2)``.
    """

    backward_reads = ("d_out", "data")
    function = "arcsin"


class arccos(Real):
    """Inverse cosine in [0, pi]; nan outside [-1, 1].

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out / sqrt(1 - data**2)``.
    """

    backward_reads = ("d_out", "data")
    function = "arccos"


class arctan(Real):
    """Inverse tangent in (-pi/2, pi/2).

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (1 + data**2)``.
    """

    backward_reads = ("d_out", "data")
    function = "arctan"


class sinh(Real):
    """Hyperbolic sine, ``out = (e**data - e**-data) / 2``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * cosh(data)``.
    """

    backward_reads = ("d_out", "data")
    function = "sinh"


class cosh(Real):
    """Hyperbolic cosine, ``out = (e**data + e**-data) / 2``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * sinh(data)``.
    """

    backward_reads = ("d_out", "data")
    function = "cosh"


class arcsinh(Real):
    """Inverse hyperbolic sine.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / sqrt(data**2 + 1)``.
    """

    backward_reads = ("d_out", "data")
    function = "arcsinh"


class arccosh(Real):
    """Inverse hyperbolic cosine; nan below 1.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / sqrt(data**2 - 1)``.
    """

    backward_reads = ("d_out", "data")
    function = "arccosh"


class arctanh(Real):
    """Inverse hyperbolic tangent; infinite at -1 and 1, nan outside.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (1 - data**2)``.
    """

    backward_reads = ("d_out", "data")
    function = "arctanh"


class degrees(Real):
    """Angles in degrees of angles in radians, ``out = data * 180 / pi``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient reads no input.
    """

    backward_reads = ("d_out",)

    @staticmethod
    def compute(w, a, data):
        return {"out": data * (180 / math.pi)}


class radians(Real):
    """Angles in radians of angles in degrees, ``out = data * pi / 180``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient reads no input.
    """

    backward_reads = ("d_out",)

    @staticmethod
    def compute(w, a, data):
        return {"out": data * (math.pi / 180)}
