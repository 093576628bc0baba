"""Steps: what can be done with elements of arrays, by name, and the stand-ins that write formulas down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from .error_function import erf_values, normal_values

Step = tuple[Any, ...]


# -- stand-ins: a formula called with them is written down instead of computed ---------------------------
#
# A `StandIn` is a number of a formula. What is done to it, by Python's operators or by a function of `Numpy`,
# is a *step*, named as in `NUMPY`, and what a step becomes is for who derives from these two:
#
#     te/computation.py                           nodes of a computation
#     ops/optim/recording.py                      terms of an optimizer's step
#     backends/cpu/compiled/codegen/traced.py     instructions on vectors of float64
#
# So formulas are written once, as numpy computes them. What looks at a value in Python cannot be traced.

UFUNCS = {
    **{n: n for n in "sqrt exp expm1 log log1p log2 log10 tanh sign floor ceil trunc rint".split()},
    **{n: n for n in "sin cos tan arcsin arccos arctan sinh cosh arcsinh arccosh arctanh cbrt".split()},
    **{n: n for n in "add arctan2 hypot fmod copysign".split()},
    "sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power", "neg": "negative",
    "abs": "absolute", "max": "maximum", "min": "minimum", "eq": "equal", "ne": "not_equal", "gt": "greater",
    "ge": "greater_equal", "lt": "less", "le": "less_equal",
}  # fmt: skip
"""Steps that are one function of numpy, which has this name."""
STEPS = {"abs": "abs", **{function: step for step, function in UFUNCS.items()}}
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


def in_type(x: float, dtype: Any) -> float:
    """A number as one of 16 bits, where the arrays that it is combined with have such a type."""
    if dtype is None or dtype.itemsize != 2:
        return x
    with np.errstate(all="ignore"):
        return float(np.asarray(x).astype(dtype))


# -- semantics of steps


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _in_float64(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(np.asarray(x, np.float64)).astype(x.dtype)


def _through(dtype: Any) -> Callable[[Any], Any]:
    return lambda x: x.astype(dtype).astype(x.dtype)


NUMPY: Mapping[str, Callable[..., Any]] = {
    **{step: getattr(np, function) for step, function in UFUNCS.items()},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": _sigmoid,
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "erf": _in_float64(lambda x: erf_values(np, x)),
    "normal": _in_float64(lambda x: normal_values(np, x)),  # the normal distribution function
    "bell": lambda x: np.exp(x * x * x.dtype.type(-0.5)),
    "to_float16": _through(np.float16),
    "to_bfloat16": _through(ml_dtypes.bfloat16),
    "select": np.where,
}

COMPARISONS = frozenset({"eq", "ne", "gt", "ge", "lt", "le"})
