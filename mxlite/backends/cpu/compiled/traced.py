"""Formulas of reference kernels as machine code: what stands where numpy stands when they are called.

    d = Doubles(f)
    xp = Tracer(d)
    x = xp.real(d.widen(f.load(data, i, dtype, mask)))
    y = gammaln_values(xp, x)                    # writes instructions, one for each operation
    f.store(d.narrow(y.value), out, i, dtype, mask)

An array of float64 becomes a vector of float64 in a register, one of truths a mask; a number stays one. So a
formula is written once, and both kernels compute the same operations in the same order: they differ by what
exp, log, sin and others round (`double_functions.py`). What looks at values in Python cannot be traced.
"""

from __future__ import annotations

import math
from typing import Any

from . import double_functions as functions
from .doubles import Doubles
from .emitter import Function, Module, width
from .ir import number, type_of, Value


class Traced:
    """A vector of numbers, or a mask. As an array, it may be changed in place, for all who hold it."""

    __slots__ = ("is_mask", "value", "xp")

    def __init__(self, xp: Tracer, value: Value, is_mask: bool = False) -> None:
        self.xp, self.value, self.is_mask = xp, value, is_mask

    def __len__(self) -> int:
        return self.xp.d.f.width

    def __add__(self, other: Any) -> Traced:
        return self.xp.apply("add", self, other)

    def __sub__(self, other: Any) -> Traced:
        return self.xp.apply("sub", self, other)

    def __mul__(self, other: Any) -> Traced:
        return self.xp.apply("mul", self, other)

    def __truediv__(self, other: Any) -> Traced:
        return self.xp.apply("div", self, other)

    def __radd__(self, other: Any) -> Traced:
        return self.xp.apply("add", other, self)

    def __rsub__(self, other: Any) -> Traced:
        return self.xp.apply("sub", other, self)

    def __rmul__(self, other: Any) -> Traced:
        return self.xp.apply("mul", other, self)

    def __rtruediv__(self, other: Any) -> Traced:
        return self.xp.apply("div", other, self)

    def __iadd__(self, other: Any) -> Traced:
        return self._becomes(self + other)

    def __isub__(self, other: Any) -> Traced:
        return self._becomes(self - other)

    def __imul__(self, other: Any) -> Traced:
        return self._becomes(self * other)

    def __itruediv__(self, other: Any) -> Traced:
        return self._becomes(self / other)

    def _becomes(self, other: Traced) -> Traced:
        self.value = other.value
        return self

    def __neg__(self) -> Traced:
        return self.xp.apply("neg", self)

    def __pow__(self, exponent: int) -> Traced:
        assert exponent == 3
        return self * self * self

    def __lt__(self, other: Any) -> Traced:
        return self.xp.compared("olt", self, other)

    def __le__(self, other: Any) -> Traced:
        return self.xp.compared("ole", self, other)

    def __gt__(self, other: Any) -> Traced:
        return self.xp.compared("ogt", self, other)

    def __ge__(self, other: Any) -> Traced:
        return self.xp.compared("oge", self, other)

    def __eq__(self, other: object) -> Traced:  # type: ignore[override]  # as of arrays
        return self.xp.compared("oeq", self, other)

    def astype(self, dtype: str) -> Traced:
        """Itself: it holds whole numbers already, where they index a table."""
        return self

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Traced) -> Traced:
        return self.xp.logical("and", self, other)

    def __or__(self, other: Traced) -> Traced:
        return self.xp.logical("or", self, other)

    def __invert__(self) -> Traced:
        return self.xp.logical("xor", self, self.xp.true)


class Tracer:
    """The functions of numpy that formulas use, for `Traced`. Instructions are written where `d` writes."""

    inf, nan = math.inf, math.nan

    def __init__(self, d: Doubles) -> None:
        self.d = d
        self.true = Traced(self, number(d.f.bits, True), True)

    def real(self, value: Value) -> Traced:
        """A vector of float64."""
        return Traced(self, value)

    def mask(self, value: Value) -> Traced:
        """A vector of truths."""
        return Traced(self, value, True)

    def value(self, x: Any) -> Value:
        """The value of a number, a vector, or a mask as 0 and 1."""
        if not isinstance(x, Traced):
            return self.d.const(float(x))
        return self.d.select(x.value, self.d.const(1.0), self.d.const(0.0)) if x.is_mask else x.value

    def apply(self, what: str, *operands: Any) -> Traced:
        """A method of Doubles."""
        return self.real(getattr(self.d, what)(*(self.value(x) for x in operands)))

    def compared(self, how: str, a: Any, b: Any) -> Traced:
        return self.mask(self.d.compare(how, self.value(a), self.value(b)))

    def logical(self, what: str, a: Traced, b: Traced) -> Traced:
        return self.mask(self.d.f.binary(what, a.value, b.value))

    def formula(self, formula: Any, *operands: Traced, **constants: Any) -> Traced:
        """A call of a function that has the code of a formula; see `ops.formula`."""
        module = self.d.f.module
        name = ".".join((formula.__qualname__, *(f"{n}{c}" for n, c in constants.items())))
        if name not in module.routines:
            made = module.routines[name] = _Routine(module, name, len(operands))
            xp = Tracer(Doubles(made))
            made.gives(
                xp.value(
                    formula(xp, *(xp.real(made.arg(f"a{k}")) for k in range(len(operands))), **constants)
                )
            )
        return self.real(self.d.f.called(self.d.vector, name, *(self.value(x) for x in operands)))

    # -- as numpy's ------------------------------------------------------------------------------

    def where(self, mask: Traced, a: Any, b: Any) -> Traced:
        return self.real(self.d.select(mask.value, self.value(a), self.value(b)))

    def minimum(self, a: Traced, b: float) -> Traced:
        return self.apply("below", a, b)

    def maximum(self, a: Traced, b: float) -> Traced:
        return self.apply("above", a, b)

    def clip(self, a: Traced, least: float, most: float) -> Traced:
        return self.minimum(self.maximum(a, least), most)

    def absolute(self, a: Traced) -> Traced:
        return self.apply("abs", a)

    abs = absolute

    def sqrt(self, a: Traced) -> Traced:
        return self.apply("sqrt", a)

    def rint(self, a: Traced) -> Traced:
        return self._intrinsic("rint", a)

    def floor(self, a: Traced) -> Traced:
        return self._intrinsic("floor", a)

    def copysign(self, a: Any, b: Any) -> Traced:
        return self._intrinsic("copysign", a, b)

    def _intrinsic(self, name: str, *operands: Any) -> Traced:
        return self.real(self.d.intrinsic(name, *(self.value(x) for x in operands)))

    def fmod(self, a: Traced, b: float) -> Traced:
        """Of whole numbers, and b = 2."""
        return a - b * self._intrinsic("trunc", a / b)

    def exp(self, a: Traced) -> Traced:
        return self._function(functions.exp, a)

    def log(self, a: Traced) -> Traced:
        return self._function(functions.log, a)

    def log1p(self, a: Traced) -> Traced:
        return self._function(functions.log1p, a)

    def sin(self, a: Traced) -> Traced:
        return self._function(functions.sin, a)

    def cos(self, a: Traced) -> Traced:
        return self._function(functions.cos, a)

    def tan(self, a: Traced) -> Traced:
        return self._function(functions.tan, a)

    def power(self, a: Traced, b: Any) -> Traced:
        """Of a >= 0, and not 0^0."""
        return self._function(functions.power, a, b)

    def _function(self, function: Any, *operands: Any) -> Traced:
        return self.real(function(self.d, *(self.value(x) for x in operands)))

    def isinf(self, a: Traced) -> Traced:
        return self.compared("oeq", self.absolute(a), math.inf)

    def isfinite(self, a: Traced) -> Traced:
        return self.compared("olt", self.absolute(a), math.inf)

    def take(self, table: Any, at: Traced) -> Traced:
        """table[at], of whole numbers `at` in the table."""
        found = self.real(self.d.const(float(table[0])))
        for k, value in enumerate(table[1:], 1):
            found = self.where(at == float(k), float(value), found)
        return found

    def full(self, count: int, value: float) -> Traced:
        return self.real(self.d.const(value))

    def zeros(self, count: int) -> Traced:
        return self.real(self.d.const(0.0))

    def zeros_like(self, a: Traced) -> Traced:
        return self.real(self.d.const(0.0))

    def ones_like(self, a: Traced) -> Traced:
        return self.real(self.d.const(1.0))


class _Routine(Function):
    """A function of vectors of float64 that gives one."""

    def __init__(self, module: Module, name: str, count: int) -> None:
        kind = type_of("double", width())
        super().__init__(module, name, None, {f"a{k}": kind for k in range(count)}, kind)

    def gives(self, value: Value) -> None:
        """The end of the function."""
        self.do("ret", value)
        self.prune()
