"""Expressions: the computation of one element, as a list of steps.

An expression has inputs, constants (numbers that are no part of the code, such as a learning rate), steps and
outputs; each has a number, in that order, and a step names the numbers of its operands:

    out = max(data, 0) * scale        inputs 0 data, constants 1 scale,
                                      steps 2 number 0.0, 3 max 0 2, 4 mul 3 1, outputs (4,)

The available steps, and what each computes, are in `NUMPY`; comparisons give booleans, which only
`select(condition, where it holds, elsewhere)` reads. Equal steps are written once (value numbering), so that
common subexpressions of several operators are computed once. `evaluate` is the reference semantics; backends
generate code with the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from ...ops.elementwise.error_function import erf_values, normal_values

Step = tuple[Any, ...]


# -- stand-ins: a formula called with them is written down instead of computed ---------------------------
#
# A `StandIn` is a number of a formula. What is done to it, by Python's operators or by a function of `Numpy`,
# is a *step*, named as in `NUMPY`, and what a step becomes is for who derives from these two:
#
#     ExpressionValue, below      steps of an expression
#     update.py                   the same, with the roundings that numpy makes
#     cpu/compiled/codegen/traced.py      instructions on vectors of float64
#
# So formulas are written once, as numpy computes them. What looks at a value in Python cannot be traced.

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


# -- expressions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expression:
    """An expression; see above. ("number", x) is a step that is a literal."""

    num_inputs: int
    num_constants: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def first_step(self) -> int:
        return self.num_inputs + self.num_constants

    def only(self, outputs: Sequence[int]) -> Expression:
        """The expression with these of its outputs, and only the steps that they need."""
        if len(outputs) == len(self.outputs):
            return self
        kept = tuple(self.outputs[i] for i in outputs)
        needed = set(kept)
        for at, step in reversed(list(enumerate(self.steps, self.first_step))):
            if at in needed and step[0] != "number":
                needed.update(step[1:])
        leaves = range(self.first_step)
        order = [*leaves, *(at for at in sorted(needed) if at not in leaves)]
        new = {at: i for i, at in enumerate(order)}
        steps = (self.steps[at - self.first_step] for at in order[self.first_step :])
        return Expression(
            self.num_inputs,
            self.num_constants,
            tuple(_renumbered(s, new) for s in steps),
            tuple(new[x] for x in kept),
        )

    def of_needed_inputs(self) -> tuple[Expression, tuple[int, ...]]:
        """The expression without unused inputs, and the indices of the remaining inputs."""
        read = {x for step in self.steps if step[0] != "number" for x in step[1:]} | set(self.outputs)
        places = tuple(i for i in range(self.num_inputs) if i in read)
        rest = range(self.num_inputs, self.first_step + len(self.steps))
        new = {at: i for i, at in enumerate((*places, *rest))}
        steps = tuple(_renumbered(s, new) for s in self.steps)
        outputs = tuple(new[x] for x in self.outputs)
        return Expression(len(places), self.num_constants, steps, outputs), places


class ExpressionValue(StandIn):
    """One value in a `Writer`, with Python's arithmetic."""

    __slots__ = ("number", "w")

    def __init__(self, w: Writer, number: int) -> None:
        self.w, self.number = w, number

    def step(self, name: str, *operands: ExpressionValue | float) -> ExpressionValue:
        return self.w(name, *operands)


class Writer:
    """Builder of an expression. `w("exp", x)` is a step on values and plain numbers."""

    def __init__(self) -> None:
        self._steps: list[Step] = []  # including inputs and constants, in the order of creation
        self._known: dict[Step, ExpressionValue] = {}
        self.inputs: list[int] = []
        self.constants: list[float] = []
        self._constants_at: list[int] = []
        self.dtype: Any = None  # that of the arrays of the operator being written

    def __len__(self) -> int:
        return len(self._steps)

    def input(self) -> ExpressionValue:
        """A new input."""
        self.inputs.append(len(self._steps))
        return self._new(("input",))

    def constant(self, x: float) -> ExpressionValue:
        """A number that is an argument of the code. It takes the type of the arrays it is combined with."""
        x = in_type(float(x), self.dtype)
        key = ("constant", repr(x))  # 0.0 is not -0.0, and nan equals itself
        if key not in self._known:
            self._constants_at.append(len(self._steps))
            self.constants.append(x)
            self._known[key] = self._new(key)
        return self._known[key]

    def number(self, x: float) -> ExpressionValue:
        """A literal in the code."""
        return ExpressionValue(self, self._number(x))

    def __call__(self, name: str, *operands: ExpressionValue | float) -> ExpressionValue:
        """The value of a new step, or of an equal step before."""
        step: Step = (name, *(self._number(x) for x in operands))
        if name in _COMMUTE and step[1] > step[2]:
            step = (name, step[2], step[1])
        if step not in self._known:
            self._known[step] = self._new(step)
        return self._known[step]

    def one_where(self, how: str, a: ExpressionValue | float, b: ExpressionValue | float) -> ExpressionValue:
        """1 where the comparison holds, else 0."""
        return self("select", self(how, a, b), 1.0, 0.0)

    def zero_where(self, how: str, a: ExpressionValue | float, b: ExpressionValue | float) -> ExpressionValue:
        """0 where the comparison holds, else 1: also where one of them is nan."""
        return self("select", self(how, a, b), 0.0, 1.0)

    def expression(self, outputs: Sequence[ExpressionValue]) -> tuple[Expression, tuple[float, ...]]:
        """The expression written so far, as far as `outputs` need it, and its constants."""
        needed = {v.number for v in outputs}
        for at in range(len(self._steps) - 1, -1, -1):
            step = self._steps[at]
            if at in needed and step[0] not in _LEAVES:
                needed.update(step[1:])
        constants = [i for i, at in enumerate(self._constants_at) if at in needed]
        order = [*self.inputs, *(self._constants_at[i] for i in constants)]
        leaves = len(order)
        order += [at for at in sorted(needed) if self._steps[at][0] not in ("input", "constant")]
        new = {at: i for i, at in enumerate(order)}
        steps = tuple(_renumbered(self._steps[at], new) for at in order[leaves:])
        made = Expression(len(self.inputs), len(constants), steps, tuple(new[v.number] for v in outputs))
        return made, tuple(self.constants[i] for i in constants)

    def _number(self, x: ExpressionValue | float) -> int:
        if isinstance(x, ExpressionValue):
            return x.number
        key = ("number", float(x))
        if key not in self._known:
            self._known[key] = self._new(key)
        return self._known[key].number

    def _new(self, step: Step) -> ExpressionValue:
        self._steps.append(step)
        return ExpressionValue(self, len(self._steps) - 1)


def in_type(x: float, dtype: Any) -> float:
    """A number as one of 16 bits, where the arrays that it is combined with have such a type."""
    if dtype is None or dtype.itemsize != 2:
        return x
    with np.errstate(all="ignore"):
        return float(np.asarray(x).astype(dtype))


def _renumbered(step: Step, new: Mapping[int, int]) -> Step:
    if step[0] == "number":
        return step
    operands = [new[x] for x in step[1:]]
    return (step[0], *(sorted(operands) if step[0] in _COMMUTE else operands))


_LEAVES = ("input", "constant", "number")
_COMMUTE = frozenset({"add", "mul"})


# -- semantics of steps


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _in_float64(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(np.asarray(x, np.float64)).astype(x.dtype)


def _through(dtype: Any) -> Callable[[Any], Any]:
    return lambda x: x.astype(dtype).astype(x.dtype)


NUMPY: Mapping[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "abs": np.absolute,
    "max": np.maximum,
    "min": np.minimum,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "erf": _in_float64(lambda x: erf_values(np, x)),
    "normal": _in_float64(lambda x: normal_values(np, x)),  # the normal distribution function
    "bell": lambda x: np.exp(x * x * x.dtype.type(-0.5)),
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "to_float16": _through(np.float16),
    "to_bfloat16": _through(ml_dtypes.bfloat16),
    "eq": np.equal,
    "ne": np.not_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "select": np.where,
}


def evaluate(
    expression: Expression, constants: Sequence[float], inputs: Sequence[Any], dtype: Any = np.float32
) -> list[Any]:
    """The outputs for arrays that broadcast, computed in `dtype` by numpy; whole temporaries for every step.

    An output that is not broadcast has the shape of its operands.
    """
    real = np.dtype(dtype).type
    values: list[Any] = [None if x is None else np.asarray(x).astype(dtype) for x in inputs]
    with np.errstate(all="ignore"):
        values += [np.asarray(real(c)) for c in constants]
        for name, *operands in expression.steps:
            if name == "number":
                values.append(np.asarray(real(operands[0])))
            else:
                found = NUMPY[name](*(values[x] for x in operands))
                kind = np.bool_ if name in COMPARISONS else dtype
                values.append(np.asarray(found, kind))
    return [values[x] for x in expression.outputs]


COMPARISONS = frozenset({"eq", "ne", "gt", "ge", "lt", "le"})
