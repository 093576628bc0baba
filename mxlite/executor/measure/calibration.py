"""Measured costs: times of this device's kernels, for plans that weigh real seconds.

Each distinct kernel call of a lowered step (operator, attributes, shapes, types, kernel, threads) is first
run in isolation on scratch arrays: once with everything out of the cache, then several times with all of it
there, as far as it fits. A cache takes in what it has not seen for long only gradually: after three runs
a convolution of 4 MiB still took a fifth longer than after ten; so the second half of these runs counts, and
of it the median: the fastest run is undisturbed, and a step is not that lucky in each of its calls.
All calls take turns, several times, so that a disturbance of the machine affects each alike; of all
rounds the median counts. Each round also measures what others touch of the cache (cache_probe.py):
that changes within minutes, and with it what a step finds there.

This tells how much the cache matters to a call. Its time in a step is measured in two
steps (rehearsal.py): the one that keeps all, or the plan within the budget, and the one of least bytes, which
finds most in the cache. The mean over all its places in both is the time by which plans are chosen; the
predicted time of a plan's step is adjusted by what each call finds in the cache (memplan/cost/locality.py).
Seconds are those of this thread, because one that waits for a core works on no kernel. The times and the
cache's properties are kept in the process and on disk (timings.py), so that the next plan of the same network
measures nothing.

An isolated call should find the conditions of a step. So its arrays are placed like there: arena values
in one block, which is so large that the system gives it huge pages (without, convolutions of 2 MiB took up to
a fifth more), and weights in arrays of their own. And the threads of its team are awake: after a pause they
sleep, and waking them took as long as many a kernel of an LSTM.

No array of the user is touched. A call that cannot be run in isolation keeps its modelled time, scaled by the
measurements of the others: operators of the user (their code runs only when requested), and kernels that
refuse the values they are given here.
refuse the values they are given here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import mean, median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ...backends import bind_call
from ...backends.lower import Call
from ...backends.timed_call import cold_and_warm, fill, Flush
from ...core.bytesize import format_bytes
from ...memplan import MemoryPlan
from ...memplan.cost.device import MEASURED
from ...memplan.cost.locality import walk
from ...memplan.plan import make_plan
from ...memplan.problem import padded
from ...memplan.remat.search import frontier_of
from ...ops.random.philox import RandomStream
from ..plan.lower import Lowered
from ..run.kernel_thread import where_kernels_run
from .cache_probe import cache_bytes, others_bytes_per_s
from .rehearsal import can_be_run, Rehearsal
from .timings import Cache, Seconds, Timings
from .trials import in_turns

ROUNDS = 5  # in which all calls take turns
TOTAL_S = 60.0  # for one network; what is not measured by then keeps its scaled model
FLUSH = 2  # multiple of the cache's size that is touched before a cold run
LEAST_FLUSH = 8 * 2**20  # bytes, if no cache is visible
LOOKS = 2  # at others' accesses in each round
LEAST_BLOCK = 8 * 2**20  # bytes: from 4 MiB on, numpy asks the system for huge pages
REHEARSED = 8  # steps that count of each of the two plans
LEAST_SHARE, MOST_SHARE = 0.5, 1.5  # bounds on the ratio of the cache's effect in a step to that in isolation


@dataclass(frozen=True)
class Calibration:
    """Result of `calibrate`: `calls` distinct kernel calls, of which `measured` were timed now and `known`
    before; `modelled` could not be timed. `wall_s` is its duration, `step_s` the sum over the step.

    `plans` are those of the given budgets, first the one without a budget, tried in turns.
    """

    calls: int
    measured: int
    known: int
    modelled: int
    wall_s: float
    step_s: float
    plans: tuple[MemoryPlan, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.calls} distinct kernel calls: {self.measured} timed in {self.wall_s:.1f} s, {self.known} "
            f"known from before, {self.modelled} modelled; "
            f"a step is predicted to take {1e3 * self.step_s:.2f} ms"
        ]
        for plan in self.plans:
            seconds, beyond = plan.predicted_seconds, plan.predicted_seconds / self.plans[0].predicted_seconds
            within = (
                "without a budget"
                if plan.budget_bytes is None
                else f"within {format_bytes(plan.budget_bytes)}"
            )
            extra = "" if plan is self.plans[0] else f", {100 * (beyond - 1):+.1f} %"
            lines.append(f"{within}, {format_bytes(plan.peak_bytes)}: {1e3 * seconds:.2f} ms{extra}")
        return "\n".join(lines)


def with_measured_costs(
    lowered: Lowered, again: bool = False, budget: int | None = None
) -> tuple[Lowered, Calibration]:
    """`lowered` with measured seconds in its tasks; `again`: ignore earlier times.

    At most `budget` bytes are taken to run steps in, or those of the least plan.
    """
    start = perf_counter()
    timings = Timings.of(lowered.backend)
    calls = distinct_calls(lowered)
    found: dict[str, Seconds] = {} if again else {k: s for k in calls if (s := timings.get(k)) is not None}
    if not again:
        found = {k: s for k, c in calls.items() if (s := recorded(lowered.calls[c])) is not None} | found
    known = dict(found)
    missing = {key: c for key, c in calls.items() if key not in found}
    cache = timings.cache
    if missing or cache is None:
        if cache is None or again:
            cache = (0 if lowered.backend.is_remote else cache_bytes(), 0.0)
        turns = Turns(lowered, missing, cache[0], start + TOTAL_S)
        for _ in range(ROUNDS):
            turns.round()
        found |= turns.seconds()
        cache = (cache[0], turns.others_bytes_per_s())
    if not lowered.backend.is_remote and any(not s.usual for s in found.values()):
        seen = in_steps(costed(lowered, found, cache), budget)
        if seen:  # calls in no step take as long as in isolation
            alone = {k: s._replace(usual=s.cold) for k, s in found.items()}
            found |= {k: seen.get(k, alone[k]) for k, s in found.items() if not s.usual}
    timings.update({k: s for k, s in found.items() if known.get(k) != s}, cache)
    lowered = costed(lowered, found, cache)
    calibration = Calibration(
        len(calls),
        len(found) - len(known),
        len(known),
        len(calls) - len(found),
        perf_counter() - start,
        lowered.problem.step_seconds,
    )
    return lowered, calibration


def in_steps(lowered: Lowered, budget: int | None) -> dict[str, Seconds]:
    """Times of calls by key in two plans; empty if there is no room for these.

    If no plan is within `budget` bytes, of the least one alone: its times lead to a budget that works.
    """
    problem = lowered.problem
    plans = frontier_of(problem)
    least = plans.least()
    first = make_plan(problem) if budget is None else plans.at(budget - problem.fixed_total) or least
    of_plans = [first, least]
    rows = in_turns(Rehearsal, [(lowered, of_plans)], REHEARSED)
    if not rows[-1].turns:
        return {}
    keys = {c: call_key(lowered, c) for c in _counted(lowered)}
    seen: list[list[TimedPlace]] = []
    for plan, tried in zip(of_plans, rows):
        steps = zip(plan.schedule.task, walk(plan), zip(*tried.turns))
        seen.append(
            [TimedPlace(keys[t], call.lost, median(of)) for t, call, of in steps if t in keys and any(of)]
        )
    tasks = {key: problem.tasks[c] for c, key in keys.items()}
    return settled(seen, {key: Seconds(task.cold, task.warm) for key, task in tasks.items()})


def recorded(call: Call) -> Seconds | None:
    """The times that records have of a call; None: it is to be timed."""
    return None if call.kernel.measured is None else Seconds(*call.kernel.measured)


class TimedPlace(NamedTuple):
    """A call in a plan's step: its key, the share of its bytes that the cache has lost, and its seconds."""

    key: str
    lost: float
    seconds: float


def settled(plans: Sequence[Sequence[TimedPlace]], alone: Mapping[str, Seconds]) -> dict[str, Seconds]:
    """Times of calls from those in isolation, `alone`, and those of their places in the steps of two `plans`.

    A call's mean is that of all its places. The effect of the cache is that in isolation times one
    number for all calls, chosen so that the difference of both steps is the measured one.
    """
    of: dict[str, list[TimedPlace]] = {}
    for place in chain(*plans):
        of.setdefault(place.key, []).append(place)
    usual = {key: mean(p.seconds for p in places) for key, places in of.items()}
    lost = {key: mean(p.lost for p in places) for key, places in of.items()}
    matters = {key: alone[key].cold - alone[key].warm for key in of}
    first, last = (sum(p.seconds - usual[p.key] for p in plan) for plan in plans)
    by_loss = [sum(matters[p.key] * (p.lost - lost[p.key]) for p in plan) for plan in plans]
    lever = by_loss[1] - by_loss[0]
    share = min(MOST_SHARE, max(LEAST_SHARE, (last - first) / lever)) if lever else 1.0
    return {key: alone[key].in_steps(usual[key], lost[key], share) for key in of}


def distinct_calls(lowered: Lowered) -> dict[str, int]:
    """The key of each distinct call, with the first task that uses it."""
    found: dict[str, int] = {}
    for c in _counted(lowered):
        found.setdefault(call_key(lowered, c), c)
    return found


def _counted(lowered: Lowered) -> list[int]:
    """The tasks that take time."""
    tasks = lowered.problem.tasks
    return [c for c, task in enumerate(tasks) if not (task.preview or task.exchanges)]


def costed(lowered: Lowered, seconds: Mapping[str, Seconds], cache: Cache) -> Lowered:
    """`lowered` with these times of its calls, and scaled models for those without."""
    keys = {c: call_key(lowered, c) for c in _counted(lowered)}
    modelled = [call.seconds(lowered.backend.rates) for call in lowered.calls]
    models = {key: modelled[c] for c, key in keys.items()}
    ratios = [(seconds[k].usual or seconds[k].cold) / s for k, s in models.items() if k in seconds and s]
    scale = median(ratios) if ratios else 1.0
    tasks = list(lowered.problem.tasks)
    for c, key in keys.items():
        cold, warm, usual = seconds.get(key, Seconds(*(scale * modelled[c],) * 2))
        tasks[c] = replace(tasks[c], seconds=usual or cold, warm=warm, cold=cold)
    problem = replace(
        lowered.problem, tasks=tuple(tasks), costs=MEASURED, cache_bytes=cache[0], others_bytes_per_s=cache[1]
    )
    return replace(lowered, problem=problem)


class Turns:
    """Calls timed in turns, in rounds.

    `calls` are tasks by key, `cache` is the capacity of the last-level cache. Rounds end at `end` of
    `perf_counter`, and calls that cannot be run in isolation have one turn.
    """

    def __init__(
        self, lowered: Lowered, calls: Mapping[str, int], cache: int, end: float = float("inf")
    ) -> None:
        self._lowered, self._calls, self._cache, self._end = lowered, calls, cache, end
        nbytes = 0 if lowered.backend.is_remote else max(LEAST_FLUSH, FLUSH * cache)
        self._flush = Flush(nbytes, lowered.threads)
        self._pairs: dict[str, list[Seconds]] = {key: [] for key in calls}
        self._others: list[float] = []

    def round(self) -> None:
        """Run each call once, where kernels run, and measure others' use of the cache."""
        lowered = self._lowered

        def run() -> None:
            for key in list(self._pairs):
                if perf_counter() > self._end:
                    break
                pair = _time_call(lowered, self._calls[key], self._flush)
                if pair is None:
                    del self._pairs[key]
                else:
                    self._pairs[key].append(pair)

        where_kernels_run(lowered, run)
        if self._cache:
            self._others.append(others_bytes_per_s(self._cache, LOOKS))

    def seconds(self) -> dict[str, Seconds]:
        """Medians over all rounds, for each call that has had a turn."""
        return {key: _medians(pairs) for key, pairs in self._pairs.items() if pairs}

    def others_bytes_per_s(self) -> float:
        """Bytes of the cache that others touched per second in the same rounds."""
        return median(self._others) if self._others else 0.0


def call_key(lowered: Lowered, c: int) -> str:
    """Digest of everything about call `c` but the values in its arrays."""
    call, task = lowered.calls[c], lowered.problem.tasks[c]
    op = call.node.op
    assert op is not None

    def kinds(numbers: tuple[int, ...]) -> list[object]:
        return [None if v < 0 else (lowered.shape[v], lowered.dtype[v].name) for v in numbers]

    text = repr(
        (
            op.op_name,
            repr(op.timed_as(call.node.attrs)),
            kinds(call.inputs),
            kinds(call.outputs),
            call.shapes,
            call.kernel.name,
            task.workspace,
            lowered.step.train,
            lowered.threads,
            lowered.tuned,
        )
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _time_call(lowered: Lowered, c: int, flush: Flush) -> Seconds | None:
    """Seconds of one call, or None if it cannot be run in isolation."""
    if not can_be_run(lowered.calls[c]):
        return None
    try:
        run, kept = _scratch_call(lowered, c)
        threads = lowered.threads if lowered.tuned else 1
        pair = Seconds(*cold_and_warm(lowered.backend, threads, run, flush))
        del kept
        return pair
    except Exception:  # arbitrary values may not suit a kernel
        return None


def _scratch_call(lowered: Lowered, c: int) -> tuple[Callable[[], None], list[Any]]:
    """Call `c` on arrays of its own, with these arrays: a kernel may keep only their addresses."""
    call: Call = lowered.calls[c]
    task, backend = lowered.problem.tasks[c], lowered.backend
    arrays: dict[int, Any] = {}
    inside: dict[int, int] = {}
    end = 0
    for v in sorted({*call.inputs, *call.outputs} - {-1}):
        if lowered.key[v] is None:
            inside[v] = end
            end += padded(lowered.problem.values[v].nbytes)
        else:
            arrays[v] = backend.array(lowered.shape[v], lowered.dtype[v])
    block = backend.empty(max(LEAST_BLOCK, end + task.workspace))
    for v, low in inside.items():
        part = block[low : low + lowered.problem.values[v].nbytes]
        arrays[v] = part.view(lowered.dtype[v]).reshape(lowered.shape[v])
    for array in arrays.values():
        fill(backend, array)
    rng = RandomStream(backend.seeds(np.array([1, 1], np.uint64)), call.stream) if call.stream >= 0 else None
    assert call.node.op is not None
    run = bind_call(
        call.kernel,
        backend.xp,
        call.node.op,
        call.node.attrs,
        [arrays.get(v) for v in call.inputs],
        [arrays.get(v) for v in call.outputs],
        work=block[end : end + task.workspace],
        rng=rng,
        train=lowered.step.train,
        shapes=call.shapes,
    )
    return run, [*arrays.values(), block, rng]


def _medians(pairs: Sequence[Seconds]) -> Seconds:
    """Medians of both; a call in the cache is never slower than out of it."""
    cold, warm = (median(pair[n] for pair in pairs) for n in (0, 1))
    return Seconds(cold, min(cold, warm))
