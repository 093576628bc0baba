"""An optimizer's step as an expression, traced from its formula.

`Update.step` defines a step once, as calls of numpy's functions on arrays. Called with the stand-ins of this
file it writes an expression instead: an array stands for one element, `out=` says which of them changes. So
generated code does the same arithmetic in the same order, with the same roundings, in one pass over
weight, gradient and states.

Numbers in the attributes are constants of the expression. Rates are inputs, since a program reads them
when it runs; so are values derived from the number of updates, `t`, which numpy's caller computes in double:

    inputs     weight, grad, *states, lr, wd, then one for each of `counted`
    outputs    the new weight, *states
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph.opdef import DType
from ...ops.optim.update import Rates
from ...te.expression import Expression, ExpressionValue, Writer
from ...te.steps import Numpy, StandIn

Form = tuple[Any, ...]
"""A double derived from the count: ("t",), ("number", i), or ("sub" | "pow" | "div", form, form)."""


class Traced(NamedTuple):
    """An expression for one element with its constants; forms of its counted inputs with their numbers."""

    expression: Expression
    constants: tuple[float, ...]
    counted: tuple[Form, ...]
    numbers: tuple[float, ...]


@functools.lru_cache(maxsize=1024)
def traced(
    formula: Callable[..., Sequence[Any]], attrs: Any, arrays: int, scratch: int, dtype: DType, decays: bool
) -> Traced:
    """The expression of `formula(xp, attrs, rates, scratch arrays, arrays) -> arrays that it changed`.

    dtype: the type numpy would compute in; with 16 bits, every operation is rounded as numpy rounds it.
    decays: True if the weight decay is not 0.
    """
    pen = _Pen(dtype)
    given = [_Array(pen, pen.w.input()) for _ in range(arrays)]
    lr, wd = _Rate(pen, pen.w.input(), True), _Rate(pen, pen.w.input(), decays)
    rates: Any = Rates(lr, wd, _Count(pen, ("t",)))  # type: ignore[arg-type]
    made = formula(_Numpy(pen), attrs, rates, [_Array(pen) for _ in range(scratch)], given)
    expression, constants = pen.w.expression([x.value for x in made])
    return Traced(expression, constants, tuple(pen.counted), tuple(pen.numbers))


def trace(step: Any, attrs: Any, dtype: DType, decays: bool) -> Traced:
    """`traced` of an `Update` class; weight and states are outputs. `attrs`: those of any of its forms."""
    return traced(_formula(step), attrs, len(step.inputs), step.scratch, dtype, decays)


def trace_rest(step: Any, attrs: Any, dtype: DType, decays: bool) -> Traced:
    """`traced` of an `Update` class's `rest`, which has no gradient among its inputs."""
    return traced(_rest(step), attrs, len(step.inputs) - 1, step.scratch, dtype, decays)


@functools.cache
def _formula(step: Any) -> Callable[..., Sequence[Any]]:
    def formula(xp: Any, a: Any, r: Any, scratch: Any, arrays: Any) -> Sequence[Any]:
        weight, grad, *states = arrays
        step.step(xp, a, r, scratch, weight, grad, *states, out=weight)
        return [weight, *states]

    return formula


@functools.cache
def _rest(step: Any) -> Callable[..., Sequence[Any]]:
    def formula(xp: Any, a: Any, r: Any, scratch: Any, arrays: Any) -> Sequence[Any]:
        weight, *states = arrays
        step.rest(xp, a, r, scratch, weight, *states, out=weight)
        return [weight, *states]

    return formula


class _Pen:
    """Writer of one trace's expression, which rounds as numpy does."""

    def __init__(self, dtype: DType) -> None:
        self.w = Writer()
        self.dtype = dtype
        self.counted: list[Form] = []
        self.numbers: list[float] = []
        self._inputs: dict[Form, ExpressionValue] = {}

    def value(self, x: Any) -> ExpressionValue:
        """Value of a stand-in, or of a number in the arrays' type, as numpy passes it to a loop."""
        if isinstance(x, (_Array, _Rate)):
            assert x.value is not None, "scratch was read before it was written"
            return x.value
        if isinstance(x, _Count):
            if x.form not in self._inputs:
                self.counted.append(x.form)
                self._inputs[x.form] = self.w.input()
            return self._inputs[x.form]
        with np.errstate(all="ignore"):
            return self.w.constant(float(np.float32(x) if self.widens(x) else self.dtype.type(x)))

    def number(self, x: float) -> Form:
        self.numbers.append(float(x))
        return ("number", len(self.numbers) - 1)

    def write(self, name: str, *operands: Any, rounds: bool = True) -> ExpressionValue:
        found = self.w(name, *(self.value(x) for x in operands))
        rounds = rounds and self.dtype.itemsize == 2 and name in _ROUNDS
        return self.w(f"to_{self.dtype.name}", found) if rounds else found

    def widens(self, x: Any) -> bool:
        """True if `x` makes numpy compute in float32: Python's floats do that to bfloat16, and so do the
        numbers that came of it, which stay as wide.
        """
        if self.dtype.name != "bfloat16":
            return False
        return isinstance(x, (float, _Count)) or (isinstance(x, _Rate) and x.wide)


_ROUNDS = frozenset({"add", "sub", "mul", "div", "sqrt"})


class _Array:
    """Stand-in for an array, by one of its elements; None: nothing has been written to it."""

    def __init__(self, pen: _Pen, value: ExpressionValue | None = None) -> None:
        self.dtype, self.value = pen.dtype, value


class _Rate(StandIn):
    """Stand-in for a rate, a number known at run time: in the arrays' type, or in float32 if `wide`."""

    def __init__(self, pen: _Pen, value: ExpressionValue, there: bool, wide: bool = False) -> None:
        self.pen, self.value, self.there, self.wide = pen, value, there, wide

    def __bool__(self) -> bool:
        return self.there

    def step(self, name: str, *operands: Any) -> _Rate:
        wide = any(self.pen.widens(x) for x in operands)
        return _Rate(self.pen, self.pen.write(name, *operands, rounds=not wide), True, wide)


class _Count(StandIn):
    """Stand-in for a double derived from the number of updates."""

    def __init__(self, pen: _Pen, form: Form) -> None:
        self.pen, self.form = pen, form

    def step(self, name: str, *operands: Any) -> Any:
        for x in operands:
            if isinstance(x, _Rate):
                return x.step(name, *operands)
        assert name in ("sub", "pow"), f"who reads a count computes no {name}"
        forms = (x.form if isinstance(x, _Count) else self.pen.number(x) for x in operands)
        return _Count(self.pen, (name, *forms))


class _Numpy(Numpy):
    """Stand-in for numpy: the functions that steps use."""

    def __init__(self, pen: _Pen) -> None:
        self.pen = pen

    def step(self, name: str, *operands: Any) -> ExpressionValue:
        return self.pen.write(name, *operands)

    def put(self, made: ExpressionValue, out: _Array) -> _Array:
        out.value = made
        return out

    def copyto(self, out: _Array, a: Any) -> None:
        out.value = self.pen.value(a)
