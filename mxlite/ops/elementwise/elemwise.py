"""Arithmetic of arrays of one shape: the meaning of `a + b` between symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...core.record import record
from ...graph.opdef import Op
from ..blocks import copy


class _Binary(Op):
    """Base: two arrays of one shape and dtype to a third, by numpy's `function` unless `forward` says how."""

    abstract = True
    inputs = ("lhs", "rhs")
    in_place = {"out": ("lhs", "rhs")}
    same_shape = True
    cheap = True
    accepts = "number"
    function: ClassVar[str]

    @classmethod
    def forward(cls, xp, a, lhs, rhs, *, out):
        getattr(xp, cls.function)(lhs, rhs, out=out)


class elemwise_add(_Binary):
    """Sum of two arrays of one shape, ``out = lhs + rhs``.

    lhs: (...);  rhs: (...)  ->  out: (...), all of one shape and dtype. No broadcasting: see broadcast_add.

    The gradient of both inputs *is* that of `out`: nothing is computed or copied.
    """

    aliases = ("_add", "_plus", "_Plus")
    gradient_is = {"lhs": "d_out", "rhs": "d_out"}
    function = "add"


class elemwise_sub(_Binary):
    """Difference of two arrays of one shape, ``out = lhs - rhs``.

    lhs: (...);  rhs: (...)  ->  out: (...), all of one shape and dtype. No broadcasting: see broadcast_sub.
    """

    aliases = ("_sub", "_minus", "_Minus")
    gradient_is = {"lhs": "d_out"}
    backward_in_place = {"d_rhs": "d_out"}
    function = "subtract"

    @staticmethod
    def backward(xp, a, d_out, *, d_rhs):
        xp.negative(d_out, out=d_rhs)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"rhs": w.negative(heads["out"])}


class elemwise_mul(_Binary):
    """Product of two arrays of one shape, ``out = lhs * rhs``.

    lhs: (...);  rhs: (...)  ->  out: (...), all of one shape and dtype. No broadcasting: see broadcast_mul.
    """

    aliases = ("_mul", "_Mul")
    backward_in_place = {"d_lhs": "d_out"}
    function = "multiply"

    @staticmethod
    def backward(xp, a, d_out, lhs, rhs, *, d_lhs, d_rhs):
        # d_lhs may alias d_out, so it comes last.
        if d_rhs is not None:
            xp.multiply(d_out, lhs, out=d_rhs)
        if d_lhs is not None:
            xp.multiply(d_out, rhs, out=d_lhs)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        d = heads["out"]
        return {"lhs": w.elemwise_mul(d, ins["rhs"]), "rhs": w.elemwise_mul(d, ins["lhs"])}


class elemwise_div(_Binary):
    """Quotient of two arrays of one shape, ``out = lhs / rhs``; of whole numbers it is cut towards 0.

    lhs: (...);  rhs: (...)  ->  out: (...), all of one shape and dtype. No broadcasting: see broadcast_div.

    The gradient reads `rhs` and `out`, so `lhs` may be overwritten.
    """

    aliases = ("_div", "_Div")
    in_place = {"out": "lhs"}
    backward_in_place = {"d_lhs": "d_out"}

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.divide(lhs, rhs, out=out, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, rhs, out, *, d_lhs, d_rhs):
        if d_rhs is not None:
            xp.multiply(d_out, out, out=d_rhs)
            xp.divide(d_rhs, rhs, out=d_rhs, casting="unsafe")
            xp.negative(d_rhs, out=d_rhs)
        if d_lhs is not None:
            xp.divide(d_out, rhs, out=d_lhs, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        by_lhs = w.elemwise_div(heads["out"], ins["rhs"])
        return {"lhs": by_lhs, "rhs": w.negative(w.elemwise_mul(by_lhs, outs["out"]))}


class add_n(Op):
    """Sum of any number of arrays of one shape, ``out = args[0] + args[1] + ...``, added from left to right.

    args: `num_args` arrays (...)  ->  out: (...), all of one shape and dtype.

    The gradient of every input *is* that of `out`.
    """

    aliases = ("ElementWiseSum", "_grad_add")
    variadic = "args"
    gradient_is = {"args": "d_out"}
    same_shape = True
    cheap = True
    accepts = "number"

    @record
    class Attrs:
        num_args: int

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        # Not over a later argument, which is still to be read.
        return {"out": ("arg0", "arg1")[: a.num_args]}

    @staticmethod
    def flops(a, inputs, outputs):
        return Op.flops(a, inputs[1:], inputs[1:])

    @staticmethod
    def forward(xp, a, *args, out):
        if len(args) == 1:
            copy(xp, args[0], out)
            return
        xp.add(args[0], args[1], out=out)
        for arg in args[2:]:
            xp.add(out, arg, out=out)
