"""Measured costs: how long this device's kernels take, for plans that are to weigh real seconds.

Each distinct kernel call of a lowered step (operator, attributes, shapes, types, kernel, threads) is run by
itself on scratch arrays: first with everything out of the cache, then at once again a number of times, with
all of it there as far as it goes in, of which the quickest counts. A cache takes in what it has not seen for
long only by and by: after three runs a convolution of 4 MiB still took a fifth longer than after ten. All
calls take turns, several times, so that what else the machine does for a while meets each alike; of all
rounds the lower quartile counts. Seconds are those of this thread, for one that waits for a core works on no
kernel. Plans are chosen by the first time; what a plan's step is predicted to take has both
(memplan/locality.py). The times, the size of the cache, and what others touch of it (cache_probe.py) are kept
in the process and on disk (timings.py), so that the next plan of the same network measures nothing.

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
from collections.abc import Callable, Mapping, Sequence
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

ROUNDS = 3  # in which all calls take turns
RUNS = 3  # out of the cache, of each call in each round; one where it takes longer than CALL_S
AGAIN = 10  # times at most in the cache after each of these, and
LEAST_AGAIN = 3  # times where they take CALL_S together
CALL_S = 0.01
TOTAL_S = 60.0  # for one network; what is not measured by then keeps its scaled model
FLUSH = 2  # times as much as the cache holds is touched before a cold run
LEAST_FLUSH = 8 * 2**20  # bytes, where no cache is to be seen
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
    backend = lowered.backend
    timings = Timings.of(backend)
    counted = [c for c, task in enumerate(lowered.problem.tasks) if not task.preview]
    keys = {c: call_key(lowered, c) for c in counted}
    first = {key: c for c, key in reversed(keys.items())}
    found: dict[str, Seconds] = {} if again else {k: s for k in first if (s := timings.get(k)) is not None}
    known = len(found)
    cache = timings.cache
    if cache is None or again:
        cache = (0, 0.0) if backend.is_remote else _cache()
    missing = [k for k in dict.fromkeys(keys.values()) if k not in found]
    if missing:

        def time_missing() -> None:
            with backend.running(lowered.threads) if lowered.tuned else nullcontext():
                found.update(
                    _time_calls(lowered, {key: first[key] for key in missing}, cache[0], start + TOTAL_S)
                )

        _run_where_kernels_run(lowered, time_missing)
    timings.update({k: found[k] for k in missing if k in found}, cache)
    modelled = [call.seconds(DEFAULT) for call in lowered.calls]
    ratios = [found[k][0] / modelled[c] for k, c in first.items() if k in found and modelled[c]]
    scale = median(ratios) if ratios else 1.0
    tasks = list(lowered.problem.tasks)
    for c in counted:
        cold, warm = found.get(keys[c], (scale * modelled[c],) * 2)
        tasks[c] = replace(tasks[c], seconds=cold, warm=warm)
    problem = replace(
        lowered.problem, tasks=tuple(tasks), costs=MEASURED, cache_bytes=cache[0], others_bytes_per_s=cache[1]
    )
    calibration = Calibration(
        len(first),
        len(found) - known,
        known,
        len(first) - len(found),
        perf_counter() - start,
        problem.step_seconds,
    )
    return replace(lowered, problem=problem), calibration


def _cache() -> Cache:
    """This machine's."""
    nbytes = cache_bytes()
    return nbytes, others_bytes_per_s(nbytes)


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


def _time_calls(lowered: Lowered, calls: Mapping[str, int], cache: int, end: float) -> dict[str, Seconds]:
    """(cold, warm) seconds of those `calls`, by key, that can be run alone and had their turn by `end`."""
    remote = lowered.backend.is_remote
    flush = Flush(0 if remote else max(LEAST_FLUSH, FLUSH * cache), lowered.threads)
    pairs: dict[str, list[Seconds]] = {key: [] for key in calls}
    for _ in range(ROUNDS):
        for key in list(pairs):
            if perf_counter() > end:
                break
            more = _time_call(lowered, calls[key], flush)
            if more:
                pairs[key] += more
            else:
                del pairs[key]
    return {key: _lower_quartiles(found) for key, found in pairs.items() if found}


def _time_call(lowered: Lowered, c: int, flush: Flush) -> list[Seconds]:
    """(cold, warm) seconds of one call, some times, or none where it cannot be run by itself."""
    if "state" in lowered.calls[c].kernel.signature.services:
        return []
    try:
        with np.errstate(all="ignore"):
            run, kept = _scratch_call(lowered, c)
            pairs = _pairs(lowered, run, flush)
            del kept
            return pairs
    except Exception:  # made-up values need not suit a kernel
        return []


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


def _pairs(lowered: Lowered, run: Callable[[], None], flush: Flush) -> list[Seconds]:
    """(cold, warm) seconds of some runs after a first one."""
    run()
    backend, threads = lowered.backend, lowered.threads if lowered.tuned else 1
    pairs: list[Seconds] = []
    while len(pairs) < RUNS and sum(cold for cold, _ in pairs) < CALL_S:
        flush()
        backend.rouse(threads)
        cold = backend.seconds_of(run)
        warm: list[float] = []
        while len(warm) < LEAST_AGAIN or (len(warm) < AGAIN and sum(warm) < CALL_S):
            warm.append(backend.seconds_of(run))
        pairs.append((cold, min(warm)))
    return pairs


def _lower_quartiles(pairs: Sequence[Seconds]) -> Seconds:
    """Neither the luckiest nor those that something got in the way of."""
    cold, warm = (sorted(times)[len(pairs) // 4] for times in zip(*pairs))
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
