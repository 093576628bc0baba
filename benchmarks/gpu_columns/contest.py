"""One network in several columns, one after the other: each has the GPU to itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Spread, Worker
from networks.suite import Net
from peers.column import Column
from peers.contest import brief, calibrate, Entries, Entry, load, reason, run, say, Terms

from .columns import TOLERANCE


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


def hold(net: Net, columns: Sequence[Column], terms: Terms, folder: Path, clock: Clock) -> Entries:
    """Measure `net` in each of `columns` that fits it, while there is time."""
    say(net.title)
    spec = net.prepare(folder)
    entries = {c.name: Entry(c, note=c.missing()) for c in columns if c.fits(net)}
    for name, e in entries.items():
        if e.note:
            continue
        if clock.left < 15:
            e.note = "no time was left"
            continue
        limited = Terms(terms.rounds, terms.seconds, terms.threads, min(terms.limit, clock.left), 0)
        with e.column.start(terms.threads) as worker:
            workers: dict[str, Worker] = {name: worker}
            load(spec, e, net, workers, limited)
            if name in workers:
                measure(e, worker, limited)
    compare(entries)
    for file in folder.iterdir():
        file.unlink()
    return entries


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
    """Losses of all against PyTorch's in float32, or the first that there are."""
    order = [n for n in ("eager-fp32", "eager-tf32", *entries) if n in entries and entries[n].losses]
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
    net: Net, nbytes: int, most_extra: float, terms: Terms, folder: Path, columns: Sequence[Column]
) -> list[dict[str, Any]]:
    """The largest batch of each column within `nbytes`; ours with at most `most_extra` more time planned."""
    spec = net.prepare(folder)
    found = []
    for column in columns:
        if column.missing():
            continue
        row: dict[str, Any] = {"column": column.title}
        try:
            with column.start(terms.threads) as worker:
                if column.side == "ours":
                    request: dict[str, Any] = dict(symbol=spec["symbol"], most_extra=most_extra)
                else:
                    request = dict(spec=spec, **column.options_for(net))
                row["batch"] = worker.ask(terms.limit, do="largest", nbytes=nbytes, **request)
        except RuntimeError as error:
            row["note"] = reason(error)
        found.append(row)
        say(f"  {row}")
    return found
