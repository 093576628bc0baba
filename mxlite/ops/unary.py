"""Functions of each element of one array."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.opdef import Op
from .blocks import copy, pieces


class _Unary(Op):
    """One array to another of its shape and dtype."""

    inputs = ("data",)
    in_place = {"out": "data"}
    same_shape = True
    cheap = True


class _Real(_Unary):
    """A function of real numbers: the dtype must be floating."""

    accepts = "float"


class exp(_Real):
    """Exponential, ``out = e**data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient, ``d_out * out``, does not read `data`.
    """

    backward_in_place = {"d_data": ("d_out", "out")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.exp(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.multiply(d_out, out, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], outs["out"])}


class log(_Real):
    """Natural logarithm; -inf at 0, nan below.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / data``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.log(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        xp.divide(d_out, data, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_div(heads["out"], ins["data"])}


class log1p(_Real):
    """``out = log(1 + data)``, accurate near 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (1 + data)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.log1p(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.divide(d, x + 1, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_div(heads["out"], w._plus_scalar(ins["data"], scalar=1))}


class expm1(_Real):
    """``out = e**data - 1``, accurate near 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * (out + 1)``.
    """

    backward_in_place = {"d_data": ("d_out", "out")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.expm1(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        for d, y, into in pieces(d_out, out, d_data):
            xp.multiply(d, y + 1, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w._plus_scalar(outs["out"], scalar=1))}


class sqrt(_Real):
    """Square root; nan below 0.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out / (2 * out)``: `data` is not read.
    """

    backward_in_place = {"d_data": ("d_out", "out")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.sqrt(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.divide(d_out, out, out=d_data)
        xp.multiply(d_data, 0.5, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._mul_scalar(w.elemwise_div(heads["out"], outs["out"]), scalar=0.5)}


class rsqrt(_Real):
    """Inverse square root, ``out = 1 / sqrt(data)``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * out**3 / 2``: `data` is not read.
    """

    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.sqrt(data, out=out)
        xp.divide(1.0, out, out=out)

    @staticmethod
    def backward(xp, a, d_out, out, *, d_data):
        xp.multiply(d_out, out, out=d_data)
        xp.multiply(d_data, out, out=d_data)
        xp.multiply(d_data, out, out=d_data)
        xp.multiply(d_data, -0.5, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        cube = w._power_scalar(outs["out"], scalar=3)
        return {"data": w._mul_scalar(w.elemwise_mul(heads["out"], cube), scalar=-0.5)}


class reciprocal(_Real):
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


class square(_Unary):
    """``out = data**2``.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``2 * d_out * data``.
    """

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


class abs(_Unary):
    """Absolute value.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * sign(data)``, 0 at 0.
    """

    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.absolute(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.multiply(d, xp.sign(x), out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w.sign(ins["data"]))}


class negative(_Unary):
    """``out = -data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient reads no input.
    """

    aliases = ("_np_negative",)
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.negative(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.negative(d_out, out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.negative(heads["out"])}


class sin(_Real):
    """Sine of angles in radians.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``d_out * cos(data)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.sin(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            xp.multiply(d, xp.cos(x), out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.elemwise_mul(heads["out"], w.cos(ins["data"]))}


class cos(_Real):
    """Cosine of angles in radians.

    data: (...)  ->  out: (...), same shape and dtype. Gradient ``-d_out * sin(data)``.
    """

    backward_in_place = {"d_data": ("d_out", "data")}

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.cos(data, out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            slope = xp.sin(x)
            xp.negative(slope, out=slope)
            xp.multiply(d, slope, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.negative(w.elemwise_mul(heads["out"], w.sin(ins["data"])))}


class sign(_Unary):
    """-1, 0 or 1.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.sign(data, out=out)


class floor(_Unary):
    """The largest whole number not above each element.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.floor(data, out=out, casting="unsafe")


class ceil(_Unary):
    """The smallest whole number not below each element.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.ceil(data, out=out, casting="unsafe")


class round(_Unary):
    """The nearest whole number, halves away from zero: 0.5 gives 1, -0.5 gives -1, 2.5 gives 3.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        # The part cut off, doubled and cut again, is the step outwards: adding 0.5 first would round wrong
        # the largest number below 0.5.
        for x, into in pieces(data, out):
            whole = xp.trunc(x)
            step = x - whole
            xp.add(step, step, out=step)
            xp.trunc(step, out=step)
            xp.add(whole, step, out=into)


class rint(_Unary):
    """The nearest whole number, halves down: 0.5 gives 0, 1.5 gives 1, -0.5 gives -1.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        for x, into in pieces(data, out):
            below = xp.floor(x)
            xp.add(below, x - below > 0.5, out=into, casting="unsafe")


class _copy(_Unary):
    """The same array: ``out = data``.

    data: (...)  ->  out: (...), same shape and dtype. The gradient of `data` *is* that of `out`.
    """

    aliases = ("identity",)
    gradient_is = {"data": "d_out"}

    @staticmethod
    def flops(a, inputs, outputs):
        return 0

    @staticmethod
    def forward(xp, a, data, *, out):
        copy(xp, data, out)


class zeros_like(_Unary):
    """Zeros in the shape of `data`.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        out.fill(0)


class ones_like(_Unary):
    """Ones in the shape of `data`.

    data: (...)  ->  out: (...), same shape and dtype. No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        out.fill(1)


class clip(_Unary):
    """Each element moved into [`a_min`, `a_max`].

    data: (...)  ->  out: (...), same shape and dtype. The gradient is `d_out` where
    ``a_min <= data <= a_max``, 0 elsewhere.
    """

    backward_in_place = {"d_data": ("d_out", "data")}

    @dataclass(frozen=True)
    class Attrs:
        a_min: float
        a_max: float

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.maximum(data, data.dtype.type(a.a_min), out=out)
        xp.minimum(out, data.dtype.type(a.a_max), out=out)

    @staticmethod
    def backward(xp, a, d_out, data, *, d_data):
        for d, x, into in pieces(d_out, data, d_data):
            inside = x >= a.a_min
            inside &= x <= a.a_max
            xp.multiply(d, inside, out=into)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        x = ins["data"]
        inside = w.elemwise_mul(
            w._greater_equal_scalar(x, scalar=a.a_min), w._lesser_equal_scalar(x, scalar=a.a_max)
        )
        return {"data": w.elemwise_mul(heads["out"], inside)}
