"""Python's operators on arrays: + - * / % ** and comparisons, with broadcasting and in-place forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TYPE_CHECKING

import numpy as np

from ...core.errors import ArgumentError
from ..calls.invoke import call_of, invoke, scalar_call
from ..memory.storage import Storage

if TYPE_CHECKING:
    from ..ndarray import NDArray

Method = Callable[[Any, Any], "NDArray"]

_NOTHING: dict[str, Any] = {}

_UNMIXED = "an NDArray and a numpy array do not mix"

_OPERATORS = {
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "remainder": ("__mod__", "__rmod__"),
    "power": ("__pow__", "__rpow__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
}
"""numpy's function of two operands -> our method, and that of the right operand."""


class Operators(NamedTuple):
    """The operators of one operation: of two arrays, of an array with a number right of it, or left of it."""

    arrays: str
    right: str
    left: str


def _comparison(name: str, mirrored: str) -> Operators:
    """A comparison; `mirrored` is the one for exchanged sides."""
    return Operators(f"broadcast_{name}", f"_{name}_scalar", f"_{mirrored}_scalar")


ADD = Operators("broadcast_add", "_plus_scalar", "_plus_scalar")
SUB = Operators("broadcast_sub", "_minus_scalar", "_rminus_scalar")
MUL = Operators("broadcast_mul", "_mul_scalar", "_mul_scalar")
DIV = Operators("broadcast_div", "_div_scalar", "_rdiv_scalar")
MOD = Operators("broadcast_mod", "_mod_scalar", "_rmod_scalar")
POW = Operators("broadcast_power", "_power_scalar", "_rpower_scalar")
EQ, NE = _comparison("equal", "equal"), _comparison("not_equal", "not_equal")
GT, GE = _comparison("greater", "lesser"), _comparison("greater_equal", "lesser_equal")
LT, LE = _comparison("lesser", "greater"), _comparison("lesser_equal", "greater_equal")


def combine(arrays: str, scalar: str, a: Any, b: Any, out: Any = None) -> Any:
    """`a` with an array by the operator `arrays`, or with a number by the operator `scalar`."""
    if type(b) is float or type(b) is int:
        return invoke(scalar_call(scalar, b), (a,), out)
    if isinstance(b, Storage):
        return invoke(call_of(arrays, _NOTHING), (a, b), out)
    return invoke(scalar_call(scalar, number(b)), (a,), out)


def number(value: Any) -> float:
    """A Python number from whatever is one; ArgumentError for the rest."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, np.generic) and value.dtype.name == "bfloat16":
        return float(value)
    if isinstance(value, np.ndarray):
        raise ArgumentError(f"{_UNMIXED}; wrap the numpy array in mx.nd.array(...).")
    raise ArgumentError(
        f"an NDArray can be combined with an NDArray or a number, not with {type(value).__name__}."
    )


def _methods(names: Operators) -> tuple[Method, Method, Method]:
    """The methods for an operand on the right, for one on the left, and in place."""
    arrays, right, left = names

    def direct(self: Any, other: Any) -> NDArray:
        return combine(arrays, right, self, other)

    def reflected(self: Any, other: Any) -> NDArray:
        return invoke(scalar_call(left, number(other)), (self,))

    def in_place(self: Any, other: Any) -> NDArray:
        return combine(arrays, right, self, other, self)

    return direct, direct if left == right else reflected, in_place


class Arithmetic(Storage):
    """Mixin of NDArray. Both arrays must have one dtype; a number takes the array's."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """numpy's functions: an operator with a number is ours, `np_array + a` is refused with a sentence.

        All others, as `np.exp(a)` and `np.all(a)`, are numpy's, of `np.asarray(a)`: they wait.
        """
        operators = _OPERATORS.get(ufunc.__name__) if method == "__call__" else None
        if operators is not None:
            if options:
                raise ArgumentError(
                    f"{_UNMIXED}: np.{ufunc.__name__} of an NDArray takes no {next(iter(options))}=."
                )
            # numpy makes arrays without axes of its numbers before it compares them.
            left, right = (x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs)
            direct, reflected = operators
            if isinstance(left, Arithmetic):
                return getattr(left, direct)(right)
            return getattr(right, reflected)(left)
        if any(isinstance(x, Arithmetic) for x in options.get("out", ())):
            raise ArgumentError(f"np.{ufunc.__name__} cannot write into an NDArray; a[:] = ... does.")
        values = [np.asarray(x) if isinstance(x, Arithmetic) else x for x in inputs]
        return getattr(ufunc, method)(*values, **options)

    __add__, __radd__, __iadd__ = _methods(ADD)
    __sub__, __rsub__, __isub__ = _methods(SUB)
    __mul__, __rmul__, __imul__ = _methods(MUL)
    __truediv__, __rtruediv__, __itruediv__ = _methods(DIV)
    __mod__, __rmod__, __imod__ = _methods(MOD)
    __pow__, __rpow__, __ipow__ = _methods(POW)
    __eq__, __ne__ = _methods(EQ)[0], _methods(NE)[0]  # type: ignore[assignment]
    __gt__, __ge__ = _methods(GT)[0], _methods(GE)[0]
    __lt__, __le__ = _methods(LT)[0], _methods(LE)[0]

    def __neg__(self) -> NDArray:
        return invoke(scalar_call("_mul_scalar", -1.0), (self,))

    def __abs__(self) -> NDArray:
        return invoke(call_of("abs", _NOTHING), (self,))

    __hash__ = object.__hash__
