"""Functions of two operands, arrays or numbers in any mixture: `mx.nd.maximum(a, 3)`, `mx.nd.power(2, a)`.

Two arrays broadcast. Two numbers give a number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ..calls.invoke import invoke, scalar_call
from ..memory.storage import Storage
from .arithmetic import combine, number


def add(lhs: Any, rhs: Any) -> Any:
    """``lhs + rhs``, element by element."""
    return _either("broadcast_add", "_plus_scalar", "_plus_scalar", operator.add, lhs, rhs)


def subtract(lhs: Any, rhs: Any) -> Any:
    """``lhs - rhs``, element by element."""
    return _either("broadcast_sub", "_minus_scalar", "_rminus_scalar", operator.sub, lhs, rhs)


def multiply(lhs: Any, rhs: Any) -> Any:
    """``lhs * rhs``, element by element."""
    return _either("broadcast_mul", "_mul_scalar", "_mul_scalar", operator.mul, lhs, rhs)


def divide(lhs: Any, rhs: Any) -> Any:
    """``lhs / rhs``, element by element; whole numbers are cut towards 0."""
    return _either("broadcast_div", "_div_scalar", "_rdiv_scalar", operator.truediv, lhs, rhs)


true_divide = divide


def modulo(lhs: Any, rhs: Any) -> Any:
    """Remainder of ``lhs / rhs``, element by element, with the sign of `rhs`."""
    return _either("broadcast_mod", "_mod_scalar", "_rmod_scalar", operator.mod, lhs, rhs)


def power(base: Any, exp: Any) -> Any:
    """``base ** exp``, element by element."""
    return _either("broadcast_power", "_power_scalar", "_rpower_scalar", operator.pow, base, exp)


def maximum(lhs: Any, rhs: Any) -> Any:
    """The larger of two, element by element."""
    return _either("broadcast_maximum", "_maximum_scalar", "_maximum_scalar", max, lhs, rhs)


def hypot(lhs: Any, rhs: Any) -> Any:
    """``sqrt(lhs^2 + rhs^2)``, element by element."""
    return _either("broadcast_hypot", "_hypot_scalar", "_hypot_scalar", math.hypot, lhs, rhs)


def minimum(lhs: Any, rhs: Any) -> Any:
    """The smaller of two, element by element."""
    return _either("broadcast_minimum", "_minimum_scalar", "_minimum_scalar", min, lhs, rhs)


def equal(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs == rhs``, else 0, in the dtype of the operands."""
    return _compare("equal", "equal", operator.eq, lhs, rhs)


def not_equal(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs != rhs``, else 0, in the dtype of the operands."""
    return _compare("not_equal", "not_equal", operator.ne, lhs, rhs)


def greater(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs > rhs``, else 0, in the dtype of the operands."""
    return _compare("greater", "lesser", operator.gt, lhs, rhs)


def greater_equal(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs >= rhs``, else 0, in the dtype of the operands."""
    return _compare("greater_equal", "lesser_equal", operator.ge, lhs, rhs)


def lesser(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs < rhs``, else 0, in the dtype of the operands."""
    return _compare("lesser", "greater", operator.lt, lhs, rhs)


def lesser_equal(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs <= rhs``, else 0, in the dtype of the operands."""
    return _compare("lesser_equal", "greater_equal", operator.le, lhs, rhs)


def _compare(name: str, mirrored: str, plain: Callable[[Any, Any], bool], lhs: Any, rhs: Any) -> Any:
    """A comparison; `mirrored` is the operator for exchanged sides."""
    return _either(
        f"broadcast_{name}", f"_{name}_scalar", f"_{mirrored}_scalar", lambda x, y: int(plain(x, y)), lhs, rhs
    )


def _either(arrays: str, right: str, left: str, plain: Callable[[Any, Any], Any], lhs: Any, rhs: Any) -> Any:
    """Apply the operator `arrays`, or `right` or `left` where a number stands there, or `plain`."""
    if isinstance(lhs, Storage):
        return combine(arrays, right, lhs, rhs)
    if isinstance(rhs, Storage):
        return invoke(scalar_call(left, number(lhs)), (rhs,))
    return plain(number(lhs), number(rhs))
