"""Epilogues of calls of elementwise operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.dtype import float32
from ...graph.opdef import DType, NoAttrs, Op
from ...ops.elementwise.activation import relu
from ...te.computation import Computation
from ...te.epilogue import Epilogue
from ...te.expression import expression_of
from .formula import write


class Applied(NamedTuple):
    """A call of an elementwise operator or its gradient: the input that is the number so far, and the output
    that is the next one.
    """

    op: type[Op]
    attrs: Any
    reads: str
    makes: str = "out"


def epilogue_of(calls: Sequence[Applied], dtype: DType, others: Sequence[str] = ()) -> Epilogue | None:
    """The epilogue of calls in turn; None if one of them declares no steps of each element.

    `others`: further inputs of the calls, by name. `dtype`: the type of the arrays.
    """
    t = Computation()
    inputs = [t.input(name, ()) for name in ("", *others)]
    number, more = inputs[0], dict(zip(others, inputs[1:]))
    for call in calls:
        made = write(t, call.op, call.attrs, {call.reads: number, **more}, dtype)
        if made is None or call.makes not in made:
            return None
        number = made[call.makes]
    return Epilogue(*expression_of(inputs, [number]))


RECTIFIER = epilogue_of([Applied(relu, NoAttrs(), "data")], float32)
"""That of a rectifier, in any type."""
