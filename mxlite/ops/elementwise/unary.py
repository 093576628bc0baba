"""Functions of each element of one array."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...core.record import record
from ...graph.opdef import Op
from ..blocks import copy, pieces, require_finite


class Unary(Op):
    """Base: one array to another of its shape and dtype, by numpy's `function` unless `forward` says how."""

    abstract = True
    inputs = ("data",)
    in_place = {"out": "data"}
    same_shape = True
    cheap = True
    function: ClassVar[str]

    @classmethod
    def forward(cls, xp, a, data, *, out):
        getattr(xp, cls.function)(data, out=out)


class Real(Unary):
    """Base: a function of real numbers; the dtype must be floating."""

    abstract = True
    accepts = "float"


class Sloped(Unary):
    """Base: the gradient is ``d_out * slope(data)``; `slope` names a function of numpy and an operator."""

    abstract = True
    backward_in_place = {"d_data": ("d_out", "data")}
    slope: ClassVar[str]

    @classmethod
    def backward(cls, xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.multiply(d, getattr(xp, cls.slope)(x), out=into)

    @classmethod
    def derivative(cls, w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], getattr(w, cls.slope)(ins["data"]))}


class reciprocal(Real):
    """``out = 1 / data``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * out**2``: `data` is not read.
    """

    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.divide(1.0, data, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.multiply(d_out, out, out=d_data)
        xp.multiply(d_data, out, out=d_data)
        xp.negative(d_data, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.negative(w.elemwise_mul(heads["out"], w.square(outs["out"])))}


class square(Unary):
    """``out = data**2``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``2 * d_out * data``.
    """

    accepts = "number"
    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.multiply(data, data, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        xp.multiply(d_out, data, out=d_data)
        xp.multiply(d_data, 2, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._mul_scalar(w.elemwise_mul(heads["out"], ins["data"]), scalar=2)}


class abs(Sloped):
    """Absolute value.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * sign(data)``, 0 at 0.
    """

    function = "absolute"
    slope = "sign"


class negative(Unary):
    """``out = -data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient reads no input.
    """

    accepts = "number"
    aliases = ("_np_negative",)
    backward_in_place = {"d_data": "d_out"}
    function = "negative"

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.negative(d_out, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.negative(heads["out"])}


class sign(Unary):
    """-1, 0 or 1.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    accepts = "number"
    function = "sign"


class floor(Unary):
    """The largest whole number not above each element.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.floor(data, out=out, casting="unsafe")


class ceil(Unary):
    """The smallest whole number not below each element.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.ceil(data, out=out, casting="unsafe")


class round(Unary):
    """The nearest whole number, halves away from zero: 0.5 gives 1, -0.5 gives -1, 2.5 gives 3.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    accepts = "number"

    @staticmethod
    def forward(xp, a, data, *, out):
        # The part cut off, doubled and cut again, is the step outwards: adding 0.5 first would round wrong
        # the largest number below 0.5. It is subtracted, so that -0.0 stays what it is.
        for x, into in pieces(data, out):
            whole = xp.trunc(x)
            inwards = whole - x
            xp.copyto(inwards, 0, where=inwards != inwards)  # an infinite number is whole; inf - inf is nan
            xp.add(inwards, inwards, out=inwards)
            xp.trunc(inwards, out=inwards)
            xp.subtract(whole, inwards, out=into)


class rint(Unary):
    """The nearest whole number, halves down: 0.5 gives 0, 1.5 gives 1, -0.5 gives -1.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    accepts = "number"

    @staticmethod
    def forward(xp, a, data, *, out):
        for x, into in pieces(data, out):
            below, above = xp.floor(x), xp.ceil(x)
            # Near 0 one of the distances is rounded to 0.5, never both.
            xp.copyto(above, below, where=x - below <= above - x)
            xp.copyto(into, above, casting="unsafe")


class trunc(Unary):
    """The whole part: the nearest whole number towards 0.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.trunc(data, out=out, casting="unsafe")


class fix(Unary):
    """The nearest whole number towards 0, as `trunc`.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.trunc(data, out=out, casting="unsafe")


class Copy(Unary):
    """The same array: ``out = data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient of `data` *is* that of `out`.
    """

    op_name = "_copy"
    aliases = ("identity", "_copyto")
    gradient_is = {"data": "d_out"}
    flops_per_output = 0

    @staticmethod
    def forward(xp, a, data, *, out):
        copy(xp, data, out)


class zeros_like(Unary):
    """Zeros in the shape of `data`.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    shape_only = ("data",)

    @staticmethod
    def forward(xp, a, data, *, out):
        out.fill(0)


class ones_like(Unary):
    """Ones in the shape of `data`.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    shape_only = ("data",)

    @staticmethod
    def forward(xp, a, data, *, out):
        out.fill(1)


def _bound_in(dtype, value):
    """`value` as a number of `dtype`: for whole numbers cut, and clipped to the type's range."""
    if dtype.kind not in "iu":
        return dtype.type(value)
    limits = np.iinfo(dtype)
    return dtype.type(
        limits.min if value <= limits.min else limits.max if value >= limits.max else int(value)
    )


class clip(Unary):
    """Each element moved into [`a_min`, `a_max`].

    data: (...)  ->  out: (...), same shape and dtype. The gradient is `d_out` where
    ``a_min <= data <= a_max`` or data is nan, 0 elsewhere.
    """

    backward_in_place = {"d_data": ("d_out", "data")}

    @record
    class Attrs:
        a_min: float
        a_max: float

    @classmethod
    def infer_type(cls, a, *dtypes):
        for name, bound in (("a_min", a.a_min), ("a_max", a.a_max)):
            if bound != bound:  # nan; infinity is an ordinary bound
                require_finite(bound, dtypes[0], name)
        return super().infer_type(a, *dtypes)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.maximum(data, _bound_in(data.dtype, a.a_min), out=out)
        xp.minimum(out, _bound_in(data.dtype, a.a_max), out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            outside = x < a.a_min
            outside |= x > a.a_max
            xp.multiply(d, ~outside, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        x = ins["data"]
        outside = w.elemwise_add(w._lesser_scalar(x, scalar=a.a_min), w._greater_scalar(x, scalar=a.a_max))
        return {"data": w.elemwise_mul(heads["out"], w._rminus_scalar(outside, scalar=1.0))}


class softsign(Real):
    """``out = data / (1 + |data|)``, between -1 and 1.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (1 - |out|)**2``.
    """

    backward_in_place = {"d_data": ("d_out", "out")}

    @staticmethod
    def forward(xp, a, data, *, out):
        for x, into in pieces(data, out):
            size = xp.absolute(x)
            size += 1
            xp.divide(x, size, out=into)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            slope = xp.absolute(y)
            xp.subtract(1, slope, out=slope)
            slope *= slope
            xp.multiply(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w.square(w._rminus_scalar(w.abs(outs["out"]), scalar=1))
        return {"data": w.elemwise_mul(heads["out"], slope)}


class hard_sigmoid(Real):
    """``out = max(0, min(1, alpha * data + beta))``: a sigmoid of three straight lines.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * alpha`` where
    ``0 < out < 1`` or out is nan, else 0: `data` is not read.
    """

    backward_in_place = {"d_data": ("d_out", "out")}

    @record
    class Attrs:
        alpha: float = 0.2
        beta: float = 0.5

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.multiply(data, a.alpha, out=out)
        xp.add(out, a.beta, out=out)
        xp.maximum(out, 0, out=out)
        xp.minimum(out, 1, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            flat = (y <= 0) | (y >= 1)
            xp.multiply(d, ~flat, out=into)
            xp.multiply(into, a.alpha, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        y = outs["out"]
        flat = w.elemwise_add(w._lesser_equal_scalar(y, scalar=0), w._greater_equal_scalar(y, scalar=1))
        inside = w._rminus_scalar(flat, scalar=1.0)
        return {"data": w._mul_scalar(w.elemwise_mul(heads["out"], inside), scalar=a.alpha)}


class _contrib_quadratic(Unary):
    """``out = a * data**2 + b * data + c``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (2 * a * data + b)``.
    """

    accepts = "number"
    backward_in_place = {"d_data": ("d_out", "data")}

    @record
    class Attrs:
        a: float = 0.0
        b: float = 0.0
        c: float = 0.0

    @staticmethod
    def forward(xp, a, data, *, out):
        for x, into in pieces(data, out):
            result = x * a.a
            result += a.b
            result *= x
            xp.add(result, a.c, out=into, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = x * (2 * a.a)
            slope += a.b
            xp.multiply(d, slope, out=into, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        slope = w._plus_scalar(w._mul_scalar(ins["data"], scalar=2 * a.a), scalar=a.b)
        return {"data": w.elemwise_mul(heads["out"], slope)}
