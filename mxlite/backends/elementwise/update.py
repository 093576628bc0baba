"""An optimizer's step as an expression of one element, from the terms of its formula.

`ops/optim/recording.py` writes a formula down; here its terms become steps of an expression, with the
roundings that numpy makes. So generated code does the same arithmetic in the same order, in one pass over
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
from ...ops.optim.recording import ARRAY, COUNT, OF_NUMBERS, recorded, Term
from ...ops.optim.update import settings
from ...te.computation import Computation, Tensor
from ...te.expression import Expression, expression_of

Form = tuple[Any, ...]
"""A double derived from the count: ("t",), ("number", i), or ("sub" | "pow" | "div", form, form)."""


class Traced(NamedTuple):
    """An expression for one element with its constants; forms of its counted inputs with their numbers."""

    expression: Expression
    constants: tuple[float, ...]
    counted: tuple[Form, ...]
    numbers: tuple[float, ...]

    @property
    def shape(self) -> Traced:
        """The same without its numbers."""
        return self._replace(constants=(0.0,) * len(self.constants), numbers=(0.0,) * len(self.numbers))

    def counts(self, t: float) -> list[float]:
        """The counted inputs, as Python computes them."""
        return [_value_of(form, self.numbers, t) for form in self.counted]


def _value_of(form: Form, numbers: Sequence[float], t: float) -> float:
    if form[0] == "t":
        return t
    if form[0] == "number":
        return numbers[form[1]]
    a, b = (_value_of(x, numbers, t) for x in form[1:])
    found: float = OF_NUMBERS[form[0]](a, b)
    return found


def trace_both(step: Any, attrs: Any, dtype: DType) -> tuple[Traced, Traced]:
    """`trace` with decay and without."""
    return trace(step, attrs, dtype, True), trace(step, attrs, dtype, False)


def trace(step: Any, attrs: Any, dtype: DType, decays: bool) -> Traced:
    """`traced` of an `Update` class; weight and states are outputs. `attrs`: those of any of its forms."""
    return traced(step.step, settings(step, attrs), len(step.inputs), dtype, decays)


@functools.lru_cache(maxsize=1024)
def traced(formula: Callable[..., Any], attrs: Any, arrays: int, dtype: DType, decays: bool) -> Traced:
    """The expression of a formula, see `recorded`.

    dtype: the type numpy would compute in; with 16 bits, every operation is rounded as numpy rounds it.
    """
    inputs, rates, steps, outputs = recorded(formula, attrs, arrays, dtype, decays)
    pen = _Pen(dtype)
    pen.values |= {t: pen.input() for t in (*inputs, rates.lr, rates.wd)}
    pen.forms[rates.t] = ("t",)
    for term in steps:
        pen.write(term)
    expression, constants = expression_of(pen.inputs, [pen.values[t] for t in outputs])
    return Traced(expression, constants, tuple(pen.counted), tuple(pen.numbers))


class _Pen:
    """Writer of one formula's expression, which rounds as numpy does."""

    def __init__(self, dtype: DType) -> None:
        self.t = Computation()
        self.inputs: list[Tensor] = []
        self.dtype = dtype
        self.values: dict[Term, Tensor] = {}
        self.forms: dict[Term, Form] = {}
        self.counted: dict[Form, Tensor] = {}
        self.numbers: list[float] = []
        self._wide: set[Term] = set()

    def input(self) -> Tensor:
        """A new input."""
        self.inputs.append(self.t.input(f"x{len(self.inputs)}", ()))
        return self.inputs[-1]

    def write(self, term: Term) -> None:
        """Add the value of a term whose operands have one."""
        if term.kind == COUNT:
            self.forms[term] = (term.name, *map(self._form, term.operands))
            return
        found = self.t(term.name, *map(self._value, term.operands))
        if term.kind != ARRAY and any(map(self._widens, term.operands)):
            self._wide.add(term)
        elif self.dtype.itemsize == 2 and term.name in _ROUNDS:
            found = self.t(f"to_{self.dtype.name}", found)
        self.values[term] = found

    def _value(self, x: Any) -> Tensor:
        """Value of a term, or of a number in the arrays' type, as numpy passes it to a loop."""
        if isinstance(x, Term):
            if x.kind != COUNT:
                return self.values[x]
            form = self.forms[x]
            if form not in self.counted:
                self.counted[form] = self.input()
            return self.counted[form]
        with np.errstate(all="ignore"):
            return self.t.constant(float(np.float32(x) if self._widens(x) else self.dtype.type(x)))

    def _form(self, x: Any) -> Form:
        if isinstance(x, Term):
            return self.forms[x]
        self.numbers.append(float(x))
        return ("number", len(self.numbers) - 1)

    def _widens(self, x: Any) -> bool:
        """True if numpy computes in float32 with `x`: Python's floats do that to numbers of bfloat16, and so
        does what comes of it.
        """
        wide = x in self._wide or x.kind == COUNT if isinstance(x, Term) else isinstance(x, float)
        return wide and self.dtype.name == "bfloat16"


_ROUNDS = frozenset({"add", "sub", "mul", "div", "sqrt"})
