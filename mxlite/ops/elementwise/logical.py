"""Comparisons and logic of each element, with broadcasting and without.

The result is 1 or 0 in the operands' dtype, as in MXNet; for bool it is bool. None has a gradient.
"""

from __future__ import annotations

import math
from typing import Any

from ...core.dtype import is_floating
from ...core.errors import DTypeError
from ...te.steps import STEPS
from .broadcast import Broadcast
from .scalar import number_of, Scalar
from .unary import Unary


def require_whole(dtypes, wanted):
    """Raise DTypeError where one is known and floating, or bool where `wanted` has no bool."""
    for d in dtypes:
        if d is not None and (is_floating(d) or (d.kind == "b" and "bool" not in wanted)):
            raise DTypeError(f"needs {wanted}, got {d}; convert with Cast (astype), to int32 for instance.")


def _truth(w: Any, function: str, x: Any, y: Any) -> Any:
    """1 where the comparison or logical function of this name holds, else 0."""
    if function not in _LOGIC:
        return w.one_where(STEPS[function], x, y)
    x, y = (w.one_where("ne", v, 0.0) for v in (x, y))
    return w.one_where("ne", x, y) if function == "logical_xor" else w(_LOGIC[function], x, y)


_LOGIC = {"logical_and": "min", "logical_or": "max", "logical_xor": "ne"}
"""The step of numbers 0 and 1 that each logical function is."""


class _Compare(Broadcast):
    """Base: comparison of two arrays whose shapes broadcast; the result is 0 or 1."""

    abstract = True
    accepts = "any"

    @classmethod
    def can_step(cls):
        return True

    @classmethod
    def stepped(cls, w, a, **inputs):
        return {"out": _truth(w, cls.function, *inputs.values())}


class _Bits(Broadcast):
    """Base: bitwise operation on two arrays of whole numbers."""

    abstract = True
    accepts = "any"
    accepts_bool = True

    @classmethod
    def infer_type(cls, a, *dtypes):
        require_whole(dtypes, "bool or whole numbers" if cls.accepts_bool else "whole numbers")
        return super().infer_type(a, *dtypes)


class _CompareScalar(Scalar):
    """Base: comparison of an array and a number; the result is 0 or 1."""

    abstract = True
    accepts = "any"
    any_scalar = True

    @classmethod
    def can_step(cls):
        return True

    @classmethod
    def stepped(cls, w, a, **inputs):
        (x,) = inputs.values()
        return {"out": _truth(w, cls.function, x, number_of(w, a))}


class broadcast_equal(_Compare):
    """1 where ``lhs == rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_equal", "_Equal")
    function = "equal"


class broadcast_not_equal(_Compare):
    """1 where ``lhs != rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_not_equal", "_Not_Equal")
    function = "not_equal"


class broadcast_greater(_Compare):
    """1 where ``lhs > rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_greater", "_Greater")
    function = "greater"


class broadcast_greater_equal(_Compare):
    """1 where ``lhs >= rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_greater_equal", "_Greater_Equal")
    function = "greater_equal"


class broadcast_lesser(_Compare):
    """1 where ``lhs < rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_lesser", "_Lesser")
    function = "less"


class broadcast_lesser_equal(_Compare):
    """1 where ``lhs <= rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_lesser_equal", "_Lesser_Equal")
    function = "less_equal"


class broadcast_logical_and(_Compare):
    """1 where both are not 0, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_logical_and", "_Logical_And", "logical_and")
    function = "logical_and"


class broadcast_logical_or(_Compare):
    """1 where one is not 0 or both are, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_logical_or", "_Logical_Or", "logical_or")
    function = "logical_or"


class broadcast_logical_xor(_Compare):
    """1 where exactly one is not 0, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_logical_xor", "_Logical_Xor", "logical_xor")
    function = "logical_xor"


class _equal_scalar(_CompareScalar):
    """1 where ``data == scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_EqualScalar",)
    function = "equal"


class _not_equal_scalar(_CompareScalar):
    """1 where ``data != scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_NotEqualScalar",)
    function = "not_equal"


class _greater_scalar(_CompareScalar):
    """1 where ``data > scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_GreaterScalar",)
    function = "greater"


class _greater_equal_scalar(_CompareScalar):
    """1 where ``data >= scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_GreaterEqualScalar",)
    function = "greater_equal"


class _lesser_scalar(_CompareScalar):
    """1 where ``data < scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LesserScalar",)
    function = "less"


class _lesser_equal_scalar(_CompareScalar):
    """1 where ``data <= scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LesserEqualScalar",)
    function = "less_equal"


class _logical_and_scalar(_CompareScalar):
    """1 where, of `data` and `scalar`, both are not 0, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LogicalAndScalar",)
    function = "logical_and"


class _logical_or_scalar(_CompareScalar):
    """1 where, of `data` and `scalar`, one is not 0 or both are, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LogicalOrScalar",)
    function = "logical_or"


class _logical_xor_scalar(_CompareScalar):
    """1 where, of `data` and `scalar`, exactly one is not 0, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LogicalXorScalar",)
    function = "logical_xor"


class logical_not(Unary):
    """1 where `data` is 0, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    function = "logical_not"

    @staticmethod
    def compute(w, a, data):
        return {"out": w.one_where("eq", data, 0.0)}


class isnan(Unary):
    """1 where `data` is not a number, else 0, in the dtype of `data`, as MXNet's contrib.isnan.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isnan",)
    function = "isnan"

    @staticmethod
    def compute(w, a, data):
        return {"out": w.one_where("ne", data, data)}


class isinf(Unary):
    """1 where `data` is plus or minus infinity, else 0, in the dtype of `data`, as MXNet's contrib.isinf.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isinf",)
    function = "isinf"

    @staticmethod
    def compute(w, a, data):
        return {"out": w.one_where("eq", w("abs", data), math.inf)}


class isfinite(Unary):
    """1 where `data` is a number and not infinite, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isfinite",)
    function = "isfinite"

    @staticmethod
    def compute(w, a, data):
        return {"out": w.one_where("lt", w("abs", data), math.inf)}


class bitwise_and(_Bits):
    """Bitwise and with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_and",)
    function = "bitwise_and"


class bitwise_or(_Bits):
    """Bitwise or with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_or",)
    function = "bitwise_or"


class bitwise_xor(_Bits):
    """Bitwise exclusive or with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_xor",)
    function = "bitwise_xor"


class left_shift(_Bits):
    """`lhs` with its bits moved `rhs` places towards the high end, with broadcasting; zeros come in.

    lhs, rhs: shapes that broadcast, of a whole-number type  ->  out: their common shape. No gradient.
    """

    accepts_bool = False
    function = "left_shift"


class right_shift(_Bits):
    """`lhs` with its bits moved `rhs` places towards the low end, with broadcasting; the sign is kept.

    lhs, rhs: shapes that broadcast, of a whole-number type  ->  out: their common shape. No gradient.
    """

    accepts_bool = False
    function = "right_shift"


class bitwise_not(Unary):
    """Every bit inverted; for bool the logical not.

    data: (...), of a whole-number type or bool  ->  out: (...). No gradient.
    """

    function = "invert"

    @classmethod
    def infer_type(cls, a, *dtypes):
        require_whole(dtypes, "bool or whole numbers")
        return super().infer_type(a, *dtypes)
