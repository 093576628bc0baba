"""Stand-ins for numbers and for numpy: a formula called with them is written down instead of computed.

A `StandIn` is a number of a formula. What is done to it, by Python's operators or by a function of `Numpy`,
is a *step*, named as in `expression.NUMPY`, and what a step becomes is for who derives from these two:

    expression.py               steps of an expression
    update.py                   the same, with the roundings that numpy makes
    cpu/compiled/codegen/traced.py      instructions on vectors of float64

So formulas are written once, as numpy computes them. What looks at a value in Python cannot be traced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

STEPS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "negative": "neg", "absolute": "abs",
    "abs": "abs", "maximum": "max", "minimum": "min", "sqrt": "sqrt", "exp": "exp", "log": "log",
    "log1p": "log1p", "sign": "sign", "floor": "floor", "rint": "rint", "sin": "sin", "cos": "cos",
    "tan": "tan", "power": "pow", "copysign": "copysign",
}  # fmt: skip
"""The step that each function of numpy is."""


class StandIn:
    """A number in a formula, with Python's arithmetic."""

    __slots__ = ()

    def step(self, name: str, *operands: Any) -> Any:
        """The stand-in for what a step makes of stand-ins and plain numbers."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        return self.step("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.step("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.step("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.step("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.step("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.step("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.step("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.step("div", other, self)

    def __rpow__(self, other: Any) -> Any:
        return self.step("pow", other, self)

    def __neg__(self) -> Any:
        return self.step("neg", self)


class Numpy:
    """The functions of numpy that are steps; `out=` is a stand-in that becomes the result."""

    def step(self, name: str, *operands: Any) -> Any:
        """See `StandIn.step`."""
        raise NotImplementedError

    def put(self, made: Any, out: Any) -> Any:
        """`out`, which becomes `made`."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in STEPS:
            raise AttributeError(f"No formula can call numpy's {name}: it is no step.")
        return partial(self._called, STEPS[name])

    def _called(self, step: str, *operands: Any, out: Any = None) -> Any:
        made = self.step(step, *operands)
        return made if out is None else self.put(made, out)
