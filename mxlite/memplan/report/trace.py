"""A plan as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing, before anything has run.

The form is the "Trace Event Format" (Google, 2016): complete events ("X") on a row for the device, counters
("C"), an instant ("i") for the fullest step, names ("M"). Time is modelled: each step takes what its task's
`seconds` say, one after the other. `mx.profiler` writes the same bytes as measured.
"""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from ...core.files import replacing
from .boxes import peak_step

if TYPE_CHECKING:
    from ..plan import MemoryPlan

Event = dict[str, Any]

# Names of colours that chrome://tracing knows; Perfetto gives colours by name and ignores these.
COLOURS = {
    "forward": "thread_state_running",
    "recomputed": "terrible",
    "backward": "rail_response",
    "update": "grey",
}
PID = 1
STEPS = 0  # the row of steps


def write_trace(plan: MemoryPlan, path: Any) -> None:
    """Write `trace_of(plan)` as JSON to `path`, whole or not at all."""
    text = json.dumps(trace_of(plan), separators=(",", ":"))
    with replacing(path) as file:
        file.write(text.encode())


def trace_of(plan: MemoryPlan) -> Event:
    """The whole file: metadata first, the other events by time."""
    schedule, problem = plan.schedule, plan.problem
    fixed, live = problem.fixed_total, plan.live_bytes()
    events = [
        _event("M", "process_name", args={"name": "mxlite memory plan, modelled time"}),
        _event("M", "thread_name", args={"name": "steps"}),
    ]
    now = 0.0  # microseconds
    peak = peak_step(plan)
    if plan.budget_bytes is not None:
        events.append(_counter("budget", now, plan.budget_bytes))
    for s, (t, copy) in enumerate(zip(schedule.task, schedule.copy)):
        task = problem.tasks[t]
        if copy:
            kind = "recomputed"
        elif t < problem.num_forward:
            kind = "forward"
        else:
            kind = "update" if task.update else "backward"
        long = task.seconds * 1e6
        made = sum(problem.values[schedule.value_of[i]].nbytes for i in schedule.outputs[s] if i >= 0)
        about: Event = {"step": s, "operator": task.op, "live bytes": live[s], "bytes written": made}
        if task.kernel:
            about["kernel"] = task.kernel
        if task.workspace:
            about["workspace bytes"] = task.workspace
        if copy:
            about["copy"] = copy
        events.append(_counter("live bytes in the arena", now, live[s]))
        events.append(_counter("arena and fixed bytes", now, fixed + live[s]))
        name = f"{task.name} (again)" if copy else task.name
        events.append(
            _event("X", name, cat=kind, ts=now, dur=long, tid=STEPS, cname=COLOURS[kind], args=about)
        )
        if s == peak:
            events.append(_event("i", "the arena is fullest", cat="peak", ts=now, tid=STEPS, s="p"))
        now += long
    if schedule.task:
        events.append(_counter("live bytes in the arena", now, 0))
        events.append(_counter("arena and fixed bytes", now, fixed))
    if plan.budget_bytes is not None:
        events.append(_counter("budget", now, plan.budget_bytes))
    about = {
        "method": plan.method,
        "peak bytes": plan.peak_bytes,
        "arena bytes": plan.arena_bytes,
        "fixed bytes": fixed,
        "extra time": plan.extra_time,
    }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _event(phase: str, name: str, **rest: Any) -> Event:
    return {"name": name, "ph": phase, "pid": PID, "tid": 0, **rest}


def _counter(name: str, at: float, nbytes: int) -> Event:
    return _event("C", name, ts=at, args={"bytes": nbytes})
