"""Comparisons and logic of each element, with broadcasting and without.

The result is 1 or 0 in the operands' dtype, as in MXNet; for bool it is bool. None has a gradient.
"""

from __future__ import annotations

from ...core.dtype import is_floating
from ...core.errors import DTypeError
from ..blocks import weak
from .broadcast import Broadcast
from .scalar import Scalar
from .unary import Unary


def require_whole(dtypes, wanted):
    """Raise DTypeError where one is known and floating, or bool where `wanted` has no bool."""
    for d in dtypes:
        if d is not None and (is_floating(d) or (d.kind == "b" and "bool" not in wanted)):
            raise DTypeError(f"needs {wanted}, got {d}; convert with Cast (astype), to int32 for instance.")


class _Compare(Broadcast):
    """Comparison of two arrays whose shapes broadcast; the result is 0 or 1."""

    accepts = "any"


class _Bits(Broadcast):
    """Bitwise operation on two arrays of whole numbers."""

    accepts = "any"
    accepts_bool = True

    @classmethod
    def infer_type(cls, a, *dtypes):
        require_whole(dtypes, "bool or whole numbers" if cls.accepts_bool else "whole numbers")
        return super().infer_type(a, *dtypes)


class _CompareScalar(Scalar):
    """Comparison of an array and a number; the result is 0 or 1."""

    accepts = "any"
    any_scalar = True


class broadcast_equal(_Compare):
    """1 where ``lhs == rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_equal", "_Equal")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.equal(lhs, rhs, out=out)


class broadcast_not_equal(_Compare):
    """1 where ``lhs != rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_not_equal", "_Not_Equal")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.not_equal(lhs, rhs, out=out)


class broadcast_greater(_Compare):
    """1 where ``lhs > rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_greater", "_Greater")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.greater(lhs, rhs, out=out)


class broadcast_greater_equal(_Compare):
    """1 where ``lhs >= rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_greater_equal", "_Greater_Equal")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.greater_equal(lhs, rhs, out=out)


class broadcast_lesser(_Compare):
    """1 where ``lhs < rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_lesser", "_Lesser")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.less(lhs, rhs, out=out)


class broadcast_lesser_equal(_Compare):
    """1 where ``lhs <= rhs``, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_lesser_equal", "_Lesser_Equal")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.less_equal(lhs, rhs, out=out)


class broadcast_logical_and(_Compare):
    """1 where both are not 0, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_logical_and", "_Logical_And", "logical_and")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.logical_and(lhs, rhs, out=out)


class broadcast_logical_or(_Compare):
    """1 where one is not 0 or both are, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_logical_or", "_Logical_Or", "logical_or")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.logical_or(lhs, rhs, out=out)


class broadcast_logical_xor(_Compare):
    """1 where exactly one is not 0, else 0, in the operands' dtype, with broadcasting. No gradient."""

    aliases = ("_logical_xor", "_Logical_Xor", "logical_xor")

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.logical_xor(lhs, rhs, out=out)


class _equal_scalar(_CompareScalar):
    """1 where ``data == scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_EqualScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.equal(data, weak(data, a.scalar), out=out)


class _not_equal_scalar(_CompareScalar):
    """1 where ``data != scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_NotEqualScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.not_equal(data, weak(data, a.scalar), out=out)


class _greater_scalar(_CompareScalar):
    """1 where ``data > scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_GreaterScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.greater(data, weak(data, a.scalar), out=out)


class _greater_equal_scalar(_CompareScalar):
    """1 where ``data >= scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_GreaterEqualScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.greater_equal(data, weak(data, a.scalar), out=out)


class _lesser_scalar(_CompareScalar):
    """1 where ``data < scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LesserScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.less(data, weak(data, a.scalar), out=out)


class _lesser_equal_scalar(_CompareScalar):
    """1 where ``data <= scalar``, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LesserEqualScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.less_equal(data, weak(data, a.scalar), out=out)


class _logical_and_scalar(_CompareScalar):
    """1 where, of `data` and `scalar`, both are not 0, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LogicalAndScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.logical_and(data, weak(data, a.scalar), out=out)


class _logical_or_scalar(_CompareScalar):
    """1 where, of `data` and `scalar`, one is not 0 or both are, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LogicalOrScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.logical_or(data, weak(data, a.scalar), out=out)


class _logical_xor_scalar(_CompareScalar):
    """1 where, of `data` and `scalar`, exactly one is not 0, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_LogicalXorScalar",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.logical_xor(data, weak(data, a.scalar), out=out)


class logical_not(Unary):
    """1 where `data` is 0, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.logical_not(data, out=out)


class isnan(Unary):
    """1 where `data` is not a number, else 0, in the dtype of `data`, as MXNet's contrib.isnan.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isnan",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.isnan(data, out=out)


class isinf(Unary):
    """1 where `data` is plus or minus infinity, else 0, in the dtype of `data`, as MXNet's contrib.isinf.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isinf",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.isinf(data, out=out)


class isfinite(Unary):
    """1 where `data` is a number and not infinite, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isfinite",)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.isfinite(data, out=out)


class bitwise_and(_Bits):
    """Bitwise and with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_and",)

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.bitwise_and(lhs, rhs, out=out)


class bitwise_or(_Bits):
    """Bitwise or with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_or",)

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.bitwise_or(lhs, rhs, out=out)


class bitwise_xor(_Bits):
    """Bitwise exclusive or with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_xor",)

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.bitwise_xor(lhs, rhs, out=out)


class left_shift(_Bits):
    """`lhs` with its bits moved `rhs` places towards the high end, with broadcasting; zeros come in.

    lhs, rhs: shapes that broadcast, of a whole-number type  ->  out: their common shape. No gradient.
    """

    accepts_bool = False

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.left_shift(lhs, rhs, out=out)


class right_shift(_Bits):
    """`lhs` with its bits moved `rhs` places towards the low end, with broadcasting; the sign is kept.

    lhs, rhs: shapes that broadcast, of a whole-number type  ->  out: their common shape. No gradient.
    """

    accepts_bool = False

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.right_shift(lhs, rhs, out=out)


class bitwise_not(Unary):
    """Every bit inverted; for bool the logical not.

    data: (...), of a whole-number type or bool  ->  out: (...). No gradient.
    """

    @classmethod
    def infer_type(cls, a, *dtypes):
        require_whole(dtypes, "bool or whole numbers")
        return super().infer_type(a, *dtypes)

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.invert(data, out=out)
