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
    """The distinct calls of a step that other processes can run, and how often each comes; those that are
    expected to take the most time come first.
    """
    found: dict[str, Task] = {}
    expected: dict[str, float] = {}

    def kind(v: int) -> Kind:
        return None if v < 0 else (lowered.shape[v], lowered.dtype[v])

    for call, planned in zip(lowered.calls, lowered.problem.tasks):
        if planned.preview or planned.exchanges or not can_be_run(call):
            continue
        ins, outs = tuple(map(kind, call.inputs)), tuple(map(kind, call.outputs))
        task = Task(Request(*call.request), ins, outs, lowered.threads, planned.name, draws=call.stream >= 0)
        key = task.key
        expected[key] = expected.get(key, 0.0) + planned.seconds
        if key in found:
            found[key] = replace(found[key], count=found[key].count + 1)
        elif task.packed() is not None:
            found[key] = task
    return sorted(found.values(), key=lambda task: -expected[task.key])


def tasks_of_step(request: BindRequest) -> tuple[list[Task], Lowered]:
    """The tasks of the step that is planned for a request, and the step."""
    planned, _ = Planning(Candidates.of_inputs(request)).run()
    return tasks_of(planned.train), planned.train
