"""The sum of arrays over all ranks of a job, as an operator of a planned step."""

from __future__ import annotations

from math import prod
from typing import Any

from ...comm import current, sum_over_ranks, sum_workspace
from ...core.errors import OpAttributeError, StateError
from ...core.record import record
from ...graph.opdef import Op


class SumOverRanks(Op):
    """Each array summed over the ranks of the job, in the order of the ranks.

    args: `num_args` arrays (...) of one type  ->  output0, ...: of the same shapes, which may overwrite them.

    Several small arrays travel together, one after another in the scratch; the sums do not depend on that. All
    ranks must run the same calls in the same order: the program gives each a segment of its own, and these run
    one by one, beside the kernels. `ranks` is the number that the step was planned for. Raises StateError where
    the job has another number of ranks.
    """

    op_name = "_sum_over_ranks"
    variadic = "args"
    variadic_outputs = "outs"
    recomputable = False
    accepts = "float"
    waits_for_others = True

    @record
    class Attrs:
        num_args: int
        ranks: int

        def __post_init__(self) -> None:
            if self.num_args < 1 or self.ranks < 1:
                raise OpAttributeError(
                    f"num_args and ranks must be 1 or more, got {self.num_args} and {self.ranks}."
                )

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return int(a.num_args)

    @classmethod
    def in_place_options(cls, a: Any) -> dict[str, tuple[str, ...]]:
        return {f"output{i}": (f"arg{i}",) for i in range(a.num_args)}

    @staticmethod
    def infer_shape(a, *shapes):
        return shapes, shapes

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        count = sum(prod(s) for s in inputs)
        together = count * dtype.itemsize if a.num_args > 1 else 0
        return _aligned(together) + sum_workspace(count, dtype.itemsize, a.ranks)

    @staticmethod
    def forward(xp, a, *args, outs, work):
        comm = current()
        if comm.size != a.ranks:
            raise StateError(f"This step was planned for {a.ranks} ranks, but the job has {comm.size}.")
        if len(args) == 1:
            whole = outs[0].reshape(-1)
            if outs[0] is not args[0]:
                outs[0][...] = args[0]
            sum_over_ranks(comm, whole, work)
            return
        dtype = args[0].dtype
        count = sum(x.size for x in args)
        together = work[: count * dtype.itemsize].view(dtype)
        parts, start = [], 0
        for x in args:
            parts.append(together[start : start + x.size].reshape(x.shape))
            parts[-1][...] = x
            start += x.size
        sum_over_ranks(comm, together, work[_aligned(together.nbytes) :])
        for out, part in zip(outs, parts):
            out[...] = part


def _aligned(nbytes: int) -> int:
    return -(-nbytes // 64) * 64
