"""Measured, not only planned: budgets on this machine, compared with PyTorch's checkpointing."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import quantiles
from typing import Any

from harness import markdown, Spread, Worker
from networks.budgeted import networks
from networks.suite import Net
from peers.column import Column, OURS, TORCH
from peers.contest import check_idle, compare, Entries, Entry, load, reason, take_turns, Terms, weigh

from planning.report import Report, say

TITLE = "Run: "
BUDGETS = 5
BLOCKS = 5  # of rounds, each after a prediction, which takes half a minute
ROUNDS, RACES = 100, 5  # for ours; for PyTorch's, whose ratios are far from their target
RACE_S = 0.15  # of a column in a round with PyTorch
LIMIT_S = 600  # for a column to load and to run its first steps, two at a time; for a block of rounds
FASTER = 1.3  # target at each of PyTorch's peaks
POINTS = 5.0  # tolerated difference of predicted and measured extra time, in per cent of a step
MIB = 2**20

ABOUT = """\
Whole training steps with SGD and momentum, on {threads} threads; every column is a process of its own, and
all begin with the same weights. Bytes are of the whole program: weights, gradients, momentum, batch and all
else. "Measured" counts the arrays that the program owns. "Same bits": weights, statistics and momentum after
three steps equal those of keeping all, bit by bit.

For their times all of ours are bound once more in one process and take turns there, step by step, {rounds}
rounds; before each step that counts is one of the same program that does not. Times are medians of the
rounds, extra time is that of a step against the step that keeps all in the same round. So what others do on
this machine meets all alike: a step took 85 ms for some seconds and then 150 ms, and what took turns less
often, or in processes of their own, differed by that. "CPU +%" is the same by the seconds that all threads
have run: no time is in it that others had the cores, but threads that wait for one another in a kernel run.
"Quickest +%" compares the quickest step of each: what others do only adds.

Before the rounds kernels are timed (`device="measured"`): each alone, and in steps on scratch arrays, one
that keeps all and the one of least bytes known. By that plans are chosen. What they say changes with what
others do of the memory they share with this machine: from one quarter of an hour to the next a step took 100
or 125 ms, and plans that read more memory are slowed more. So `calibrate(budgets=...)`, where the steps of
all plans take turns on scratch arrays, is asked {blocks} times, before every few rounds. No step of the
rounds goes into what it says. "Predicted" and "measured" are medians, with the least and the most of single
answers, and the quartiles of the rounds: how far the same thing differs from itself. "Apart" is the median of
measured less what was predicted just before.

Then PyTorch's columns take turns with ours at their peaks. For PyTorch, bytes are what its allocator's
running sum says at the peak of a step, on top of weights, momentum and batch: scratch of its libraries is not
in it, while ours is in ours. "At its peak" is mxlite with a budget of exactly these bytes, or the least it
knows (then said so); above 1, mxlite is faster.

"""

TORCHES = [
    Column("eager", "eager", "torch", TORCH),
    Column("sqrt", "checkpoint_sequential, sqrt(n)", "torch", TORCH, {"checkpointed": "segments"}),
    Column("blocks", "checkpoint of every block", "torch", TORCH, {"checkpointed": True}),
    Column(
        "compile",
        "compile, activation_memory_budget 0.5",
        "torch",
        TORCH,
        {"compiled": True, "activation_budget": 0.5},
    ),
]
TIMED = {"device": "measured"}
MOST_COMPILED = 300  # layers; compiling more takes longer than everything else


@dataclass
class Found:
    """Results of one network. `at` maps PyTorch's column to ours that has its peak as a budget, `races` to
    seconds of both in the same rounds; `predicted` are seconds of a step by budget (0: none), one for each
    block of rounds.
    """

    net: Net
    entries: Entries
    at: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    budgets: dict[str, int] = field(default_factory=dict)
    least: int = 0
    peaks: dict[str, int] = field(default_factory=dict)
    races: dict[str, tuple[Spread, Spread]] = field(default_factory=dict)
    predicted: dict[int, list[float]] = field(default_factory=dict)

    def predicted_s(self, e: Entry) -> Spread:
        """Predicted seconds of our step."""
        return Spread(tuple(self.predicted[e.column.options.get("memory_budget", 0)]))

    def predicted_extra(self, e: Entry) -> Spread:
        """Predicted extra time in per cent of the step that keeps everything, by prediction."""
        return _per_cent(self.predicted_s(e) / self.predicted_s(self.entries["keep"]))

    def measured_extra(self, e: Entry) -> Spread:
        """Measured extra time in per cent of the step that keeps everything, by round."""
        kept = self.entries["keep"].seconds
        assert e.seconds is not None and kept is not None
        return _per_cent(e.seconds / kept)

    def quickest_extra(self, e: Entry) -> float:
        """Extra time in per cent, from the quickest rounds of both, since disturbances only add time."""
        kept = self.entries["keep"].seconds
        assert e.seconds is not None and kept is not None
        return 100 * (min(e.seconds.values) / min(kept.values) - 1)

    def apart(self, e: Entry) -> float:
        """Median difference of measured and predicted extra time, in per cent, by rounds of the block."""
        measured, predicted = self.measured_extra(e).values, self.predicted_extra(e).values
        each = len(measured) // len(predicted)
        return Spread(tuple(m - predicted[r // each] for r, m in enumerate(measured))).median


def _per_cent(ratio: Spread) -> Spread:
    return Spread(tuple(100 * (r - 1) for r in ratio.values))


def hold(net: Net, terms: Terms, torches: list[Column], without: Collection[str], folder: Path) -> Found:
    """Measure one network: first without budgets, then with budgets derived from that.

    PyTorch's columns named in `without` are only mentioned.
    """
    say(net.title)
    spec = net.prepare(folder)
    keep = Column("keep", "keep all", "ours", OURS, TIMED)
    columns = [keep, *(torches if net.twin[0] else ())]
    found = Found(net, {c.name: Entry(c, note=c.missing() or _left_out(c, net, without)) for c in columns})
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}

        def start(names: list[str], at_once: int = 1) -> None:
            for name in names:
                if not found.entries[name].note:
                    workers[name] = stack.enter_context(found.entries[name].column.start(terms.threads))
            ready = [n for n in names if n in workers]
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(lambda n: load(spec, found.entries[n], net, workers, terms), ready))

        start(["keep"])  # alone, since it times kernels
        if "keep" not in workers:
            return found
        start([n for n in found.entries if n != "keep"], 2)
        *_, most = _budgets(found, workers["keep"])
        _peaks(found, workers, terms)
        more = _asked(found, most)
        found.entries |= {c.name: Entry(c) for c in more}
        _predict(found, workers["keep"], terms)
        start([c.name for c in more], 2)
        for name, e in found.entries.items():
            if name in workers and e.column.side == "ours":
                found.digests[name] = workers[name].ask(do="digest")
        compare(found.entries)
        for name in list(workers):
            if found.entries[name].note:
                workers.pop(name).__exit__(None, None, None)
        if "keep" not in workers:
            return found
        check_idle(found.entries, workers)
        _take_turns(found, workers["keep"], terms)
        ours = {n: w for n, w in workers.items() if found.entries[n].column.side == "ours"}
        weigh(found.entries, ours, terms)
        _race(found, workers, terms)
    return found


def _left_out(column: Column, net: Net, without: Collection[str]) -> str:
    """Reason why a column is not measured; empty if it is."""
    if column.name in without:
        return "left out"
    layers = sum(n.endswith("weight") for n in net.symbol().list_arguments())
    if column.options.get("compiled") and layers > MOST_COMPILED:
        return f"left out: to compile {layers} layers takes longer than all else"
    return ""


def _budgets(found: Found, worker: Worker) -> list[int]:
    """Budgets from the least feasible one up to, and then, that which keeps everything."""
    found.least, *others = worker.ask(do="budgets", count=BUDGETS)
    found.budgets = {f"budget{i}": b for i, b in enumerate([found.least, *others])}
    return [*found.budgets.values(), worker.ask(do="memory")["planned"]]


def _peaks(found: Found, workers: dict[str, Worker], terms: Terms) -> None:
    for name, e in found.entries.items():
        if name in workers and e.column.side == "torch":
            try:
                found.peaks[name] = workers[name].ask(terms.limit, do="allocated")
                e.memory["allocated"] = found.peaks[name]
            except RuntimeError as error:
                e.note = reason(error)
                workers.pop(name).__exit__(None, None, None)


def _asked(found: Found, most: int) -> list[Column]:
    """Our columns with budgets."""
    columns = [
        Column(name, f"{nbytes / MIB:.1f}", "ours", OURS, {"memory_budget": nbytes, **TIMED})
        for name, nbytes in reversed(found.budgets.items())
    ]
    for name, peak in found.peaks.items():
        if peak >= most:
            found.at[name] = "keep"
        elif peak <= found.least:
            found.at[name] = "budget0"
        else:
            found.at[name] = f"at {name}"
            columns.append(
                Column(f"at {name}", f"{peak / MIB:.1f}", "ours", OURS, {"memory_budget": peak, **TIMED})
            )
    return columns


def _predict(found: Found, worker: Worker, terms: Terms) -> None:
    """Predict the step times of all budgets once more."""
    asked = sorted({e.column.options.get("memory_budget", 0) for e in found.entries.values()} - {0})
    seconds = worker.ask(terms.limit, do="tried", budgets=asked)
    for budget, s in zip((0, *asked), seconds, strict=True):
        found.predicted.setdefault(budget, []).append(s)


def _take_turns(found: Found, keep: Worker, terms: Terms) -> None:
    """Time all our programs in the process of the one that keeps everything: rounds in blocks, with a
    prediction before each."""
    columns = [e for e in found.entries.values() if e.column.side == "ours" and not e.note]
    budgets = [n for e in columns if (n := e.column.options.get("memory_budget", 0))]
    assert columns[0].column.name == "keep"
    found.predicted.clear()  # predictions made while others were loading
    keep.ask(terms.limit, do="beside", budgets=budgets)
    rounds: list[list[tuple[float, float]]] = [[] for _ in columns]
    blocks = _blocks(terms)
    for _ in range(blocks):
        _predict(found, keep, terms)
        block = keep.ask(terms.limit, do="turns", rounds=terms.rounds // blocks)
        for of, more in zip(rounds, block, strict=True):
            of += more
    keep.ask(do="alone")
    for e, of in zip(columns, rounds, strict=True):
        e.seconds, e.processor = (Spread(tuple(of)) for of in zip(*of))


def _blocks(terms: Terms) -> int:
    return min(BLOCKS, terms.rounds)


def _race(found: Found, workers: dict[str, Worker], terms: Terms) -> None:
    """Time PyTorch's columns in rounds with ours at their peaks."""
    pairs = {t: o for t, o in found.at.items() if t in workers and o in workers}
    names = {*pairs, *pairs.values()}
    racers = {n: replace(e) for n, e in found.entries.items() if n in names}
    rounds = min(terms.rounds, RACES)
    take_turns(racers, {n: workers[n] for n in racers}, replace(terms, rounds=rounds))
    for theirs, ours in pairs.items():
        first, second = racers[theirs], racers[ours]
        found.entries[theirs].note = first.note or second.note
        if not first.note and not second.note and first.seconds and second.seconds:
            found.races[theirs] = first.seconds, second.seconds


# -- tables ------------------------------------------------------------------------------------------------


def within_budgets(found: Found) -> str:
    """Table of planned and measured bytes and time."""
    rows: list[list[object]] = []
    keep = found.entries["keep"]
    for name in ("keep", *reversed(found.budgets)):
        e = found.entries[name]
        if e.seconds is None or keep.seconds is None or e.plan is None:
            rows.append([e.column.title, *["-"] * 10, e.note])
            continue
        assert e.processor is not None and keep.processor is not None
        planned, measured = (f"{e.memory[k] / MIB:.1f}" for k in ("planned", "measured"))
        same = "yes" if found.digests[name] == found.digests["keep"] else "NO"
        rows.append(
            [
                e.column.title, planned, measured, _least_to_most(found.predicted_extra(e)),
                _quartiles(found.measured_extra(e)), f"{found.apart(e):.1f}",
                f"{found.quickest_extra(e):.1f}", f"{_per_cent(e.processor / keep.processor).median:.1f}",
                *(f"{1e3 * s.median:.0f}" for s in (found.predicted_s(e), e.seconds)), same, e.plan["method"],
            ]
        )  # fmt: skip
    head = [
        "budget MiB",
        "planned",
        "measured",
        "predicted +%",
        "measured +%",
        "apart",
        "quickest +%",
        "CPU +%",
    ]
    return markdown([*head, "predicted ms", "ms", "same bits", "how"], rows)


def _least_to_most(of: Spread) -> str:
    """The median between the extremes."""
    return f"{of.median:.1f} ({min(of.values):.1f} to {max(of.values):.1f})"


def _quartiles(of: Spread) -> str:
    """The median between the lower and the upper quartile."""
    lower, upper = _middle_half(of)
    return f"{of.median:.1f} ({lower:.1f} to {upper:.1f})"


def beside_torch(found: Found) -> str:
    """Table of PyTorch's columns and ours at their peaks."""
    rows: list[list[object]] = []
    for name, e in found.entries.items():
        if e.column.side != "torch":
            continue
        if name not in found.races:
            rows.append([e.column.title, *["-"] * 5, e.note])
            continue
        at, (theirs, ours) = found.entries[found.at[name]], found.races[name]
        peak = at.memory.get("measured", 0) / MIB
        note = "the least known; PyTorch's is below" if peak * MIB > found.peaks[name] else ""
        rows.append(
            [
                e.column.title, f"{found.peaks[name] / MIB:.1f}", f"{1e3 * theirs.median:.0f}",
                f"{peak:.1f}", f"{1e3 * ours.median:.0f}", str(theirs / ours), note,
            ]
        )  # fmt: skip
    head = ["PyTorch", "peak MiB", "ms", "mxlite MiB at its peak", "ms", "PyTorch / mxlite", ""]
    return markdown(head, rows) if rows else ""


def tally(found: Found) -> dict[str, Any]:
    """Number of a network's plans that meet the targets, and the ratios at PyTorch's peaks."""
    keep = found.entries["keep"]
    counts = {"plans": 0, "kept": 0, "bits": 0, "near": 0, "quick": 0, "steady": 0}
    for name, e in found.entries.items():
        if e.column.side != "ours" or e.seconds is None or e.plan is None or keep.seconds is None:
            continue
        limit = found.budgets.get(name) or e.column.options.get("memory_budget") or e.memory["planned"]
        counts["plans"] += 1
        counts["kept"] += e.memory["measured"] == e.memory["planned"] <= limit
        counts["bits"] += found.digests[name] == found.digests["keep"]
        predicted = found.predicted_extra(e).median
        counts["near"] += abs(found.apart(e)) <= POINTS
        counts["quick"] += abs(found.quickest_extra(e) - predicted) <= POINTS
        lower, upper = _middle_half(found.measured_extra(e))
        counts["steady"] += upper - lower <= POINTS
    ratios: dict[str, float] = {}
    for name, (theirs, ours) in found.races.items():
        if found.peaks[name] >= found.entries[found.at[name]].memory.get("measured", 0):
            ratios[f"{found.net.name}, {name}"] = (theirs / ours).median
    return {**counts, "ratios": ratios}


def _middle_half(of: Spread) -> tuple[float, float]:
    """The lower and the upper quartile."""
    if len(of.values) == 1:
        return of.median, of.median
    lower, _, upper = quantiles(of.values, n=4, method="inclusive")
    return lower, upper


def targets(report: Report) -> None:
    """Report the targets over all networks that were run."""
    tallies = [t for title, t in report.tallies.items() if title.startswith(TITLE)]
    counted = ("plans", "kept", "bits", "near", "quick", "steady")
    count, kept, bits, near, quick, steady = (sum(t[n] for t in tallies) for n in counted)
    report.target("measured bytes = planned <= budget", f"{count} plans", f"{kept}", kept == count)
    report.target("bits equal keep-all's", f"{count} plans", f"{bits}", bits == count)
    name = f"measured extra time within {POINTS:g} points of what was predicted"
    report.target(name, f"{count} plans", f"{near}", near == count)
    report.target("the same by the quickest round of each", "none", f"{quick} of {count}", None)
    name = f"measured extra time of the middle half of rounds within {POINTS:g} points of one another"
    report.target(name, "none: noise", f"{steady} of {count}", None)
    ratios = {where: ratio for t in tallies for where, ratio in t["ratios"].items()}
    if ratios:
        where, worst = min(ratios.items(), key=lambda pair: pair[1])
        report.target(
            "PyTorch / mxlite at each of its peaks, least",
            f"{FASTER:g}",
            f"{worst:.2f} ({where})",
            worst >= FASTER,
        )


def measure(
    report: Report,
    quick: bool,
    full: bool,
    threads: int,
    names: list[str] | None = None,
    without: Collection[str] = (),
    rounds: int | None = None,
) -> None:
    """Measure all networks, or those of `names`, without PyTorch's columns in `without`."""
    for name in without:
        if name not in (known := [t.name for t in TORCHES]):
            raise SystemExit(f"There is no column {name!r} of PyTorch's; there are {', '.join(known)}.")
    terms = Terms(
        rounds=rounds or (3 if quick else ROUNDS),
        seconds=0.1 if quick else RACE_S,
        threads=threads,
        limit=LIMIT_S,
        profiled=0,
    )
    about = dict(threads=threads, rounds=terms.rounds, blocks=_blocks(terms))
    report.put("Run", ABOUT.format(**about))
    for net in networks(quick, full):
        if names is not None and net.name not in names:
            continue
        torches = [t for t in TORCHES if t.name != "compile" or not quick]
        with tempfile.TemporaryDirectory() as folder:
            found = hold(net, terms, torches, without, Path(folder))
        title = f"{TITLE}{net.title}"
        report.tallies[title] = tally(found)
        targets(report)
        report.put(title, _tables(found))


def _tables(found: Found) -> Any:
    keep = found.entries["keep"]
    if keep.seconds is None:
        return f"Not measured: {keep.note}\n"
    peers = beside_torch(found)
    return within_budgets(found) + (f"\n{peers}" if peers else "")
