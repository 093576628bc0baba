"""An optimizer's step of one weight, shared by all ranks of a job: each has a part of the states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from math import prod
from typing import Any

from ...comm import Collectives, HOST, reduce_and_gather, shard_length, sum_workspace, Window
from ...core.dtype import float32
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op, require_kind
from .job import of_job


class ShardedUpdate(Op):
    """The step `inner` of one weight, by the sum of all ranks' gradients: each rank steps its part of the
    weight.

    args: weight (...), grad (...), the states, each (L,) with L = `shard_length`, hyper (P, R), and perhaps
    the token of another message  ->  token: (1,) float32.

    As a sum over ranks, a message goes out and one comes back, but this one brings the new weights. What a
    rank keeps of each state are the elements of its parts, which lie one after another. Every element meets
    the numbers that `inner` meets, so that all bits are those of whole states. S. Rajbhandari, J. Rasley,
    O. Ruwase and Y. He 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", stage 1.
    Raises StateError where the job has another number of ranks.
    """

    op_name = "_sharded_update"
    variadic = "args"
    outputs = ("token",)
    accepts = "float"
    recomputable = False

    @record
    class Attrs:
        num_args: int
        inner: Any
        settings: Any
        ranks: int
        states: int = field(default=0)

        def __post_init__(self) -> None:
            if self.ranks < 1 or self.states < 0:
                raise OpAttributeError(
                    f"ranks must be 1 or more, and states 0 or more, got {self.ranks} and {self.states}."
                )

    @classmethod
    def exchanged(cls, a: Any) -> tuple[str, ...]:
        return ("arg1",)

    @classmethod
    def mutated(cls, a: Any) -> tuple[str, ...]:
        return ("arg0", *(f"arg{2 + i}" for i in range(a.states)))

    @staticmethod
    def infer_shape(a, *shapes):
        weight, grad = shapes[:2]
        if grad != weight:
            raise ShapeError(f"the gradient must be as the weight, {weight}, got {grad}.")
        return shapes, ((1,),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        require_kind(cls, dtypes[0])
        return dtypes, (float32,)

    @staticmethod
    def flops(a, inputs, outputs):
        return 4 * (a.states + 2) * prod(inputs[0]) // a.ranks

    @staticmethod
    def workspace(a, inputs, outputs, dtype, window: Window = HOST):
        count = prod(inputs[0])
        shard = (shard_length(count, dtype.itemsize, a.ranks),)
        own = a.inner.workspace(a.settings, (shard,) * (a.states + 2), (), dtype)
        return sum_workspace(count, dtype.itemsize, a.ranks, window) + own

    @staticmethod
    def forward(xp, a, *args, token, work):
        inner = partial(a.inner.forward, xp, a.settings)
        ShardedUpdate.exchange(of_job(a.ranks), a, inner, *args, token=token, work=work)

    @staticmethod
    def exchange(
        comm: Collectives, a: Any, inner: Callable[..., None], *args: Any, token: Any, work: Any
    ) -> None:
        """The same by these collectives, where the arrays are; `inner` steps a part of the weight."""
        if token is not None:
            comm.put(token, 0)
        weight, grad = args[0].reshape(-1), args[1].reshape(-1)
        states, hyper = args[2 : 2 + a.states], args[2 + a.states]
        scratch = work[sum_workspace(grad.size, grad.itemsize, a.ranks, comm.window) :]

        def put(part: slice, own: slice, total: Any) -> None:
            inner(weight[part], total, *(s[own] for s in states), hyper, work=scratch)

        reduce_and_gather(comm, grad, weight, work, put)
