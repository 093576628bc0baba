"""Formulas of reference kernels as machine code: stand-ins for numpy and its arrays while they are traced.

    d = Doubles(f)
    xp = Tracer(d)
    x = xp.real(d.widen(f.load(data, i, dtype, mask)))
    y = gammaln_values(xp, x)                    # writes instructions, one for each operation
    f.store(d.narrow(y.value), out, i, dtype, mask)

An array of float64 becomes a vector of float64 in a register, a boolean one a mask; a number stays one. So a
formula is written once, and both kernels compute the same operations in the same order: they differ only in
the rounding of exp, log, sin and others (`double_functions.py`). Code that branches on values cannot be
traced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .....te.steps import Numpy, StandIn
from . import double_functions as functions
from .doubles import Doubles
from .emitter import Function, width
from .ir import number, type_of, Value


class Traced(StandIn):
    """A vector of numbers, or a mask. Like an array, it may be changed in place, for all references."""

    __slots__ = ("is_mask", "value", "xp")

    def __init__(self, xp: Tracer, value: Value, is_mask: bool = False) -> None:
        self.xp, self.value, self.is_mask = xp, value, is_mask

    def __len__(self) -> int:
        return self.xp.d.f.width

    def step(self, name: str, *operands: Any) -> Traced:
        return self.xp.step(name, *operands)

    def __iadd__(self, other: Any) -> Traced:
        return self.becomes(self + other)

    def __isub__(self, other: Any) -> Traced:
        return self.becomes(self - other)

    def __imul__(self, other: Any) -> Traced:
        return self.becomes(self * other)

    def __itruediv__(self, other: Any) -> Traced:
        return self.becomes(self / other)

    def becomes(self, other: Traced) -> Traced:
        self.value = other.value
        return self

    def __pow__(self, exponent: int) -> Traced:
        assert exponent == 3
        return self * self * self

    def __lt__(self, other: Any) -> Traced:
        return self.step("lt", self, other)

    def __le__(self, other: Any) -> Traced:
        return self.step("le", self, other)

    def __gt__(self, other: Any) -> Traced:
        return self.step("gt", self, other)

    def __ge__(self, other: Any) -> Traced:
        return self.step("ge", self, other)

    def __eq__(self, other: object) -> Traced:  # type: ignore[override]  # as of arrays
        return self.step("eq", self, other)

    def astype(self, dtype: str) -> Traced:
        """Itself: where it indexes a table it holds whole numbers already."""
        return self

    __hash__ = None  # type: ignore[assignment]

    def __and__(self, other: Traced) -> Traced:
        return self.xp.logical("and", self, other)

    def __or__(self, other: Traced) -> Traced:
        return self.xp.logical("or", self, other)

    def __invert__(self) -> Traced:
        return self.xp.logical("xor", self, self.xp.true)


class Tracer(Numpy):
    """The functions of numpy that formulas use, for `Traced`. Instructions are written through `d`."""

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

    def step(self, name: str, *operands: Any) -> Traced:
        values = [self.value(x) for x in operands]
        if name in _COMPARE:
            return self.mask(self.d.compare(_COMPARE[name], *values))
        return self.real(_STEPS[name](self.d, *values))

    def put(self, made: Traced, out: Traced) -> Traced:
        return out.becomes(made)

    def logical(self, what: str, a: Traced, b: Traced) -> Traced:
        return self.mask(self.d.f.binary(what, a.value, b.value))

    def formula(self, formula: Any, *operands: Traced, **constants: Any) -> Traced:
        """A call of a function that has the code of a formula; see `ops.formula`."""
        module = self.d.f.module
        name = ".".join((formula.__qualname__, *(f"{n}{c}" for n, c in constants.items())))
        if name not in module.routines:
            kind = type_of("double", width())
            given = {f"a{k}": kind for k in range(len(operands))}
            made = module.routines[name] = Function(module, name, None, given, kind)
            xp = Tracer(Doubles(made))
            made.gives(xp.value(formula(xp, *(xp.real(made.arg(n)) for n in given), **constants)))
        return self.real(self.d.f.called(self.d.vector, name, *(self.value(x) for x in operands)))

    # -- counterparts of numpy's -----------------------------------------------------------------

    def where(self, mask: Traced, a: Any, b: Any) -> Traced:
        return self.real(self.d.select(mask.value, self.value(a), self.value(b)))

    def clip(self, a: Traced, least: float, most: float) -> Any:
        return self.minimum(self.maximum(a, least), most)

    def fmod(self, a: Traced, b: float) -> Any:
        """fmod for whole numbers, and b = 2."""
        return a - b * self.step("trunc", a / b)

    def isinf(self, a: Traced) -> Traced:
        return self.step("eq", self.absolute(a), math.inf)

    def isfinite(self, a: Traced) -> Traced:
        return self.step("lt", self.absolute(a), math.inf)

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


_COMPARE = {"eq": "oeq", "gt": "ogt", "ge": "oge", "lt": "olt", "le": "ole"}
_STEPS: Mapping[str, Callable[..., Value]] = {
    **{n: getattr(Doubles, n) for n in ("add", "sub", "mul", "div", "neg", "abs", "sqrt")},
    **{n: getattr(functions, n) for n in ("exp", "log", "log1p", "sin", "cos", "tan")},
    **{n: lambda d, *values, n=n: d.intrinsic(n, *values) for n in ("rint", "floor", "trunc", "copysign")},
    "max": Doubles.above,
    "min": Doubles.below,
    "pow": functions.power,  # of a >= 0, and not 0^0
}
"""The instructions of each step. The larger and the smaller of a vector and a number: nan stays."""
