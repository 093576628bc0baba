"""Epilogues: what a kernel does to each number of its result before it stores the number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...graph.opdef import DType, Op
from ...te.expression import Expression, Writer
from .formula import write


class Applied(NamedTuple):
    """A call of an elementwise operator or its gradient: the input that is the number so far, and the output
    that is the next one.
    """

    op: type[Op]
    attrs: Any
    reads: str
    makes: str = "out"


@dataclass(frozen=True)
class Epilogue:
    """An expression whose first input is a number of the result, and the others those of arrays like it."""

    expression: Expression
    constants: tuple[float, ...]

    @classmethod
    def of(cls, calls: Sequence[Applied], dtype: DType, others: Sequence[str] = ()) -> Epilogue | None:
        """The epilogue of calls in turn; None if one of them declares no steps of each element.

        `others`: further inputs of the calls, by name. `dtype`: the type of the arrays.
        """
        w = Writer()
        number, more = w.input(), {name: w.input() for name in others}
        for call in calls:
            made = write(w, call.op, call.attrs, {call.reads: number, **more}, dtype)
            if made is None or call.makes not in made:
                return None
            number = made[call.makes]
        return cls(*w.expression([number]))

    def written(self, w: Any, number: Any, *others: Any) -> Any:
        """The value for these values of a Writer or a Computation."""
        return self.expression.written(w, [number, *others], self.constants)[0]
