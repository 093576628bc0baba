"""A weight of which each rank keeps a part, and its gradient: gathered, and scattered as a sum."""

from __future__ import annotations

from math import prod
from typing import Any

from ...comm import Collectives, gather_parts, HOST, sum_to_parts, sum_workspace, Window
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from .job import of_job


@record
class _Attrs:
    """`length` is that of the part that each rank keeps of an array of `shape`: `comm.shard_length`."""

    shape: tuple[int, ...]
    ranks: int
    length: int

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.length < 0:
            raise OpAttributeError(
                f"ranks must be 1 or more, and length 0 or more, got {self.ranks} and {self.length}."
            )


class GatherOverRanks(Op):
    """The array of `shape` of which each rank has its parts of all pieces.

    data: (L,) with L = `length`  ->  out: `shape`, of the same type. See `comm/ordered_sum.py` for the
    parts. It may run several times in a step, on all ranks equally: plans of all ranks are the same. S.
    Rajbhandari, J. Rasley, O. Ruwase and Y. He 2020, "ZeRO: Memory Optimizations Toward Training Trillion
    Parameter Models", stage 3. Raises StateError where the job has another number of ranks.
    """

    op_name = "_gather_over_ranks"
    inputs = ("data",)
    phases = 1

    Attrs = _Attrs

    @classmethod
    def exchanged(cls, a: Any) -> tuple[str, ...]:
        return ("out",)

    @staticmethod
    def infer_shape(a, data):
        if data is not None and data != (a.length,):
            raise ShapeError(f"data must be a rank's parts, ({a.length},), got {data}.")
        return ((a.length,),), (a.shape,)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        """Each rank's parts of the sum of all ranks' gradients."""
        return {"data": w._scatter_over_ranks(heads["out"], **_given(a))}

    @staticmethod
    def forward(xp, a, data, *, out):
        GatherOverRanks.exchange(of_job(a.ranks), a, data, out=out)

    @staticmethod
    def exchange(comm: Collectives, a: Any, data: Any, *, out: Any) -> None:
        """The same by these collectives, where the arrays are."""
        gather_parts(comm, data, out.reshape(-1))


class ScatterOverRanks(Op):
    """This rank's parts of the sum over all ranks, added up in the order of the ranks.

    data: `shape`  ->  out: (L,) with L = `length`; elements behind the parts, where other ranks have longer
    ones, are 0. Raises StateError where the job has another number of ranks.
    """

    op_name = "_scatter_over_ranks"
    inputs = ("data",)
    phases = 1
    recomputable = False
    accepts = "float"

    Attrs = _Attrs

    @classmethod
    def exchanged(cls, a: Any) -> tuple[str, ...]:
        return ("data",)

    @staticmethod
    def infer_shape(a, data):
        if data is not None and data != a.shape:
            raise ShapeError(f"data must be {a.shape}, got {data}.")
        return (a.shape,), ((a.length,),)

    @staticmethod
    def workspace(a, inputs, outputs, dtype, window: Window = HOST):
        return sum_workspace(prod(a.shape), dtype.itemsize, a.ranks, window)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        """Every rank's data reaches the parts of all: its gradient is theirs, gathered."""
        return {"data": w._gather_over_ranks(heads["out"], **_given(a))}

    @staticmethod
    def forward(xp, a, data, *, out, work):
        ScatterOverRanks.exchange(of_job(a.ranks), a, data, out=out, work=work)

    @staticmethod
    def exchange(comm: Collectives, a: Any, data: Any, *, out: Any, work: Any) -> None:
        """The same by these collectives, where the arrays are."""
        sum_to_parts(comm, data.reshape(-1), out, work)


def _given(a: Any) -> dict[str, Any]:
    return {"shape": a.shape, "ranks": a.ranks, "length": a.length}
