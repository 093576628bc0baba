"""A plan as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing, before anything has run.

The format is the "Trace Event Format" (Google, 2016): complete events ("X") on rows for kernels and for each
direction of copies to host memory, counters ("C"), an instant ("i") for the peak step, names ("M"). Time
is modelled: each step takes what its task's `seconds` say. `mx.profiler` writes the same bytes beside
measured times.
"""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from ...core.disk.files import replacing
from ..problem import HostLink
from ..remat.schedule import FETCH, RUN, STORE
from .boxes import peak_step, step_name

if TYPE_CHECKING:
    from ..plan import MemoryPlan

Event = dict[str, Any]

# Names of colours that chrome://tracing knows; Perfetto gives colours by name and ignores these.
COLOURS = {
    "forward": "thread_state_running",
    "recomputed": "terrible",
    "backward": "rail_response",
    "update": "grey",
    "copy": "thread_state_iowait",
}
PID = 1
ROWS = {RUN: "kernels", STORE: "copies to host memory", FETCH: "copies from host memory"}


def write_trace(plan: MemoryPlan, path: Any) -> None:
    """Write `trace_of(plan)` as JSON to `path`, whole or not at all."""
    text = json.dumps(trace_of(plan), separators=(",", ":"))
    with replacing(path) as file:
        file.write(text.encode())


def trace_of(plan: MemoryPlan) -> Event:
    """The whole file: metadata first, the other events by time."""
    schedule, problem = plan.schedule, plan.problem
    fixed, live, kinds = problem.fixed_total, plan.live_bytes(), schedule.kinds
    first = [_event("M", "process_name", args={"name": "mxlite memory plan, modelled time"})]
    for kind in sorted({RUN, *kinds}):
        first.append(_event("M", "thread_name", tid=kind, args={"name": ROWS[kind]}))
    events: list[Event] = []
    peak = peak_step(plan)
    times, end = step_times(plan)
    if plan.budget_bytes is not None:
        events += [_counter("budget", at, plan.budget_bytes) for at in (0.0, end)]
    clock = 0.0
    for s, (start, stop) in enumerate(times):
        # Bytes change in the order of steps; a copy may begin before the step that it follows in the
        # schedule.
        clock = max(clock, start)
        category = category_of(plan, s)
        events.append(
            _event(
                "X", step_name(plan, s), cat=category, ts=start * 1e6, dur=(stop - start) * 1e6, tid=kinds[s],
                cname=COLOURS[category], args=_about(plan, s, live[s]),
            )
        )  # fmt: skip
        events.append(_counter("live bytes in the arena", clock, live[s]))
        events.append(_counter("arena and fixed bytes", clock, fixed + live[s]))
        if s == peak:
            events.append(
                _event("i", "the arena is fullest", cat="peak", ts=clock * 1e6, tid=kinds[s], s="p")
            )
    if times:
        events.append(_counter("live bytes in the arena", end, 0))
        events.append(_counter("arena and fixed bytes", end, fixed))
    events.sort(key=lambda e: e["ts"])
    about = {
        "method": plan.how,
        "peak bytes": plan.peak_bytes,
        "arena bytes": plan.arena_bytes,
        "fixed bytes": fixed,
        "host bytes": plan.host_bytes,
        "extra time": plan.extra_time,
    }
    return {"traceEvents": first + events, "displayTimeUnit": "ms", "otherData": about}


def step_times(plan: MemoryPlan) -> tuple[list[tuple[float, float]], float]:
    """For each step its [start, stop) in modelled seconds, and when the last kernel is done.

    Kernels run one after the other, and so do the copies of each direction, in parallel with them. A kernel
    waits for the earlier copies out, whose bytes it may reuse, and for what it reads.
    """
    schedule, problem = plan.schedule, plan.problem
    link = problem.host or HostLink()
    clock = out = back = 0.0
    ready: dict[int, float] = {}
    times = []
    for kind, t, ins, outs in zip(schedule.kinds, schedule.task, schedule.inputs, schedule.outputs):
        given = max((ready.get(i, 0.0) for i in ins), default=0.0)
        if kind == RUN:
            start = max(clock, out, given)
            stop = clock = start + problem.tasks[t].seconds
        else:
            nbytes = problem.values[schedule.value_of[ins[0]]].nbytes
            if kind == STORE:
                start = max(out, given)
                stop = out = start + nbytes / link.store_bytes_per_s
            else:
                start = max(back, clock, out, given)
                stop = back = start + nbytes / link.fetch_bytes_per_s
        for i in outs:
            ready[i] = stop
        times.append((start, stop))
    return times, clock


def category_of(plan: MemoryPlan, step: int) -> str:
    """Trace category of a step."""
    t = plan.schedule.task[step]
    if plan.schedule.kinds[step] != RUN:
        return "copy"
    if plan.schedule.copy[step]:
        return "recomputed"
    if t < plan.problem.num_forward:
        return "forward"
    return "update" if plan.problem.tasks[t].update else "backward"


def _about(plan: MemoryPlan, step: int, live: int) -> Event:
    schedule, problem = plan.schedule, plan.problem
    task = problem.tasks[schedule.task[step]]
    made = sum(problem.values[schedule.value_of[i]].nbytes for i in schedule.outputs[step] if i >= 0)
    about: Event = {"step": step, "live bytes": live, "bytes written": made}
    if schedule.kinds[step] == RUN:
        about["operator"] = task.op
        if task.kernel:
            about["kernel"] = task.kernel
        if task.workspace:
            about["workspace bytes"] = task.workspace
        if schedule.copy[step]:
            about["copy"] = schedule.copy[step]
    return about


def _event(phase: str, name: str, **rest: Any) -> Event:
    return {"name": name, "ph": phase, "pid": PID, "tid": 0, **rest}


def _counter(name: str, at: float, nbytes: int) -> Event:
    return _event("C", name, ts=at * 1e6, args={"bytes": nbytes})
