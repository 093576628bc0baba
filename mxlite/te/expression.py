"""Expressions: the computation of one element, as a list of steps.

An expression has inputs, constants (numbers that are no part of the code, such as a learning rate), steps and
outputs; each has a number, in that order, and a step names the numbers of its operands:

    out = max(data, 0) * scale        inputs 0 data, constants 1 scale,
                                      steps 2 number 0.0, 3 max 0 2, 4 mul 3 1, outputs (4,)

The available steps, and what each computes, are in `steps.NUMPY`; comparisons give booleans, which only
`select(condition, where it holds, elsewhere)` reads. Equal steps are written once (value numbering), so that
common subexpressions of several operators are computed once. `evaluate` is the reference semantics; backends
generate code with the same meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.record import record
from .steps import COMPARISONS, in_type, NUMPY, StandIn, Step

_BLOCK = 8192  # elements that `evaluate_into` works on at a time


@record
class Expression:
    """An expression; see above. ("number", x) is a step that is a literal."""

    num_inputs: int
    num_constants: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @property
    def first_step(self) -> int:
        return self.num_inputs + self.num_constants

    def written(self, w: Any, inputs: Sequence[Any], constants: Sequence[float]) -> list[Any]:
        """The outputs for these values of `w`, a Writer or a Computation."""
        values = [*inputs, *(w.constant(x) for x in constants)]
        for name, *operands in self.steps:
            is_literal = name == "number"
            values.append(w.number(*operands) if is_literal else w(name, *(values[x] for x in operands)))
        return [values[x] for x in self.outputs]

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

    def from_others(self, which: int) -> tuple[Expression, tuple[int, ...]]:
        """The expression of one output that reads the others as inputs where it can, and what its inputs are:
        an input of this one, or the number of its inputs and the index of an output.
        """
        others = {
            x: i for i, x in enumerate(self.outputs) if x != self.outputs[which] and x >= self.first_step
        }
        needed = {self.outputs[which]}
        for at, step in reversed(list(enumerate(self.steps, self.first_step))):
            if at in needed and at not in others and step[0] != "number":
                needed.update(step[1:])
        inputs = [x for x in range(self.num_inputs) if x in needed] + [x for x in others if x in needed]
        constants = range(self.num_inputs, self.first_step)
        steps = [x for x in sorted(needed) if x >= self.first_step and x not in others]
        new = {at: i for i, at in enumerate((*inputs, *constants, *steps))}
        made = Expression(
            len(inputs),
            self.num_constants,
            tuple(_renumbered(self.steps[x - self.first_step], new) for x in steps),
            (new[self.outputs[which]],),
        )
        return made, tuple(self.num_inputs + others[x] if x in others else x for x in inputs)

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


def _renumbered(step: Step, new: Mapping[int, int]) -> Step:
    if step[0] == "number":
        return step
    operands = [new[x] for x in step[1:]]
    return (step[0], *(sorted(operands) if step[0] in _COMMUTE else operands))


_LEAVES = ("input", "constant", "number")
_COMMUTE = frozenset({"add", "mul"})


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


def evaluate_into(
    expression: Expression, constants: Sequence[float], inputs: Sequence[Any], outs: Sequence[Any]
) -> None:
    """Write the outputs for arrays of one shape into `outs`, arrays or None, which may be inputs. In float32,
    or float64 if there is such an input; block by block, so that no temporary is large.
    """
    wide = np.float64 if any(x.dtype == np.float64 for x in inputs) else np.float32
    shape = next(x.shape for x in (*inputs, *outs) if x is not None)
    for index in _blocks(shape):
        made = evaluate(expression, constants, [x[index] for x in inputs], wide)
        for out, value in zip(outs, made):
            if out is not None:
                with np.errstate(all="ignore"):
                    np.copyto(out[index], value, casting="unsafe")


def _blocks(shape: tuple[int, ...]) -> Any:
    """Indices that cut an array into parts of at most about _BLOCK elements, in C order."""
    axis, size = len(shape), 1
    while axis and size * shape[axis - 1] <= _BLOCK:
        axis -= 1
        size *= shape[axis]
    if axis == 0:
        yield ...
        return
    step = max(1, _BLOCK // max(1, size))
    for outer in np.ndindex(*shape[: axis - 1]):
        for i in range(0, shape[axis - 1], step):
            yield (*outer, slice(i, i + step))
