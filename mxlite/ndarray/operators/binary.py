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
from .arithmetic import ADD, combine, DIV, EQ, GE, GT, LE, LT, MOD, MUL, NE, number, Operators, POW, SUB


def add(lhs: Any, rhs: Any) -> Any:
    """``lhs + rhs``, element by element."""
    return _either(ADD, operator.add, lhs, rhs)


def subtract(lhs: Any, rhs: Any) -> Any:
    """``lhs - rhs``, element by element."""
    return _either(SUB, operator.sub, lhs, rhs)


def multiply(lhs: Any, rhs: Any) -> Any:
    """``lhs * rhs``, element by element."""
    return _either(MUL, operator.mul, lhs, rhs)


def divide(lhs: Any, rhs: Any) -> Any:
    """``lhs / rhs``, element by element; whole numbers are cut towards 0."""
    return _either(DIV, operator.truediv, lhs, rhs)


true_divide = divide


def modulo(lhs: Any, rhs: Any) -> Any:
    """Remainder of ``lhs / rhs``, element by element, with the sign of `rhs`."""
    return _either(MOD, operator.mod, lhs, rhs)


def power(base: Any, exp: Any) -> Any:
    """``base ** exp``, element by element."""
    return _either(POW, operator.pow, base, exp)


def maximum(lhs: Any, rhs: Any) -> Any:
    """The larger of two, element by element."""
    return _either(_symmetric("maximum"), max, lhs, rhs)


def hypot(lhs: Any, rhs: Any) -> Any:
    """``sqrt(lhs^2 + rhs^2)``, element by element."""
    return _either(_symmetric("hypot"), math.hypot, lhs, rhs)


def minimum(lhs: Any, rhs: Any) -> Any:
    """The smaller of two, element by element."""
    return _either(_symmetric("minimum"), min, lhs, rhs)


def equal(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs == rhs``, else 0, in the dtype of the operands."""
    return _compare(EQ, operator.eq, lhs, rhs)


def not_equal(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs != rhs``, else 0, in the dtype of the operands."""
    return _compare(NE, operator.ne, lhs, rhs)


def greater(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs > rhs``, else 0, in the dtype of the operands."""
    return _compare(GT, operator.gt, lhs, rhs)


def greater_equal(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs >= rhs``, else 0, in the dtype of the operands."""
    return _compare(GE, operator.ge, lhs, rhs)


def lesser(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs < rhs``, else 0, in the dtype of the operands."""
    return _compare(LT, operator.lt, lhs, rhs)


def lesser_equal(lhs: Any, rhs: Any) -> Any:
    """1 where ``lhs <= rhs``, else 0, in the dtype of the operands."""
    return _compare(LE, operator.le, lhs, rhs)


def _symmetric(name: str) -> Operators:
    return Operators(f"broadcast_{name}", f"_{name}_scalar", f"_{name}_scalar")


def _compare(names: Operators, plain: Callable[[Any, Any], bool], lhs: Any, rhs: Any) -> Any:
    return _either(names, lambda x, y: int(plain(x, y)), lhs, rhs)


def _either(names: Operators, plain: Callable[[Any, Any], Any], lhs: Any, rhs: Any) -> Any:
    """Apply one of the operators to arrays or an array and a number, `plain` to two numbers."""
    if isinstance(lhs, Storage):
        return combine(names.arrays, names.right, lhs, rhs)
    if isinstance(rhs, Storage):
        return invoke(scalar_call(names.left, number(lhs)), (rhs,))
    return plain(number(lhs), number(rhs))
