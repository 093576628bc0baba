"""Powers, roots and logarithms of each element."""

from __future__ import annotations

from .unary import Real


class exp(Real):
    """Exponential, ``out = e**data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient, ``d_out * out``, does not read `data`.
    """

    backward_reads = ("d_out", "out")
    function = "exp"


class log(Real):
    """Natural logarithm; -inf at 0, nan below.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / data``.
    """

    backward_reads = ("d_out", "data")
    function = "log"


class log1p(Real):
    """``out = log(1 + data)``, accurate near 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (1 + data)``.
    """

    backward_reads = ("d_out", "data")
    function = "log1p"


class expm1(Real):
    """``out = e**data - 1``, accurate near 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (out + 1)``.
    """

    backward_reads = ("d_out", "out")
    function = "expm1"


class sqrt(Real):
    """Square root; nan below 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (2 * out)``: `data` is not read.
    """

    backward_reads = ("d_out", "out")
    function = "sqrt"

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": heads["out"] / arrays["out"] * 0.5}


class rsqrt(Real):
    """Inverse square root, ``out = 1 / sqrt(data)``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * |out|**3 / 2``: `data` is not read.
    `out` is negative at -0 alone, where it is -inf, and the gradient is -inf as at 0.
    """

    backward_reads = ("d_out", "out")
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def compute(w, a, data):
        return {"out": w("rsqrt", data)}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        y = arrays["out"]
        return {"d_data": heads["out"] * y * y * w("abs", y) * -0.5}


class log2(Real):
    """Logarithm to base 2; -inf at 0, nan below.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (data * log(2))``.
    """

    backward_reads = ("d_out", "data")
    function = "log2"


class log10(Real):
    """Logarithm to base 10; -inf at 0, nan below.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (data * log(10))``.
    """

    backward_reads = ("d_out", "data")
    function = "log10"


class cbrt(Real):
    """Cube root, of negative numbers too.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (3 * out**2)``: `data` is not read.
    """

    backward_reads = ("d_out", "out")
    function = "cbrt"


class rcbrt(Real):
    """Inverse cube root, ``out = 1 / cbrt(data)``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * out**4 / 3``: `data` is not read.
    """

    backward_reads = ("d_out", "out")

    @staticmethod
    def compute(w, a, data):
        return {"out": 1 / w("cbrt", data)}

    @staticmethod
    def slope(w, a, y):
        square = y * y
        return square * square * (-1 / 3)
