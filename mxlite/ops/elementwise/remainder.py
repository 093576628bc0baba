"""Remainders of divisions: of two arrays, with broadcasting, and of an array and a number.

Of whole numbers a remainder has no slope: all its gradients are 0, as in MXNet.
"""

from __future__ import annotations

from .broadcast import Broadcast
from .scalar import number_of, Scalar


def _slope(w, d, count=None):
    """The gradient `d` times `count`, 0 of whole numbers."""
    if w.dtype is None:  # a factor of 0.5 is cut to 0 for these
        d = d * w.constant(0.5) * w.constant(2.0)
    elif w.dtype.kind in "iu":
        return w.number(0.0)
    return d if count is None else d * count


def _has_other_sign(w, rest, y):
    """1 where a rest, which is not 0, lies on the other side of 0 than y."""
    return w.one_where("lt", w("sign", rest) * y, 0.0)


def _rest(w, x, y):
    """The rest of x / y with the sign of y, also of 0; 0 where y is 0."""
    rest = w("fmod", x, y)
    signed = w("select", w("ne", _has_other_sign(w, rest, y), 0.0), rest + y, rest)
    signed = w("select", w("eq", rest, 0.0), w("sign", y) * 0.0, signed)
    return w("select", w("eq", y, 0.0), 0.0, signed)


def _floor_divided(w, x, y):
    """The whole number below x / y, from the rest, since the quotient may be rounded up to it."""
    rest = w("fmod", x, y)
    quotient = (x - rest) / y - _has_other_sign(w, rest, y)
    whole = w("floor", quotient)
    whole = w("select", w("gt", quotient - whole, 0.5), whole + 1, whole)
    whole = w("select", w("eq", quotient, 0.0), x / y * 0.0, whole)
    return w("select", w("eq", y, 0.0), x / y, whole)


class broadcast_mod(Broadcast):
    """Remainder of ``lhs / rhs`` with the sign of `rhs`, as Python's ``%``; 0 where `rhs` is 0.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients: `d_out` and
    ``-d_out * floor(lhs / rhs)``; 0 for whole numbers.
    """

    in_place = {"out": "lhs"}
    backward_reads = ("d_out", "lhs", "rhs")
    aliases = ("_mod", "_Mod")

    @staticmethod
    def compute(w, a, lhs, rhs):
        return {"out": _rest(w, lhs, rhs)}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        d, count = heads["out"], -_floor_divided(w, arrays["lhs"], arrays["rhs"])
        return {"d_lhs": _slope(w, d), "d_rhs": _slope(w, d, count)}


class fmod(Broadcast):
    """Remainder of ``lhs / rhs`` with the sign of `lhs`, as C's fmod, with broadcasting; see broadcast_mod.

    lhs, rhs: shapes that broadcast  ->  out: their common shape. Gradients: `d_out` and
    ``-d_out * trunc(lhs / rhs)``; 0 for whole numbers. As numpy's and ONNX's (Mod with fmod=1).
    """

    in_place = {"out": "lhs"}
    backward_reads = ("d_out", "lhs", "rhs")
    aliases = ("broadcast_fmod",)
    function = "fmod"

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        d, count = heads["out"], -w("trunc", arrays["lhs"] / arrays["rhs"])
        return {"d_lhs": _slope(w, d), "d_rhs": _slope(w, d, count)}


class _mod_scalar(Scalar):
    """Remainder of ``data / scalar`` with the sign of `scalar`, as Python's ``%``; 0 where `scalar` is 0.

    data: (...)  ->  out: (...). Gradient `d_out`; 0 for whole numbers.
    """

    backward_reads = ("d_out",)
    aliases = ("_ModScalar",)

    @staticmethod
    def compute(w, a, data):
        return {"out": _rest(w, data, number_of(w, a))}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": _slope(w, heads["out"])}


class _rmod_scalar(Scalar):
    """Remainder of ``scalar / data`` with the sign of `data`, as Python's ``%``; 0 where `data` is 0.

    data: (...)  ->  out: (...). Gradient ``-d_out * floor(scalar / data)``; 0 for whole numbers.
    """

    backward_reads = ("d_out", "data")
    aliases = ("_RModScalar",)

    @staticmethod
    def compute(w, a, data):
        return {"out": _rest(w, number_of(w, a), data)}

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return {"d_data": _slope(w, heads["out"], -_floor_divided(w, number_of(w, a), arrays["data"]))}
