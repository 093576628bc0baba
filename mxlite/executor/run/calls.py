"""The kernel calls of a planned step, on given memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends import bind_call
from ...memplan import MemoryPlan
from ...ops.random.philox import RandomStream
from ..plan.lower import Call, Lowered
from ..plan.step import Key

State = dict[str, Any]


def views_of(
    lowered: Lowered,
    plan: MemoryPlan,
    array: Callable[[Key], Any],
    block: Any,
    offsets: tuple[int, ...],
    host_block: Any = None,
) -> list[Any]:
    """The array of each instance: that of its key, or a part of the arena or of host memory."""
    hosted = plan.hosted
    views: list[Any] = [None] * len(plan.schedule.value_of)
    for i, v in enumerate(plan.schedule.value_of):
        where = lowered.key[v]
        if where is not None:
            views[i] = array(where)
        elif i in hosted:
            low, high = hosted[i]
            views[i] = host_block[low:high].view(lowered.dtype[v]).reshape(lowered.shape[v])
        elif (b := plan.liveness.range_of[i]) >= 0:
            low = offsets[b]
            nbytes = plan.problem.values[v].nbytes
            views[i] = block[low : low + nbytes].view(lowered.dtype[v]).reshape(lowered.shape[v])
    return views


def call_of(
    lowered: Lowered,
    plan: MemoryPlan,
    s: int,
    views: list[Any],
    block: Any,
    offsets: tuple[int, ...],
    rng_state: Any = None,
    state: Callable[[Call], State | None] = lambda call: None,
    scratch: Any = None,
) -> Callable[[], None]:
    """The kernel call that is step `s` of the schedule, on its `views`; `scratch` takes the arena's place."""
    schedule, t = plan.schedule, plan.schedule.task[s]
    call, task = lowered.calls[t], plan.problem.tasks[t]
    of_input = {v: views[i] for v, i in zip(task.inputs, schedule.inputs[s])}
    of_output = {v: views[o] for v, o in zip(task.outputs, schedule.outputs[s]) if o >= 0}
    work = block[:0] if scratch is None else scratch  # without a workspace a kernel gets an empty array
    if (b := plan.liveness.workspace_of.get(s)) is not None:
        work = block[offsets[b] : offsets[b] + task.workspace]
    assert call.node.op is not None
    return bind_call(
        call.with_threads(task.threads),
        lowered.backend.xp,
        call.node.op,
        call.node.attrs,
        [of_input.get(v) for v in call.inputs],
        [of_output.get(v) for v in call.outputs],
        work=work,
        rng=RandomStream(rng_state, call.stream) if call.stream >= 0 and rng_state is not None else None,
        train=lowered.step.train,
        shapes=call.shapes,
        state=state(call),
    )
