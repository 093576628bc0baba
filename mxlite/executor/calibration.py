"""Measured costs: how long this device's kernels take, for plans that are to weigh real seconds.

Each distinct kernel call of a lowered step (operator, attributes, shapes, types, kernel, threads) is run by
itself on scratch arrays: first with everything out of the cache, then again a number of times with all of it
there, as far as it goes in. A cache takes in what it has not seen for long only by and by: after three runs
a convolution of 4 MiB still took a fifth longer than after ten; so the later half of these runs counts, and
of it the median: the quickest is one that nobody disturbs, and a step is not that lucky in each of its calls
(its predicted time was 5 to 20 % low).

The caches nearest to a core (and a kernel's code in them) are emptied before each run: in a step other calls
lie between two that touch the same bytes. Run again at once, the calls of a small LSTM took a third less than
in its step.

All calls take turns, several times, so that what else the machine does for a while meets each alike; of all
rounds the median counts. In each round it is measured, too, what others touch of the cache (cache_probe.py):
that changes within minutes, and with it what a step finds there. Seconds are those of this thread, for one
that waits for a core works on no kernel. Plans are chosen by the first time; what a plan's step is predicted
to take has both (memplan/locality.py). The times and what is known of the cache are kept in the process and
on disk (timings.py), so that the next plan of the same network measures nothing.

A call shall find what it finds in a step. So its arrays lie as they do there: what is in the arena in one
block, which is so large that the system gives it huge pages (without, convolutions of 2 MiB took up to a
fifth more), and weights in arrays of their own. And the threads of its team are awake: after a pause they
sleep, and to wake them took as long as many a kernel of an LSTM.

No array of the user's is touched, and there is room for one call's arrays at a time. A call that cannot be
run by itself keeps its modelled time, scaled to what was measured of the others: operators of the user's own
(their code is run when they say so), and kernels that refuse the values they are given here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import median
from threading import Thread
from time import perf_counter
from typing import Any

import numpy as np

from ..backends import Backend, bind_call, Call
from ..core.dtype import is_floating
from ..engine import get_engine, Var
from ..memplan.device import DEFAULT, MEASURED
from ..memplan.problem import padded
from ..ops.philox import RandomStream
from .cache_probe import cache_bytes, others_bytes_per_s
from .lower import Lowered
from .timings import Cache, Seconds, Timings

ROUNDS = 5  # in which all calls take turns: once out of the cache, then
AGAIN = 10  # times at most in the cache, and
LEAST_AGAIN = 4  # times where they take CALL_S together
CALL_S = 0.01
TOTAL_S = 60.0  # for one network; what is not measured by then keeps its scaled model
FLUSH = 2  # times as much as the cache holds is touched before a cold run
LEAST_FLUSH = 8 * 2**20  # bytes, where no cache is to be seen
NEAR = 2 * 2**20  # bytes for each thread: as much as the caches of a core hold
NEAR_SHARE = 4  # and no more than 1 / NEAR_SHARE of the last cache: the rest shall stay
LOOKS = 2  # in each round at what others do
LEAST_BLOCK = 8 * 2**20  # bytes: from 4 MiB on, numpy asks the system for huge pages
PATTERN = 8191  # numbers, repeated to fill an array; a prime, so that no row is like another


@dataclass(frozen=True)
class Calibration:
    """What `calibrate` did: `calls` distinct kernel calls, of which `measured` were timed now and `known`
    from before; `modelled` could not be timed. `wall_s` is how long it took, `step_s` the sum over the step.
    """

    calls: int
    measured: int
    known: int
    modelled: int
    wall_s: float
    step_s: float

    def __str__(self) -> str:
        return (
            f"{self.calls} distinct kernel calls: {self.measured} timed in {self.wall_s:.1f} s, {self.known} "
            f"known from before, {self.modelled} modelled; "
            f"a step is predicted to take {1e3 * self.step_s:.2f} ms"
        )


def with_measured_costs(lowered: Lowered, again: bool = False) -> tuple[Lowered, Calibration]:
    """`lowered` with measured seconds in its tasks; `again`: times from before do not count."""
    start = perf_counter()
    timings = Timings.of(lowered.backend)
    calls = distinct_calls(lowered)
    found: dict[str, Seconds] = {} if again else {k: s for k in calls if (s := timings.get(k)) is not None}
    known = len(found)
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
    timings.update({k: found[k] for k in missing if k in found}, cache)
    lowered = costed(lowered, found, cache)
    calibration = Calibration(
        len(calls),
        len(found) - known,
        known,
        len(calls) - len(found),
        perf_counter() - start,
        lowered.problem.step_seconds,
    )
    return lowered, calibration


def distinct_calls(lowered: Lowered) -> dict[str, int]:
    """The key of each distinct call, with the first task that makes it."""
    found: dict[str, int] = {}
    for c in _counted(lowered):
        found.setdefault(call_key(lowered, c), c)
    return found


def _counted(lowered: Lowered) -> list[int]:
    """The tasks that take time."""
    return [c for c, task in enumerate(lowered.problem.tasks) if not task.preview]


def costed(lowered: Lowered, seconds: Mapping[str, Seconds], cache: Cache) -> Lowered:
    """`lowered` with these times of its calls, and scaled models of those that have none."""
    keys = {c: call_key(lowered, c) for c in _counted(lowered)}
    modelled = [call.seconds(DEFAULT) for call in lowered.calls]
    models = {key: modelled[c] for c, key in keys.items()}
    ratios = [seconds[k][0] / s for k, s in models.items() if k in seconds and s]
    scale = median(ratios) if ratios else 1.0
    tasks = list(lowered.problem.tasks)
    for c, key in keys.items():
        cold, warm = seconds.get(key, (scale * modelled[c],) * 2)
        tasks[c] = replace(tasks[c], seconds=cold, warm=warm)
    problem = replace(
        lowered.problem, tasks=tuple(tasks), costs=MEASURED, cache_bytes=cache[0], others_bytes_per_s=cache[1]
    )
    return replace(lowered, problem=problem)


class Turns:
    """Calls that take turns in being timed, in rounds that may lie apart.

    `calls` are tasks by key, `cache` is how many bytes the last cache holds. Rounds end at `end` of
    `perf_counter`, and calls that cannot be run by themselves have one turn.
    """

    def __init__(
        self, lowered: Lowered, calls: Mapping[str, int], cache: int, end: float = float("inf")
    ) -> None:
        self._lowered, self._calls, self._cache, self._end = lowered, calls, cache, end
        remote, threads = lowered.backend.is_remote, lowered.threads
        self._flush = Flush(0 if remote else max(LEAST_FLUSH, FLUSH * cache), threads)
        self._near = Flush(0 if remote else min(NEAR * threads, cache // NEAR_SHARE), threads)
        self._pairs: dict[str, list[Seconds]] = {key: [] for key in calls}
        self._others: list[float] = []

    def round(self, keys: Collection[str] | None = None) -> None:
        """Each call once, or each of `keys`, and a look at what others do; on the thread that will run these
        kernels, if there is one such.
        """
        lowered = self._lowered
        taken = [k for k in self._pairs if keys is None or k in keys]

        def run() -> None:
            with lowered.backend.running(lowered.threads) if lowered.tuned else nullcontext():
                for key in taken:
                    if perf_counter() > self._end:
                        break
                    pair = _time_call(lowered, self._calls[key], self._flush, self._near)
                    if pair is None:
                        del self._pairs[key]
                    else:
                        self._pairs[key].append(pair)

        _run_where_kernels_run(lowered, run)
        if self._cache:
            self._others.append(others_bytes_per_s(self._cache, LOOKS))

    def seconds(self) -> dict[str, Seconds]:
        """(cold, warm) of each call that has had a turn: medians of all rounds."""
        return {key: _medians(pairs) for key, pairs in self._pairs.items() if pairs}

    def others_bytes_per_s(self) -> float:
        """What others have touched of the cache in the same rounds."""
        return median(self._others) if self._others else 0.0


def _run_where_kernels_run(lowered: Lowered, run: Callable[[], None]) -> None:
    """`run()` on the thread that will run these kernels, if there is one such.

    A thread that has run a parallel kernel has a team of OpenMP threads for good, and with a second team the
    program's own would fall asleep at every barrier (see `engine/threaded.py`).
    """
    if lowered.kind != "team":
        run()
        return
    done, engine = Var("timings"), get_engine()
    engine.push(run, (), (done,), name="timing kernels", kind="team")
    engine.wait_for(done)


def call_key(lowered: Lowered, c: int) -> str:
    """The digest of all that call `c` is, but for the values in its arrays."""
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


def _time_call(lowered: Lowered, c: int, flush: Flush, near: Flush) -> Seconds | None:
    """(cold, warm) seconds of one call, or None where it cannot be run by itself."""
    if "state" in lowered.calls[c].kernel.signature.services:
        return None
    try:
        with np.errstate(all="ignore"):
            run, kept = _scratch_call(lowered, c)
            pair = _pair(lowered, run, flush, near)
            del kept
            return pair
    except Exception:  # made-up values need not suit a kernel
        return None


def _scratch_call(lowered: Lowered, c: int) -> tuple[Callable[[], None], list[Any]]:
    """Call `c` on arrays of its own, and these: a kernel may know no more of them than their addresses."""
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
        _fill(backend, array)
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


def _fill(backend: Backend, array: Any) -> None:
    """Numbers in [0.5, 1.5) where there are fractions, else 0: no denormals, and indices that exist.

    Arithmetic on denormal numbers is many times slower, and garbage is full of them.
    """
    if not is_floating(array.dtype):
        backend.fill(array, 0)
        return
    pattern = np.random.default_rng(1).uniform(0.5, 1.5, PATTERN)
    backend.from_host(array, np.resize(pattern.astype(array.dtype), array.shape))


def _pair(lowered: Lowered, run: Callable[[], None], flush: Flush, near: Flush) -> Seconds:
    """(cold, warm) seconds after a first run."""
    backend, threads = lowered.backend, lowered.threads if lowered.tuned else 1

    def timed(empty: Flush) -> float:
        empty()
        backend.rouse(threads)
        return backend.seconds_of(run)

    run()
    cold = timed(flush)
    warm: list[float] = []
    while len(warm) < LEAST_AGAIN or (len(warm) < AGAIN and sum(warm) < CALL_S):
        warm.append(timed(near))
    return cold, median(warm[len(warm) // 2 :])


def _medians(pairs: Sequence[Seconds]) -> Seconds:
    """Of both; what is in the cache is never slower than what is not."""
    cold, warm = map(median, zip(*pairs))
    return cold, min(cold, warm)


class Flush:
    """Puts all else out of the cache by writing `nbytes`, on `threads` cores: each may have its own."""

    def __init__(self, nbytes: int, threads: int) -> None:
        self._parts = np.array_split(np.ones(nbytes // 8), threads)

    def __call__(self) -> None:
        threads = [Thread(target=self._write, args=(part,)) for part in self._parts[1:]]
        for thread in threads:
            thread.start()
        self._write(self._parts[0])
        for thread in threads:
            thread.join()

    @staticmethod
    def _write(part: np.ndarray) -> None:
        np.add(part, 1, out=part)
