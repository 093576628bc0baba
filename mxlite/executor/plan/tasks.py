"""The kernel calls of a step as tasks of the tuner."""

from __future__ import annotations

from dataclasses import replace

from ...backends.base import Request
from ...backends.tune.task import Kind, Task
from ..measure.rehearsal import can_be_run
from ..request.bind_request import BindRequest
from .candidates import Candidates
from .lower import Lowered
from .planning import Planning


def tasks_of(lowered: Lowered) -> list[Task]:
    """The distinct calls of a step that other processes can run, with how often each comes, in order."""
    found: dict[str, Task] = {}

    def kind(v: int) -> Kind:
        return None if v < 0 else (lowered.shape[v], lowered.dtype[v])

    for call, planned in zip(lowered.calls, lowered.problem.tasks):
        if planned.preview or planned.exchanges or not can_be_run(call):
            continue
        ins, outs = tuple(map(kind, call.inputs)), tuple(map(kind, call.outputs))
        task = Task(Request(*call.request), ins, outs, lowered.threads, planned.name, draws=call.stream >= 0)
        key = task.key
        if key in found:
            found[key] = replace(found[key], count=found[key].count + 1)
        elif task.packed() is not None:
            found[key] = task
    return list(found.values())


def tasks_of_step(request: BindRequest) -> tuple[list[Task], Lowered]:
    """The tasks of the step that is planned for a request, and the step."""
    planned, _ = Planning(Candidates.of_inputs(request)).run()
    return tasks_of(planned.train), planned.train
