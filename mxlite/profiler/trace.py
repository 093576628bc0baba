"""The record as a trace for Chrome's chrome://tracing and for Perfetto.

The form is the "Trace Event Format" (Google, 2016), as a JSON object: complete events ("X") in rows of
threads, asynchronous ones ("b", "e") for the user's spans, as these may overlap in any way, counters
("C"), instants ("i") and names of processes and threads ("M"). Times are microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .recorder import Recorder

Event = dict[str, Any]


def events_of(recorder: Recorder) -> list[Event]:
    """The events, metadata first, the others by time."""
    pid = os.getpid()
    row = {ident: n for n, ident in enumerate(recorder.threads)}
    first: list[Event] = [_meta(pid, 0, "process_name", {"name": "mxlite"})]
    for ident, n in row.items():
        first.append(_meta(pid, n, "thread_name", {"name": recorder.threads[ident]}))
        first.append(_meta(pid, n, "thread_sort_index", {"sort_index": n}))

    def at(nanoseconds: int) -> float:
        return (nanoseconds - recorder.began) / 1000

    events: list[Event] = []
    for call in recorder.calls():
        facts, seconds = call.facts, (call.stop - call.start) / 1e9
        about: Event = {"operator": facts.operator, "kernel": facts.kernel}
        if facts.nbytes:
            about |= {"bytes": facts.nbytes, "flops": facts.flops}
            if seconds > 0:
                about["GFLOP/s"] = round(facts.flops / seconds / 1e9, 3)
                about["GB/s"] = round(facts.nbytes / seconds / 1e9, 3)
        kind = f"{call.kind},recomputed" if call.again else call.kind
        events.append(
            _complete(pid, row[call.thread], facts.name, kind, at(call.start), at(call.stop), about)
        )
    for n, span in enumerate(recorder.spans):
        for phase, when in (("b", span.start), ("e", span.stop)):
            events.append(
                {
                    "name": span.name, "cat": span.category, "ph": phase, "ts": at(when), "id": n,
                    "pid": pid, "tid": row[span.thread],
                }
            )  # fmt: skip
    for mark in recorder.instants:
        events.append(
            {
                "name": mark.name, "cat": mark.category, "ph": "i", "ts": at(mark.at),
                "pid": pid, "tid": row[mark.thread], "s": mark.scope,
            }
        )  # fmt: skip
    for count in recorder.counters():
        events.append(
            {
                "name": f"{count.name}: {count.series}", "ph": "C", "ts": at(count.at), "pid": pid, "tid": 0,
                "args": {count.series: count.value},
            }
        )  # fmt: skip
    events.sort(key=lambda e: e["ts"])
    return first + events


def trace_of(recorder: Recorder, about: Mapping[str, Any]) -> Event:
    """The content of the file. `about` is stored beside the events; no viewer shows it."""
    return {"traceEvents": events_of(recorder), "displayTimeUnit": "ms", "otherData": dict(about)}


def _meta(pid: int, tid: int, name: str, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _complete(pid: int, tid: int, name: str, category: str, start: float, stop: float, args: Event) -> Event:
    return {
        "name": name, "cat": category, "ph": "X", "ts": start, "dur": max(0.0, stop - start),
        "pid": pid, "tid": tid, "args": args,
    }  # fmt: skip
