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


class Arithmetic:
    """The operators of `Symbol`. Each makes one node; there is no in-place form."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy's scalars leave `np.float32(2) * symbol` to `__rmul__`
    __hash__ = None  # type: ignore[assignment]  # `==` makes a node, so symbols cannot be keys

    def __add__(self, other: Any) -> Symbol:
        return _apply(_ADD, self, other)

    def __radd__(self, other: Any) -> Symbol:
        return _apply(_ADD, other, self)

    def __sub__(self, other: Any) -> Symbol:
        return _apply(_SUB, self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return _apply(_SUB, other, self)

    def __mul__(self, other: Any) -> Symbol:
        return _apply(_MUL, self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return _apply(_MUL, other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return _apply(_DIV, self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return _apply(_DIV, other, self)

    def __mod__(self, other: Any) -> Symbol:
        return _apply(_MOD, self, other)

    def __rmod__(self, other: Any) -> Symbol:
        return _apply(_MOD, other, self)

    def __pow__(self, other: Any) -> Symbol:
        return _apply(_POW, self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return _apply(_POW, other, self)

    def __neg__(self) -> Symbol:
        return _apply(_MUL, self, -1.0)

    def __abs__(self) -> Symbol:
        magnitude: Symbol = self.abs()  # type: ignore[attr-defined]
        return magnitude

    def __eq__(self, other: Any) -> Symbol:  # type: ignore[override]
        return _apply(_EQ, self, other)

    def __ne__(self, other: Any) -> Symbol:  # type: ignore[override]
        return _apply(_NE, self, other)

    def __gt__(self, other: Any) -> Symbol:
        return _apply(_GT, self, other)

    def __ge__(self, other: Any) -> Symbol:
        return _apply(_GE, self, other)

    def __lt__(self, other: Any) -> Symbol:
        return _apply(_LT, self, other)

    def __le__(self, other: Any) -> Symbol:
        return _apply(_LE, self, other)

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
