"""Epilogues: what a kernel does to each number of its result before it stores the number."""

from __future__ import annotations

from typing import Any

from ..core.record import record
from .computation import Computation, Tensor
from .expression import evaluate_into, Expression


@record
class Epilogue:
    """An expression whose first input is a number of the result, and the others those of arrays like it."""

    expression: Expression
    constants: tuple[float, ...]

    @property
    def flops(self) -> int:
        """Operations for each number."""
        return sum(step[0] != "number" for step in self.expression.steps)

    def written(self, t: Computation, number: Tensor, *others: Tensor) -> Tensor:
        """The value for these tensors of `t`."""
        return self.expression.written(t, [number, *others], self.constants)[0]

    def apply(self, out: Any, *others: Any) -> None:
        """Apply it to the numbers of `out`, in place, by numpy. `others` have as many numbers."""
        arrays = [out, *(x.reshape(out.shape) for x in others)]
        evaluate_into(self.expression, self.constants, arrays, [out])
