"""Expressions: the computation of one element, as a list of steps.

An expression has inputs, constants (numbers that are no part of the code, such as a learning rate), steps and
outputs; each has a number, in that order, and a step names the numbers of its operands:

    out = max(data, 0) * scale        inputs 0 data, constants 1 scale,
                                      steps 2 number 0.0, 3 max 0 2, 4 mul 3 1, outputs (4,)

The available steps, and what each computes, are in `steps.NUMPY`; comparisons give booleans, which only
`select(condition, where it holds, elsewhere)` reads. An expression is written as a computation of single
numbers (`expression_of`). `evaluate` is the reference semantics; backends generate code of the same meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.record import record
from .computation import Computation, needed_by, renumbered, Tensor
from .steps import COMPARISONS, NUMPY, Step

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

    def written(self, t: Computation, inputs: Sequence[Tensor], constants: Sequence[float]) -> list[Tensor]:
        """The outputs for these tensors of `t`."""
        values = [*inputs, *(t.constant(x) for x in constants)]
        for name, *operands in self.steps:
            is_literal = name == "number"
            values.append(t.number(*operands) if is_literal else t(name, *(values[x] for x in operands)))
        return [values[x] for x in self.outputs]


def expression_of(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> tuple[Expression, tuple[float, ...]]:
    """The steps that lead from inputs, each one number, to outputs, and their constants."""
    t = outputs[0].t
    needed = sorted(needed_by(t, (x.number for x in outputs)))
    constants = [i for i in needed if t.nodes[i][0] == "constant"]
    steps = [i for i in needed if t.nodes[i][0] not in ("input", "constant")]
    new = {at: i for i, at in enumerate((*(x.number for x in inputs), *constants, *steps))}
    made = Expression(
        len(inputs),
        len(constants),
        tuple(renumbered(t.nodes[i], new) for i in steps),
        tuple(new[x.number] for x in outputs),
    )
    return made, tuple(t.nodes[i][1] for i in constants)


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
