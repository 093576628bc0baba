"""Measurement of one network in several columns, one after the other: each has the GPU to itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import Spread, Worker
from networks.suite import Net
from peers.column import Column
from peers.contest import brief, calibrate, Entries, Entry, load, run, say, Terms, told

from .columns import TOLERANCE

NO_TIME = "no time was left"
OVER = 15.0  # seconds for finishing once the time is used up; with less left no column is started
ENDING = 7.0  # of these, for ending processes, see harness/worker.py, and for writing the page


@dataclass(frozen=True)
class Clock:
    """Deadline of the whole run."""

    end: float

    @property
    def left(self) -> float:
        return self.end - time.monotonic()


class Limited:
    """A worker for which every request has a time limit: a column that hangs becomes a note in the table.

    Requests in progress when the time is used up may take OVER - ENDING seconds more, however many there are.
    """

    def __init__(self, worker: Worker, limit: float, clock: Clock) -> None:
        self._worker, self._limit, self._clock = worker, limit, clock

    def ask(self, limit: float | None = None, **request: Any) -> Any:
        left = self._clock.left + OVER - ENDING
        if left <= 0:
            raise RuntimeError(NO_TIME)
        return self._worker.ask(min(self._limit, limit or self._limit, left), **request)

    def __exit__(self, *_: object) -> None:
        self._worker.__exit__(None, None, None)


def hold(
    net: Net,
    columns: Sequence[Column],
    terms: Terms,
    folder: Path,
    clock: Clock,
    tell: Callable[[Entries], None] = lambda entries: None,
) -> Entries:
    """Measure `net` in each column that fits it, while there is time. Columns that fail get a note.

    tell: called with all entries after each measured column.
    """
    say(net.title)
    entries = {c.name: Entry(c, note=c.missing()) for c in columns if c.fits(net)}
    spec: dict[str, Any] = {}
    try:
        if clock.left >= OVER:  # starting takes seconds, too
            spec = net.prepare(folder)
    except Exception as error:
        failed = told(error)
        for e in entries.values():
            e.note = e.note or failed
        return entries
    for e in entries.values():
        if e.note:
            continue
        if not spec or clock.left < OVER:
            e.note = NO_TIME
            continue
        try:
            one(net, spec, e, terms, clock)
        except Exception as error:
            e.note = told(error)
            say(f"  {e.column.title}: {e.note}")
        known = {n: replace(x) for n, x in entries.items()}
        compare(known)  # a later column may be a better reference
        tell(known)
    compare(entries)
    tell(entries)
    for file in folder.iterdir():
        file.unlink()
    return entries


def one(net: Net, spec: dict[str, Any], e: Entry, terms: Terms, clock: Clock) -> None:
    """Measure one column in its process."""
    limited = Terms(terms.rounds, terms.seconds, terms.threads, min(terms.limit, clock.left), 0)
    with e.column.start(terms.threads) as started:
        worker: Any = Limited(started, terms.limit, clock)
        workers = {e.column.name: worker}
        load(spec, e, net, workers, limited)
        if workers:
            measure(e, worker, limited)


def measure(e: Entry, worker: Worker, terms: Terms) -> None:
    """Time rounds of steps, then read memory and whatever else the column reports."""
    name = e.column.name
    values: dict[str, list[float]] = {name: []}
    hosts = []
    try:
        calibrate(e, worker, values, terms)
        values = {name: []} if name in values else {}
        for _ in range(terms.rounds):
            if name in values and run(e, worker, values):
                hosts.append(worker.ask(terms.limit, do="host"))
        if name not in values:
            return
        e.seconds, e.host = Spread(tuple(values[name])), Spread(tuple(hosts))
        e.memory = worker.ask(terms.limit, do="memory")
        e.plan = {**worker.ask(terms.limit, do="plan"), **worker.ask(terms.limit, do="graphs")}
        say(f"  {e.column.title}: {e.seconds.median * 1e3:.3f} ms a step")
    except RuntimeError as error:
        e.note = told(error)


def compare(entries: Entries) -> None:
    """Compare all losses with PyTorch's in float32 if measured, otherwise with the first available."""
    theirs = (n for n, e in entries.items() if e.column.side == "torch")
    order = [n for n in ("eager-fp32", "eager-tf32", *theirs, *entries) if n in entries and entries[n].losses]
    for e in entries.values():
        if not e.losses:
            continue
        reference = entries[order[0]].losses
        e.difference = max(
            abs(a - b) / max(abs(b), 1e-9) if a == a else float("inf") for a, b in zip(e.losses, reference)
        )
        if not e.difference <= TOLERANCE[e.column.precision]:
            e.note = f"wrong: losses {brief(e.losses)} instead of {brief(reference)}"
            e.seconds = None
