"""The sum of arrays over all ranks of a job, as an operator of a planned step."""

from __future__ import annotations

from typing import Any

from ...comm import bucket_workspace, Collectives, HOST, sum_bucket, Window
from ...core.dtype import float32
from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Entry
from ...graph.opdef import one_type, Op
from .job import of_job


class SumOverRanks(Op):
    """Each array summed over the ranks of the job, in the order of the ranks.

    args: `arrays` arrays (...) of one type, and perhaps the token of another message  ->  output0, ...: of
    the same shapes, which may overwrite them, and a token, (1,) float32.

    Several small arrays travel together, one after another in the scratch; the sums do not depend on that.
    All ranks must run their sums in one order, whatever else their plans differ in: each reads the token of
    the one before. A program gives each a segment of its own, so that they run beside the kernels. `ranks`
    is the number that the step was planned for. Raises StateError where the job has another number of ranks.
    """

    op_name = "_sum_over_ranks"
    variadic = "args"
    variadic_outputs = "outs"
    hidden = 1
    recomputable = False

    @record
    class Attrs:
        num_args: int
        arrays: int
        ranks: int

        def __post_init__(self) -> None:
            if self.arrays < 1 or self.ranks < 1:
                raise OpAttributeError(
                    f"arrays and ranks must be 1 or more, got {self.arrays} and {self.ranks}."
                )
            if self.num_args - self.arrays not in (0, 1):
                raise OpAttributeError(
                    f"There may be one input more than arrays, got {self.num_args} for {self.arrays}."
                )

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return int(a.arrays) + 1

    @classmethod
    def exchanged(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(a.arrays))

    @classmethod
    def in_place_options(cls, a: Any) -> dict[str, tuple[str, ...]]:
        return {f"output{i}": (f"arg{i}",) for i in range(a.arrays)}

    @staticmethod
    def infer_shape(a, *shapes):
        return shapes, (*shapes[: a.arrays], (1,))

    @classmethod
    def infer_type(cls, a, *dtypes):
        dtype = one_type(dtypes[: a.arrays], "all arrays")
        token = (float32,) * (a.num_args - a.arrays)
        return (*(dtype for _ in range(a.arrays)), *token), (*(dtype for _ in range(a.arrays)), float32)

    @staticmethod
    def workspace(a, inputs, outputs, dtype, window: Window = HOST):
        return bucket_workspace(inputs[: a.arrays], dtype.itemsize, a.ranks, window)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        """What every rank adds to a sum reaches the results of all: its gradient is the sum of theirs."""
        *names, token = outs
        given = [heads[n] if n in heads else w.zeros_like(outs[n]) for n in names]
        if token in heads:  # backward has the messages in the opposite order, and a token as well
            given.append(heads[token])
        sums = w.all("_sum_over_ranks", *given, arrays=a.arrays, ranks=a.ranks)
        return dict(zip(ins, (*sums, Entry(sums[0].node, a.arrays))))

    @staticmethod
    def forward(xp, a, *args, outs, work):
        SumOverRanks.exchange(of_job(a.ranks), a, *args, outs=outs, work=work)

    @staticmethod
    def exchange(comm: Collectives, a: Any, *args: Any, outs: Any, work: Any) -> None:
        """The same by these collectives, where the arrays are."""
        if outs[a.arrays] is not None:
            comm.put(outs[a.arrays], 0)
        wanted = [i for i in range(a.arrays) if outs[i] is not None]  # the same ones on all ranks
        if wanted:
            sum_bucket(comm, [args[i] for i in wanted], [outs[i] for i in wanted], work)
