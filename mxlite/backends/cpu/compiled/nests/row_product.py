"""Products of a matrix with one row, read in the order of memory, as generated code.

A dense layer of one sample is bound by the time to read its weight. That lies with a row for each unit, and
each number of the result is the sum along such a row: nothing is copied or packed, and however many threads
share the rows, each sum has one order.
"""

from __future__ import annotations

import functools
from typing import Any

from .....te.computation import Computation
from .....te.epilogue import Epilogue
from ....nests.build import nests_of
from ....nests.facts import EXPENSIVE
from ....nests.nest import Nests
from ..calls import team
from .loops import Computed
from .schedule import BLOCK


class RowProduct(Computed):
    """out[r] = epilogue(sum over k of matrix[r, k] * row[k] (+ bias)), for float32 arrays; `matrix`: rows x
    columns.

    `bias`: how many numbers it has, as many as rows or 1; 0 if there is none. Raises LookupError where there
    is no code, or none as good as that of others: a library reads several long rows at a time, and a loop of
    its own computes as many expensive functions at a time as a vector has numbers.
    """

    name = "compiled row product"

    def __init__(self, rows: int, columns: int, bias: int, epilogue: Epilogue | None = None) -> None:
        if columns > BLOCK:
            raise LookupError
        if epilogue is not None and any(step[0] in EXPENSIVE for step in epilogue.expression.steps):
            raise LookupError
        super().__init__(lambda: _row_product(rows, columns, bias, epilogue, repr(epilogue)))

    def connect(self, matrix: Any, row: Any, bias: Any, out: Any, work: Any) -> team.Run:
        """The call for these arrays, or addresses of their first elements."""
        return self.run_of(work, matrix=matrix, row=row, bias=bias, out=out)


@functools.lru_cache(maxsize=256)
def _row_product(rows: int, columns: int, bias: int, epilogue: Epilogue | None, spelled: str) -> Nests:
    """`spelled`: the epilogue as text, since 0.0 and -0.0 are equal, but not the same number."""
    t = Computation()
    total = t.sum(t.input("matrix", (rows, columns)) * t.input("row", (1, columns)), (1,))
    if bias:
        total = total + t.input("bias", (bias, 1))
    if epilogue is not None:
        total = epilogue.written(t, total)
    dtypes = dict.fromkeys(("matrix", "row", "bias", "out"), "float32")
    nests = nests_of(t, {"out": total}, {"out": (rows, 1)}, dtypes, {})
    assert nests is not None
    return nests
