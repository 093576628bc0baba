"""Sums of the columns of a matrix: the gradient of a bias."""

from __future__ import annotations

from typing import Any

from .....core.dtype import float32
from .....graph.opdef import DType
from .....ops.scratch import carve, Piece, scratch_bytes
from .....te.computation import Computation
from ....nests.build import nests_of
from ...onednn.primitive import address_of, Run
from ..calls.team import usable
from ..codegen.emitter import storable
from ..nests import Loops


class ColumnSum:
    """out[c] = sum over r of x[r, c], for a matrix of `rows` x `columns`; `adds`: accumulated into out.

    Its bits are the same on any number of threads.
    """

    name = "compiled column sum"
    bits = ()

    def __init__(self, rows: int, columns: int, dtype: DType, out: DType, adds: bool = False) -> None:
        if not usable() or not {dtype.name, out.name} <= storable():
            raise LookupError
        t = Computation()
        total = t.sum(t.input("x", (rows, columns)), (0,))
        if adds:
            total = t.input("before", (1, columns)) + total
        dtypes = {"x": dtype.name, "before": out.name, "out": out.name}
        nests = nests_of(t, {"out": total}, {"out": (1, columns)}, dtypes, {"out": frozenset({"before"})})
        assert nests is not None
        self.loops = Loops(nests)
        self.pieces: list[Piece] = [((n,), float32) for n in nests.scratch]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(self, x: Any, out: Any, work: Any) -> Run:
        """The call; `x` has rows x columns elements."""
        given = {"x": x, "before": out, "out": out}
        names = (*self.loops.nests.inputs, *self.loops.nests.outputs)
        arrays = [*(given[n] for n in names), *carve(work, self.pieces)]
        return self.loops.call([address_of(x) for x in arrays], keep=(x, out, work))
