"""Python's operators on arrays: + - * / % ** and comparisons, with broadcasting and in-place forms."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

import numpy as np

from ...core.errors import ArgumentError
from ..calls.invoke import call_of, invoke, scalar_call
from ..memory.storage import Storage

if TYPE_CHECKING:
    from ..ndarray import NDArray

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

    def __add__(self, other: Any) -> NDArray:
        return combine("broadcast_add", "_plus_scalar", self, other)

    __radd__ = __add__

    def __iadd__(self, other: Any) -> NDArray:
        return combine("broadcast_add", "_plus_scalar", self, other, self)

    def __sub__(self, other: Any) -> NDArray:
        return combine("broadcast_sub", "_minus_scalar", self, other)

    def __rsub__(self, other: Any) -> NDArray:
        return invoke(scalar_call("_rminus_scalar", number(other)), (self,))

    def __isub__(self, other: Any) -> NDArray:
        return combine("broadcast_sub", "_minus_scalar", self, other, self)

    def __mul__(self, other: Any) -> NDArray:
        return combine("broadcast_mul", "_mul_scalar", self, other)

    __rmul__ = __mul__

    def __imul__(self, other: Any) -> NDArray:
        return combine("broadcast_mul", "_mul_scalar", self, other, self)

    def __truediv__(self, other: Any) -> NDArray:
        return combine("broadcast_div", "_div_scalar", self, other)

    def __rtruediv__(self, other: Any) -> NDArray:
        return invoke(scalar_call("_rdiv_scalar", number(other)), (self,))

    def __itruediv__(self, other: Any) -> NDArray:
        return combine("broadcast_div", "_div_scalar", self, other, self)

    def __mod__(self, other: Any) -> NDArray:
        return combine("broadcast_mod", "_mod_scalar", self, other)

    def __rmod__(self, other: Any) -> NDArray:
        return invoke(scalar_call("_rmod_scalar", number(other)), (self,))

    def __imod__(self, other: Any) -> NDArray:
        return combine("broadcast_mod", "_mod_scalar", self, other, self)

    def __pow__(self, other: Any) -> NDArray:
        return combine("broadcast_power", "_power_scalar", self, other)

    def __rpow__(self, other: Any) -> NDArray:
        return invoke(scalar_call("_rpower_scalar", number(other)), (self,))

    def __ipow__(self, other: Any) -> NDArray:
        return combine("broadcast_power", "_power_scalar", self, other, self)

    def __neg__(self) -> NDArray:
        return invoke(scalar_call("_mul_scalar", -1.0), (self,))

    def __abs__(self) -> NDArray:
        return invoke(call_of("abs", _NOTHING), (self,))

    def __eq__(self, other: Any) -> NDArray:  # type: ignore[override]
        return combine("broadcast_equal", "_equal_scalar", self, other)

    def __ne__(self, other: Any) -> NDArray:  # type: ignore[override]
        return combine("broadcast_not_equal", "_not_equal_scalar", self, other)

    def __gt__(self, other: Any) -> NDArray:
        return combine("broadcast_greater", "_greater_scalar", self, other)

    def __ge__(self, other: Any) -> NDArray:
        return combine("broadcast_greater_equal", "_greater_equal_scalar", self, other)

    def __lt__(self, other: Any) -> NDArray:
        return combine("broadcast_lesser", "_lesser_scalar", self, other)

    def __le__(self, other: Any) -> NDArray:
        return combine("broadcast_lesser_equal", "_lesser_equal_scalar", self, other)

    __hash__ = object.__hash__
