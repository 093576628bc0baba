"""Python's operators between symbols and numbers, and functions like `maximum` that take either.

`a + b` is `elemwise_add`: both must have one shape, and unknown dimensions of one are filled from the
other. `a + 1` is `_plus_scalar`. Names are MXNet's: `_plus0`, `_plusscalar0`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Number
from typing import Any, NamedTuple, TYPE_CHECKING

from ..core.compat.base_names import NotImplementedForSymbol
from ..core.errors import MXLiteError, OpAttributeError
from ..graph import Entry
from ..ops import find_op
from .compose import call

if TYPE_CHECKING:
    from .symbol import Symbol

Method = Callable[[Any, Any], "Symbol"]


class _Names(NamedTuple):
    """A Python operator's operators: (operator, name hint) for two symbols, a number right, or left."""

    both: tuple[str, str]
    right: tuple[str, str]
    left: tuple[str, str]


_ADD = _Names(("elemwise_add", "_plus"), ("_plus_scalar", "_plusscalar"), ("_plus_scalar", "_plusscalar"))
_SUB = _Names(
    ("elemwise_sub", "_minus"), ("_minus_scalar", "_minusscalar"), ("_rminus_scalar", "_rminusscalar")
)
_MUL = _Names(("elemwise_mul", "_mul"), ("_mul_scalar", "_mulscalar"), ("_mul_scalar", "_mulscalar"))
_DIV = _Names(("elemwise_div", "_div"), ("_div_scalar", "_divscalar"), ("_rdiv_scalar", "_rdivscalar"))
_MOD = _Names(("_mod", "_mod"), ("_mod_scalar", "_modscalar"), ("_rmod_scalar", "_rmodscalar"))
_POW = _Names(("_power", "_power"), ("_power_scalar", "_powerscalar"), ("_rpower_scalar", "_rpower_scalar"))
_POWER = _POW._replace(left=("_rpower_scalar", "_rpowerscalar"))  # the function `power` has another hint
_MAX = _Names(("_maximum", "_maximum"), *(("_maximum_scalar", "_maximumscalar"),) * 2)
_MIN = _Names(("_minimum", "_minimum"), *(("_minimum_scalar", "_minimumscalar"),) * 2)

_HYPOT = _Names(("_hypot", "_hypot"), *(("_hypot_scalar", "_hypotscalar"),) * 2)


def _comparison(name: str, mirrored: str) -> _Names:
    both, right, left = f"_{name}", f"_{name}_scalar", f"_{mirrored}_scalar"
    return _Names((both, both), (right, right), (left, left))


_EQ, _NE = _comparison("equal", "equal"), _comparison("not_equal", "not_equal")
_GT, _GE = _comparison("greater", "lesser"), _comparison("greater_equal", "lesser_equal")
_LT, _LE = _comparison("lesser", "greater"), _comparison("lesser_equal", "greater_equal")


def _methods(names: _Names) -> tuple[Method, Method]:
    """The methods for an operand on the right, and for one on the left."""

    def direct(self: Any, other: Any) -> Symbol:
        return _apply(names, self, other)

    def reflected(self: Any, other: Any) -> Symbol:
        return _apply(names, other, self)

    return direct, reflected


class Arithmetic:
    """The operators of `Symbol`. Each makes one node; there is no in-place form."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy's scalars leave `np.float32(2) * symbol` to `__rmul__`
    __hash__ = None  # type: ignore[assignment]  # `==` makes a node, so symbols cannot be keys

    __add__, __radd__ = _methods(_ADD)
    __sub__, __rsub__ = _methods(_SUB)
    __mul__, __rmul__ = _methods(_MUL)
    __truediv__, __rtruediv__ = _methods(_DIV)
    __mod__, __rmod__ = _methods(_MOD)
    __pow__, __rpow__ = _methods(_POW)
    __eq__, __ne__ = _methods(_EQ)[0], _methods(_NE)[0]  # type: ignore[assignment]
    __gt__, __ge__ = _methods(_GT)[0], _methods(_GE)[0]
    __lt__, __le__ = _methods(_LT)[0], _methods(_LE)[0]

    def __neg__(self) -> Symbol:
        return _apply(_MUL, self, -1.0)

    def __abs__(self) -> Symbol:
        magnitude: Symbol = self.abs()  # type: ignore[attr-defined]
        return magnitude

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol(
            "__bool__",
            "bool",
            text=f"{self!r} has no truth value before it is run: a comparison of symbols makes a node. "
            f"Compare arrays, or test `symbol is None`.",
        )


def power(base: Any, exponent: Any) -> Any:
    """``base ** exponent`` of symbols or numbers."""
    return _either(_POWER, base, exponent, lambda x, y: x**y)


pow = power


def maximum(left: Any, right: Any) -> Any:
    """The larger of two, element by element; symbols or numbers."""
    return _either(_MAX, left, right, max)


def minimum(left: Any, right: Any) -> Any:
    """The smaller of two, element by element; symbols or numbers."""
    return _either(_MIN, left, right, min)


def hypot(left: Any, right: Any) -> Any:
    """``sqrt(left^2 + right^2)``, element by element; symbols or numbers."""
    return _either(_HYPOT, left, right, math.hypot)


def _either(names: _Names, left: Any, right: Any, plain: Callable[[Any, Any], Any]) -> Any:
    if isinstance(left, Number) and isinstance(right, Number):
        return plain(left, right)
    return _apply(names, left, right)


def _apply(names: _Names, left: Any, right: Any) -> Symbol:
    symbols = [x for x in (left, right) if isinstance(x, Arithmetic)]
    numbers = [x for x in (left, right) if isinstance(x, Number)]
    if not symbols or len(symbols) + len(numbers) != 2:
        other = next(x for x in (left, right) if not isinstance(x, (Arithmetic, Number)))
        raise OpAttributeError(
            f"{names.both[0]} works on symbols and numbers, not on {type(other).__name__}; "
            f"arrays take part as mx.sym.Variable, bound later."
        )
    op, hint = names.both if not numbers else names.right if symbols[0] is left else names.left
    entries = [single(s, find_op(op).op_name) for s in symbols]
    node = call(find_op(op), hint, entries, {}, {"scalar": numbers[0]} if numbers else {})
    return type(symbols[0])((Entry(node),))  # type: ignore[call-arg, return-value]


def single(symbol: Any, reader: str) -> Entry:
    """The one output of `symbol`. Raises MXLiteError if it has several."""
    outputs: tuple[Entry, ...] = symbol.entries
    if len(outputs) != 1:
        raise MXLiteError(
            f"{reader} takes one array as each input, but {symbol!r} has {len(outputs)} outputs: "
            f"{symbol.list_outputs()[:8]}. Choose one by its index or name, or spread them with *."
        )
    return outputs[0]
