"""Arithmetic of arrays of one shape: the meaning of `a + b` between symbols."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any, ClassVar

from ...core.record import record
from ...graph.opdef import Op
from ..blocks import copy
from .elementwise import Elementwise


class _Binary(Elementwise):
    """Base: two arrays of one shape and dtype to a third."""

    abstract = True
    inputs = ("lhs", "rhs")
    in_place = {"out": ("lhs", "rhs")}
    same_shape = True
    accepts = "number"
    gradients: ClassVar[tuple[str, ...]] = ("lhs", "rhs")

    @classmethod
    def called(cls, xp, a, lhs, rhs, *, out):
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

    gradients = ("rhs",)
    backward_reads = ("d_out",)
    aliases = ("_sub", "_minus", "_Minus")
    gradient_is = {"lhs": "d_out"}
    backward_in_place = {"d_rhs": "d_out"}
    function = "subtract"


class elemwise_mul(_Binary):
    """Product of two arrays of one shape, ``out = lhs * rhs``.

    lhs: (...);  rhs: (...)  ->  out: (...), all of one shape and dtype. No broadcasting: see broadcast_mul.
    """

    backward_reads = ("d_out", "lhs", "rhs")
    aliases = ("_mul", "_Mul")
    backward_in_place = {"d_lhs": "d_out"}
    function = "multiply"


class elemwise_div(_Binary):
    """Quotient of two arrays of one shape, ``out = lhs / rhs``; of whole numbers it is cut towards 0.

    lhs: (...);  rhs: (...)  ->  out: (...), all of one shape and dtype. No broadcasting: see broadcast_div.

    The gradient reads `rhs` and `out`, so `lhs` may be overwritten.
    """

    backward_reads = ("d_out", "rhs", "out")
    aliases = ("_div", "_Div")
    in_place = {"out": "lhs"}
    backward_in_place = {"d_lhs": "d_out"}

    @staticmethod
    def compute(w, a, lhs, rhs):
        return {"out": lhs / rhs}


class add_n(Elementwise):
    """Sum of any number of arrays of one shape, ``out = args[0] + args[1] + ...``, added from left to right.

    args: `num_args` arrays (...)  ->  out: (...), all of one shape and dtype.

    The gradient of every input *is* that of `out`.
    """

    aliases = ("ElementWiseSum", "_grad_add")
    variadic = "args"
    gradient_is = {"args": "d_out"}
    same_shape = True
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
    def compute(w, a, **args):
        return {"out": functools.reduce(operator.add, args.values())}

    @staticmethod
    def forward(xp, a, *args, out):
        if len(args) == 1:
            copy(xp, args[0], out)
            return
        xp.add(args[0], args[1], out=out)
        for arg in args[2:]:
            xp.add(out, arg, out=out)
