"""One network in several columns, one after the other: each has the GPU to itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness import Spread, Worker
from networks.suite import Net
from peers.column import Column
from peers.contest import brief, calibrate, Entries, Entry, load, reason, run, say, Terms

from .columns import TOLERANCE

NO_TIME = "no time was left"
OVER = 15.0  # seconds that a column which has begun may take when all time is gone


@dataclass(frozen=True)
class Clock:
    """When everything has to be over."""

    end: float

    @classmethod
    def of(cls, seconds: float | None) -> Clock:
        return cls(float("inf") if seconds is None else time.monotonic() + seconds)

    @property
    def left(self) -> float:
        return self.end - time.monotonic()


class Limited:
    """A worker for which every question has a limit: a column that hangs is a note in the table."""

    def __init__(self, worker: Worker, limit: float, clock: Clock) -> None:
        self._worker, self._limit, self._clock = worker, limit, clock

    def ask(self, limit: float | None = None, **request: Any) -> Any:
        most = min(self._limit, limit or self._limit, max(0.0, self._clock.left) + OVER)
        return self._worker.ask(most, **request)

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
    """Measure `net` in each of `columns` that fits it, while there is time. What fails has a note.

    tell: is called with all entries behind each column that was measured.
    """
    say(net.title)
    entries = {c.name: Entry(c, note=c.missing()) for c in columns if c.fits(net)}
    try:
        spec = net.prepare(folder)
    except Exception as error:
        for e in entries.values():
            e.note = e.note or failure(error)
        return entries
    for e in entries.values():
        if e.note:
            continue
        if clock.left < OVER:
            e.note = NO_TIME
            continue
        try:
            one(net, spec, e, terms, clock)
        except Exception as error:
            e.note = failure(error)
            say(f"  {e.column.title}: {e.note}")
        known = {n: replace(x) for n, x in entries.items()}
        compare(known)  # what comes may be a better reference
        tell(known)
    compare(entries)
    tell(entries)
    for file in folder.iterdir():
        file.unlink()
    return entries


def one(net: Net, spec: dict[str, Any], e: Entry, terms: Terms, clock: Clock) -> None:
    """One column in its process."""
    limited = Terms(terms.rounds, terms.seconds, terms.threads, min(terms.limit, clock.left), 0)
    with e.column.start(terms.threads) as started:
        worker: Any = Limited(started, terms.limit, clock)
        workers = {e.column.name: worker}
        load(spec, e, net, workers, limited)
        if workers:
            measure(e, worker, limited)


def failure(error: Exception) -> str:
    """Of an error, on one line."""
    return reason(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"[:200]


def measure(e: Entry, worker: Worker, terms: Terms) -> None:
    """Rounds of steps, then memory and what else the column knows."""
    name = e.column.name
    values: dict[str, list[float]] = {name: []}
    try:
        calibrate(e, worker, values, terms)
        values = {name: []} if name in values else {}
        for _ in range(terms.rounds):
            if name in values:
                run(e, worker, values)
        if name not in values:
            return
        e.seconds = Spread(tuple(values[name]))
        e.memory = worker.ask(terms.limit, do="memory")
        e.plan = {**worker.ask(terms.limit, do="plan"), **worker.ask(terms.limit, do="graphs")}
        say(f"  {e.column.title}: {e.seconds.median * 1e3:.3f} ms a step")
    except RuntimeError as error:
        e.note = reason(error)


def compare(entries: Entries) -> None:
    """Losses of all against PyTorch's, in float32 if it was measured, or the first that there are."""
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


def largest_batches(
    net: Net,
    nbytes: int,
    most_extra: float,
    terms: Terms,
    folder: Path,
    columns: Sequence[Column],
    clock: Clock,
) -> Iterator[dict[str, Any]]:
    """The largest batch of each column within `nbytes`, while there is time.

    most_extra: of ours, the share of a step that recomputation may be planned to take.
    """
    spec = net.prepare(folder)
    for column in columns:
        if column.missing():
            continue
        row: dict[str, Any] = {"column": column.title}
        try:
            if clock.left < OVER:
                raise TimeoutError(NO_TIME)
            with column.start(terms.threads) as worker:
                if column.side == "ours":
                    request: dict[str, Any] = dict(symbol=spec["symbol"], most_extra=most_extra)
                else:
                    request = dict(spec=spec, **column.options_for(net))
                limit = min(terms.limit, clock.left)
                row["batch"] = worker.ask(limit, do="largest", nbytes=nbytes, **request)
        except Exception as error:
            row["note"] = failure(error)
        say(f"  {row}")
        yield row
