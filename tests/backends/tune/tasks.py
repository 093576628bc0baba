"""Tasks for tests of the tuner."""

from __future__ import annotations

from typing import Any

import numpy as np

import mxlite as mx
from mxlite.backends import backend_of, Request
from mxlite.backends.tune.records import Record
from mxlite.backends.tune.space import Schedule
from mxlite.backends.tune.task import device_key, Task, versions
from mxlite.graph.attrs import parse_attrs
from mxlite.ops import find_op

BACKEND = backend_of(mx.cpu())
FLOAT = np.dtype("float32")


def task_of(
    name: str, *shapes: tuple[int, ...], backward: bool = False, threads: int = 1, **options: Any
) -> Task:
    """A call of an operator, or of its gradient, with inputs of these shapes."""
    op = find_op(name)
    a = parse_attrs(op, {k: str(v) for k, v in options.items()})
    ins, outs = op.infer_shape(a, *shapes)
    have = dict(zip((*op.input_names(a), *op.output_names(a)), (*ins, *outs)))
    have |= {f"d_{n}": s for n, s in have.items()}
    called = op.grad_op if backward else op
    assert called is not None
    kinds = [tuple((have[n], FLOAT) for n in names(a)) for names in (called.input_names, called.output_names)]
    request = Request(called, a, ins, outs, FLOAT, (FLOAT,) * len(ins))
    return Task(request, kinds[0], kinds[1], threads, name)


def record_of(task: Task, schedule: Schedule, seconds: float = 1e-3, **changes: Any) -> Record:
    """A confirmed record of this machine; the default schedule took 2 ms."""
    said: dict[str, Any] = dict(
        task=task.key,
        device=device_key(BACKEND),
        schedule=schedule,
        operator=task.request.op.op_name,
        seconds=seconds,
        cold=2 * seconds,
        default_s=2e-3,
        confirmed=True,
        digest="",
        versions=versions(),
        at=1,
    )
    return Record(**(said | changes))
