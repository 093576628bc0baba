"""Messages among ranks as parts of a step: the operators of `ops/collective`, by NCCL."""

from __future__ import annotations

from math import prod
from typing import Any

from .....ops.collective.job import of_job
from .....ops.collective.sharded_update import ShardedUpdate
from .....ops.collective.sum_over_ranks import SumOverRanks
from .....ops.collective.weight_over_ranks import GatherOverRanks, ScatterOverRanks
from ....base import ChosenKernel, Request
from ...compiler.kinds import FLOATS
from ...ranks.messages import Messages, WINDOW
from ...rows import answer, first_kernel, table
from ...runtime.device import Device, Run
from ..optim import update


def _row(device: Device, r: Request) -> ChosenKernel | None:
    op: Any = r.op
    if (r.dtype.name not in FLOATS and r.dtype.name != "uint8") or not any(map(prod, r.inputs)):
        return None

    def connect(a: Any, *inputs: Any, **rest: Any) -> Run:
        told = Messages(device)
        op.exchange(of_job(a.ranks, told), a, *inputs, **rest)
        return told.run()

    nbytes = (
        op.workspace(r.attrs, r.inputs, r.outputs, r.dtype, WINDOW) if "work" in op.signature.services else 0
    )
    return answer(r, connect, nbytes, f"nccl {op.op_name}")


def _sharded_update(device: Device, r: Request) -> ChosenKernel | None:
    """The update of a part of a weight is a launch for each piece."""
    attrs, states = r.attrs, r.attrs.states
    each = (r.inputs[2],) * (2 + states)
    hyper = r.inputs[2 + states]
    own = Request(attrs.inner, attrs.settings, (*each, hyper), (), r.dtype, r.dtypes[: 3 + states])
    found = first_kernel(update.rows, device, own)
    if found is None or found.workspace:
        return None

    def connect(a: Any, *args: Any, token: Any, work: Any = None) -> Run:
        told = Messages(device)

        def inner(*arrays: Any, work: Any) -> None:
            told.then(found.link(found.run, device.xp, a.settings, *arrays))

        ShardedUpdate.exchange(of_job(a.ranks, told), a, inner, *args, token=token, work=work)
        return told.run()

    nbytes = ShardedUpdate.workspace(attrs, r.inputs, r.outputs, r.dtype, WINDOW)
    return answer(r, connect, nbytes, f"nccl {attrs.inner.op_name}", mutates=True)


rows = table(
    (SumOverRanks, _row, None),
    (GatherOverRanks, _row, None),
    (ScatterOverRanks, _row, None),
    (ShardedUpdate, _sharded_update, None),
)
