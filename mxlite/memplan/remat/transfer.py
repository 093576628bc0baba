"""Copies of kept values to host memory and back: their places, and how long kernels wait for them.

Two copy streams, one in each direction, work in parallel with the kernels. A copy out may begin as soon as
its value is written; its *place* in the schedule is where it must have ended, because later steps may reuse
its bytes. A copy back may begin at its place, where its bytes are free, and must have ended where its value
is read first. So a value that is copied holds its bytes somewhat longer than kernels need it, on both sides:

    kernels    | conv | bn | relu | conv | ...                 | conv' | relu' | bn' |
    stream           [== conv out ==]                       [== conv out ==]
    bytes      ######|####|--------|          none          |--------|######|

The places of the copies are chosen in two linear walks. The first goes forward: after its last forward reader
a value queues for the stream, and it is released when its copy has ended by the modelled clock, or
before that where the live bytes would exceed those that the schedule needs without any overlap; then
kernels wait. The second walk does the same for the copies back, from the end of the step to the front.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from ..placement.liveness import live_buffers
from ..problem import HostLink, padded, Problem
from .kinds import FETCH, RUN, STORE

if TYPE_CHECKING:
    from .schedule import Schedule

_Step = tuple[int, int, int, tuple[int, ...], tuple[int, ...]]  # kind, task, copy, inputs, outputs


@dataclass(slots=True)
class _Trip:
    """A value's trip to the host and back. Copies are placed `before` steps that run, given by number."""

    value: int
    back: int  # the instance that is fetched
    producer: int
    last: int  # forward reader; the producer if there is none
    first: int  # backward reader
    nbytes: int
    store_before: int
    fetch_before: int


def with_transfers(schedule: Schedule, fetched: Mapping[int, int], room: int = 0) -> Schedule:
    """`schedule`, whose steps all run, with stores and fetches in it.

    `fetched` maps values to the instances that come back from the host; steps read those already. Live bytes
    stay within what copies without any overlap would need, or within `room` if that is more. O(steps).
    """
    trips, _ = _placed(schedule, fetched, room)
    return _insert(schedule, trips)


def costs(schedule: Schedule, fetched: Mapping[int, int], room: int = 0) -> tuple[int, float]:
    """(peak live bytes, seconds of waiting) of `with_transfers`, without building it.

    O(steps).
    """
    trips, live = _placed(schedule, fetched, room)
    copies = _copies(schedule, trips)
    steps = _steps(schedule, copies.before)
    return max(live, default=0), _waiting(schedule.problem, steps, copies.value_of)


def _placed(schedule: Schedule, fetched: Mapping[int, int], room: int) -> tuple[list[_Trip], list[int]]:
    """The trips with their places, and the live bytes at each step that runs. No step that copies needs more
    than its neighbours.
    """
    trips = _trips(schedule, fetched)
    live = _live_at_runs(_insert(schedule, trips))
    most = max(max(live, default=0), room)
    link = schedule.problem.host or HostLink()
    _place_stores(schedule, trips, live, most, link)
    _place_fetches(schedule, trips, live, most, link)
    return trips, live


def _trips(schedule: Schedule, fetched: Mapping[int, int]) -> list[_Trip]:
    """Trips in the order of their last forward readers, which is that of the copies out."""
    values = schedule.problem.values
    made, last, first = dict[int, int](), dict[int, int](), dict[int, int]()
    value_at = {i: v for v, i in fetched.items()}
    for s, (ins, outs) in enumerate(zip(schedule.inputs, schedule.outputs)):
        for i in ins:
            if i in fetched:
                last[i] = s
            elif i in value_at:
                first.setdefault(value_at[i], s)
        for o in outs:
            if o in fetched:
                made[o] = last[o] = s
    trips = [
        _Trip(v, i, made[v], last[v], first[v], values[v].nbytes, last[v] + 1, first[v])
        for v, i in fetched.items()
    ]
    return sorted(trips, key=lambda t: (t.last, t.producer, t.value))


def _live_at_runs(tight: Schedule) -> list[int]:
    """Live bytes at each step of `tight` that runs."""
    live = live_buffers(tight)
    change = [0] * (len(tight.task) + 1)
    for start, stop, nbytes in zip(live.start, live.stop, live.nbytes):
        size = padded(nbytes)
        change[start] += size
        change[stop] -= size
    return [n for n, kind in zip(accumulate(change), tight.kind) if kind == RUN]


def _place_stores(schedule: Schedule, trips: list[_Trip], base: list[int], most: int, link: HostLink) -> None:
    """Set `store_before` of each trip, and add to `base` the values that wait for their copies."""
    tasks = schedule.problem.tasks
    waiting: deque[tuple[_Trip, float]] = deque()  # with the end of the copy
    due = Counter(trip.first for trip in trips)  # trips that wait, by first reader
    pending, clock, stream, n = 0, 0.0, 0.0, 0
    ended: list[float] = []
    for r, t in enumerate(schedule.task):
        while waiting:
            trip, end = waiting[0]
            if end > clock and base[r] + pending <= most and not due[r]:
                break
            waiting.popleft()
            due[trip.first] -= 1
            pending -= padded(trip.nbytes)
            clock = max(clock, end)
            trip.store_before = r
        base[r] += pending
        clock += tasks[t].seconds
        ended.append(clock)
        while n < len(trips) and trips[n].last == r:
            trip = trips[n]
            stream = max(stream, ended[trip.producer]) + trip.nbytes / link.store_bytes_per_s
            waiting.append((trip, stream))
            pending += padded(trip.nbytes)
            n += 1


def _place_fetches(
    schedule: Schedule, trips: list[_Trip], base: list[int], most: int, link: HostLink
) -> None:
    """Set `fetch_before` of each trip; `base` is live bytes with the copies out. Time runs backward here."""
    tasks, num_forward = schedule.problem.tasks, schedule.num_forward
    order = sorted(trips, key=_by_reader, reverse=True)
    waiting: deque[tuple[_Trip, float]] = deque()
    due = Counter(max(trip.store_before, num_forward) for trip in trips)
    pending, clock, stream, n = 0, 0.0, 0.0, 0
    for place in range(len(schedule.task), num_forward - 1, -1):
        # Everything after `place` has been handled; r runs before it.
        r = place - 1
        while waiting:
            trip, end = waiting[0]
            if end > clock and not due[place] and base[r] + pending <= most:
                break
            waiting.popleft()
            due[max(trip.store_before, num_forward)] -= 1
            pending -= padded(trip.nbytes)
            clock = max(clock, end)
            trip.fetch_before = place
        if place == num_forward:
            break
        base[r] += pending
        clock += tasks[schedule.task[r]].seconds
        while n < len(order) and order[n].first == r:
            trip = order[n]
            stream = max(stream, clock) + trip.nbytes / link.fetch_bytes_per_s
            waiting.append((trip, stream))
            pending += padded(trip.nbytes)
            n += 1


def _by_reader(trip: _Trip) -> tuple[int, int]:
    return trip.first, trip.back


@dataclass(frozen=True, slots=True)
class _Copies:
    """The copies `before` each step that runs, and the value of each instance, host memory included."""

    before: dict[int, list[_Step]]
    value_of: list[int]


def _copies(schedule: Schedule, trips: list[_Trip]) -> _Copies:
    """For each step first the copies out before it, then the copies back."""
    value_of = list(schedule.value_of)
    before: dict[int, list[_Step]] = {}
    host = {}
    for trip in trips:
        host[trip.value] = len(value_of)
        value_of.append(trip.value)
        store = (STORE, schedule.task[trip.producer], 0, (trip.value,), (host[trip.value],))
        before.setdefault(trip.store_before, []).append(store)
    for trip in sorted(trips, key=_by_reader):
        fetch = (FETCH, schedule.task[trip.producer], 0, (host[trip.value],), (trip.back,))
        before.setdefault(trip.fetch_before, []).append(fetch)
    return _Copies(before, value_of)


def _steps(schedule: Schedule, before: Mapping[int, list[_Step]]) -> Iterator[_Step]:
    """All steps in order, with copies before the steps that they precede."""
    runs = zip(schedule.task, schedule.copy, schedule.inputs, schedule.outputs)
    for r, run in enumerate(runs):
        if r in before:
            yield from before[r]
        yield (RUN, *run)


def _insert(schedule: Schedule, trips: list[_Trip]) -> Schedule:
    """The schedule with its copies inserted."""
    copies = _copies(schedule, trips)
    kind, task, copy, inputs, outputs = zip(*_steps(schedule, copies.before))
    num_forward = schedule.num_forward + sum(t.store_before <= schedule.num_forward for t in trips)
    return replace(
        schedule,
        task=task,
        copy=copy,
        inputs=inputs,
        outputs=outputs,
        value_of=tuple(copies.value_of),
        num_forward=num_forward,
        kind=kind,
    )


def waiting_seconds(schedule: Schedule) -> float:
    """Modelled seconds for which kernels wait for copies.

    Kernels run in the schedule's order, copies of each direction one after the other. A kernel waits for all
    earlier copies out, since it may reuse their bytes, and for the fetched values it reads.
    O(steps).
    """
    steps = zip(schedule.kinds, schedule.task, schedule.copy, schedule.inputs, schedule.outputs)
    return _waiting(schedule.problem, steps, schedule.value_of)


def _waiting(problem: Problem, steps: Iterable[_Step], value_of: Sequence[int]) -> float:
    link = problem.host or HostLink()
    clock = out = back = busy = 0.0
    ready: dict[int, float] = {}  # when an instance is available
    for kind, t, _, ins, outs in steps:
        if kind == RUN:
            if out > clock:
                clock = out
            for i in ins:
                if ready.get(i, 0.0) > clock:
                    clock = ready[i]
            seconds = problem.tasks[t].seconds
            clock += seconds
            busy += seconds
            for o in outs:
                ready[o] = clock
            continue
        nbytes = problem.values[value_of[ins[0]]].nbytes
        if kind == STORE:
            out = max(out, ready[ins[0]]) + nbytes / link.store_bytes_per_s
            ready[outs[0]] = out
        else:
            back = max(back, clock, out, ready[ins[0]]) + nbytes / link.fetch_bytes_per_s
            ready[outs[0]] = back
    return max(0.0, clock - busy)
