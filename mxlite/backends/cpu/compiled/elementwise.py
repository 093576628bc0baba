"""Loops that compute an expression for every element of arrays that broadcast: a nest that reduces nothing.

The shapes of a call are collapsed to the fewest axes: neighbouring ones are merged if no input is
broadcast along one and not along the other. So (N, C, H, W) with (1, C, 1, 1) is (N, C, HW) with (1, C, 1),
and arrays of one shape have one axis. All inputs are read, vector by vector, before an output is written, so
an output may overwrite any input of its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....graph.ir import Shape
from ....graph.opdef import DType
from ....te.expression import Expression
from ...call import in_turn
from ...elementwise.program import collapsed
from ...nests.elementwise import elementwise_nests
from ..onednn.primitive import address_of
from .calls import team
from .nests.loops import Loops

Run = team.Run


class Loop:
    """The loop for one expression, shapes and types. `call` connects it to arrays, and is fast."""

    def __init__(
        self,
        expression: Expression,
        constants: Sequence[float],
        views: Sequence[Shape],
        dtypes: Sequence[DType],
        shape: Shape,
        made: Sequence[DType],
        leads: Sequence[int] | None = None,
    ) -> None:
        """`views` and `dtypes` are those of the inputs, `shape` and `made` those of the outputs.

        leads: row strides in elements of every array, inputs and then outputs, if `shape` is (rows, columns)
        of matrices that have more columns.
        """
        if leads is None:
            lengths, strides = collapsed(shape, views)
            masks = [tuple(step != 0 for step in s) for s in strides]
        else:
            lengths, masks = shape, [(True, True)] * len(views)
        nests = elementwise_nests(expression, constants, lengths, masks, dtypes, made, leads=leads or ())
        self.loops = Loops(nests) if prod(shape) else None

    def call(self, *arrays: Any) -> Run:
        """The call for these arrays, inputs and then outputs: in C order, or as `leads` says."""
        if self.loops is None:  # there are no elements
            return in_turn(())
        return self.loops.call([address_of(x) for x in arrays], keep=arrays)
