"""Measures one network in several columns: load, compare losses, time in turns, measure memory."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TYPE_CHECKING

from harness import Spread, Worker
from networks.suite import Net

from .column import Column

if TYPE_CHECKING:  # it imports PyTorch, which may be missing
    from networks.network import Case

STEPS = 3  # number of losses that are compared
TOLERANCE = {"fp32": 1e-4, "bf16": 0.05, "narrow": 0.05}
SETTLE_S = 0.05  # for threads that spin before they sleep
PATIENCE_S = 2.5  # if a step takes longer, there are only FEW rounds
FEW = 3
SAID = 2000  # last characters of an error that are reported
REFERENCES = ("eager", "channels_last", "mxnet")


@dataclass(frozen=True)
class Terms:
    """Settings of a measurement. `limit`: seconds for loading and the first steps of one column."""

    rounds: int
    seconds: float
    threads: int
    limit: float
    profiled: int = 3


@dataclass
class Entry:
    """Results of one column. `note`: why it was not timed, or what is wrong with it.

    `beside`: seconds of other columns in the same rounds, for ratios round by round. `processor`: CPU seconds
    of a step over all threads, including spinning at barriers. `host`: seconds for the host to push a step,
    by round, if it does not wait for the device. `asked`: the budget in bytes, `least`: the least feasible
    budget, if it was infeasible. `part`: the number of the run that measured it.
    """

    column: Column
    losses: list[float] = field(default_factory=list)
    difference: float | None = None
    load_s: float = 0.0
    first_s: float = 0.0
    steps: int = 1
    seconds: Spread | None = None
    processor: Spread | None = None
    host: Spread | None = None
    beside: dict[str, Spread] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    profile: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    asked: int = 0
    least: int = 0
    part: int = 0
    note: str = ""

    @property
    def peak(self) -> int | None:
        """Peak bytes by the framework's own count."""
        return self.memory.get("measured") or self.memory.get("allocated")


Entries = dict[str, Entry]


def hold(
    net: Net | Case,
    columns: Sequence[Column],
    terms: Terms,
    folder: Path,
    examine: Callable[[Entries], None] | None = None,
) -> Entries:
    """Measure `net` in each column that fits it. Files are written into `folder`. `examine` may add notes
    about columns that are wrong, which are not timed."""
    say(net.title)
    spec = net.prepare(folder)
    entries = {c.name: Entry(c, note=c.missing()) for c in columns if c.fits(net)}
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for name, e in entries.items():
            if not e.note and e.column.in_rounds:
                workers[name] = stack.enter_context(e.column.start(terms.threads))
                # Nothing is timed here, so two at a time: compilation takes long.
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: load(spec, entries[name], net, workers, terms), list(workers)))
        compare(entries)
        if examine is not None:
            examine(entries)
        for name in list(workers):
            if entries[name].note:
                workers.pop(name).__exit__(None, None, None)
        if entries["mxlite"].note.startswith("wrong"):
            say(f"  not timed: mxlite is {entries['mxlite'].note}")
        else:
            take_turns(entries, workers, terms)
            weigh(entries, workers, terms)
            for e in entries.values():
                if e.column.share and not e.note:
                    within(net, spec, e, entries, workers, terms)
            profile(entries, workers, terms)
    for e in entries.values():
        if e.column.alone and not e.note:
            measure_alone(net, spec, e, entries, terms)
    return entries


def load(
    spec: Mapping[str, Any], e: Entry, net: Net | Case, workers: dict[str, Worker], terms: Terms
) -> None:
    """Build the network and run its first steps; a column that fails is excluded."""
    name = e.column.name
    try:
        start = time.perf_counter()
        e.load_s = workers[name].ask(terms.limit, do="load", spec=spec, **e.column.options_for(net))
        e.losses = workers[name].ask(terms.limit, do="losses", count=STEPS)
        e.first_s = time.perf_counter() - start
        say(f"  {e.column.title}: {e.first_s:.1f} s to load and {STEPS} steps, losses {brief(e.losses)}")
    except RuntimeError as error:
        e.note = told(error)
        say(f"  {e.column.title}: {e.note}")
        workers.pop(name).__exit__(None, None, None)


def compare(entries: Entries) -> None:
    """Compare all losses with those of another framework, if there is one."""
    ready = [n for n in (*REFERENCES, *entries) if n in entries and entries[n].losses]
    if not ready:
        return
    reference = entries[ready[0]].losses
    for e in entries.values():
        if not e.losses or e.difference is not None:
            continue
        e.difference = max(
            abs(a - b) / max(abs(b), 1e-9) if a == a else float("inf") for a, b in zip(e.losses, reference)
        )
        limit = TOLERANCE[e.column.precision]
        if not e.difference <= limit:
            e.note = (
                f"wrong: losses {brief(e.losses)}, {entries[ready[0]].column.title} has {brief(reference)}"
            )


def take_turns(entries: Entries, workers: Mapping[str, Worker], terms: Terms) -> None:
    """Time rounds in which each column of one precision runs steps for about `terms.seconds`, each round
    started by another column; then those of the other precision.
    """
    check_idle(entries, workers)
    for precision in TOLERANCE:
        values: dict[str, list[float]] = {n: [] for n in workers if entries[n].column.precision == precision}
        if not values:
            continue
        for name in list(values):
            calibrate(entries[name], workers[name], values, terms)
        slow = any(v[0] > PATIENCE_S for v in values.values())
        rounds = min(terms.rounds, FEW) if slow else terms.rounds
        for v in values.values():
            v.clear()
        for r in range(rounds):
            names = list(values)
            k = r % len(names) if names else 0
            for name in names[k:] + names[:k]:
                run(entries[name], workers[name], values)
        spreads = {name: Spread(tuple(v)) for name, v in values.items()}
        for name, spread in spreads.items():
            entries[name].seconds = spread
            entries[name].beside = {n: x for n, x in spreads.items() if n != name}


def calibrate(e: Entry, worker: Worker, values: dict[str, list[float]], terms: Terms) -> None:
    """Determine how many steps fill a round."""
    seconds = run(e, worker, values)
    if 0 < seconds < terms.seconds / 20:  # short: one step is too noisy
        e.steps = 10
        seconds = run(e, worker, values)
    if seconds:
        e.steps = max(1, min(10_000, round(terms.seconds / seconds)))


def run(e: Entry, worker: Worker, values: dict[str, list[float]]) -> float:
    """Append the seconds of a step to those of this column, which is removed from `values` if it fails."""
    try:
        seconds: float = worker.ask(do="run", count=e.steps)
    except RuntimeError as error:
        e.note = told(error)
        say(f"  {e.column.title}: {e.note}")
        del values[e.column.name]
        return 0.0
    values[e.column.name].append(seconds)
    time.sleep(SETTLE_S)
    return seconds


def check_idle(entries: Entries, workers: Mapping[str, Worker]) -> None:
    """Check that no worker uses the CPU while it waits."""
    time.sleep(SETTLE_S)
    before = {n: w.ask(do="processor") for n, w in workers.items()}
    start = time.perf_counter()
    time.sleep(0.3)
    for name, worker in workers.items():
        share = (worker.ask(do="processor") - before[name]) / (time.perf_counter() - start)
        if share > 0.05:
            say(f"  {entries[name].column.title} is not idle between rounds: {100 * share:.0f} % of a core")


def weigh(entries: Entries, workers: Mapping[str, Worker], terms: Terms) -> None:
    """Measure memory of all, and query our plans; then the allocator's own count, which disturbs timing."""
    alive = {n: w for n, w in workers.items() if entries[n].seconds}
    for name, worker in alive.items():
        entries[name].memory = worker.ask(do="memory")
    for name, worker in alive.items():
        e = entries[name]
        try:
            if e.column.side == "torch":
                e.memory["allocated"] = worker.ask(terms.limit, do="allocated")
            if e.column.side == "ours":
                e.plan = worker.ask(terms.limit, do="plan")
        except RuntimeError as error:
            e.note = reason(error)


def profile(entries: Entries, workers: Mapping[str, Worker], terms: Terms) -> None:
    """Profile each of our columns by call."""
    for name, worker in workers.items():
        e = entries[name]
        if e.seconds and e.column.side == "ours" and terms.profiled:
            try:
                e.profile = worker.ask(do="profile", count=min(terms.profiled, e.steps))
            except RuntimeError as error:
                e.note = reason(error)


def within(
    net: Net | Case,
    spec: Mapping[str, Any],
    e: Entry,
    entries: Entries,
    workers: dict[str, Worker],
    terms: Terms,
) -> None:
    """Measure ours within a fraction of PyTorch's least peak, in rounds with the fastest of both.

    Its worker is added to `workers` while it runs.
    """
    here = [
        x
        for n, x in entries.items()
        if n in workers and x.seconds and x.column.precision == e.column.precision
    ]
    theirs = [x for x in here if x.column.side == "torch" and x.peak]
    ours = next((x for x in here if x.column.side == "ours"), None)
    if not theirs or ours is None:
        e.note = "PyTorch's peak is not known in this run"
        return
    e.asked = int(e.column.share * min(x.peak or 0 for x in theirs))
    name, budget = e.column.name, mebibytes(e.asked)
    try:
        e.least = workers[ours.column.name].ask(terms.limit, do="least", nbytes=e.asked)
    except RuntimeError as error:
        e.note = reason(error)
        return
    if e.least > e.asked:
        e.note = f"no plan within {budget}, the least takes {mebibytes(e.least)}"
        say(f"  {e.column.title}: {e.note}")
        return
    e.column = replace(e.column, options={**e.column.options, "memory_budget": e.asked})
    with e.column.start(terms.threads) as worker:
        workers[name] = worker
        load(spec, e, net, workers, terms)
        compare(entries)
        if not e.note:
            fastest = min(theirs, key=lambda x: x.seconds.median)  # type: ignore[union-attr]
            racers = {x.column.name: replace(x) for x in (ours, fastest)} | {name: e}
            take_turns(racers, {n: workers[n] for n in racers}, terms)
            weigh(racers, {name: worker}, terms)
            profile(racers, {name: worker}, terms)
        workers.pop(name, None)


def mebibytes(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"


def measure_alone(net: Net | Case, spec: Mapping[str, Any], e: Entry, entries: Entries, terms: Terms) -> None:
    """Measure one step, after one whose loss is compared."""
    try:
        with e.column.start(terms.threads) as worker:
            worker.ask(terms.limit, do="load", spec=spec, **e.column.options_for(net))
            e.losses = worker.ask(terms.limit, do="losses", count=1)
            compare(entries)
            if not e.note:
                e.seconds = Spread((worker.ask(terms.limit, do="run", count=1),))
                e.memory = worker.ask(do="memory")
                say(f"  {e.column.title}: {e.seconds.median:.2f} s a step")
    except RuntimeError as error:
        e.note = reason(error)


def brief(losses: Sequence[float]) -> str:
    return " ".join(f"{x:.6g}" for x in losses)


def reason(error: RuntimeError) -> str:
    """The most informative line of an error: the last of a traceback, otherwise the last of all."""
    lines = [x.strip() for x in str(error).splitlines() if x.strip()]
    named = [x for x in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", x)]
    return ([*lines, *named] or ["it ended"])[-1][:200].replace("|", "/")


def told(error: Exception) -> str:
    """The reason of an error on one line. The full text goes to the error output."""
    own = isinstance(error, RuntimeError)  # of a worker: the text is its process's error
    lines = [str(error), *getattr(error, "__notes__", ())] if own else traceback.format_exception(error)
    say("\n".join(lines)[-SAID:])
    return reason(error) if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"[:200]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
