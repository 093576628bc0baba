"""Stream of each step of a program, and the events that keep their order.

A plan lists for each step the earlier steps that must be done when it starts: those whose results it reads,
whose bytes it reuses, whose workspace it reuses. One stream keeps any such order by itself. Several
streams synchronize by events: a step records one, another stream waits for it.

    before          c <- a, b     d <- b
    stream 0        a     c           c waits for a as it follows it, and for b's event
    stream 1        b     d

Steps are assigned in their own order, each to the stream where it can start first by the modelled time,
which is the earliest-start rule of list scheduling (R. L. Graham 1969, "Bounds on multiprocessing timing
anomalies"). An event is left out if another one, or the stream, implies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COMPUTE, STORE, FETCH = 0, 1, 2
"""Kinds of steps: a kernel; a copy to host memory; a copy back. Numbered as in a plan's schedule. The next,
`MESSAGE` of backends/remote.py, is one to other ranks: all of them need one order, and so one stream.
"""


@dataclass(frozen=True)
class Order:
    """Stream order: step s runs on `stream[s]`, after earlier steps there and after those in `waits[s]`.

    Streams 0 to `kernels` - 1 are for kernels, the next for copies out, for copies back and for messages.
    """

    stream: tuple[int, ...]
    waits: tuple[tuple[int, ...], ...]
    kernels: int

    def realised(self, start: int = 0, stop: int | None = None) -> list[tuple[int, ...]]:
        """For each step in [start, stop) the steps that certainly end before it starts; those before `start`
        are done. Judges of plans check this: it follows from streams and events, not from what they were
        derived from.
        """
        last: dict[int, int] = {}
        result = []
        for s in range(start, len(self.stream) if stop is None else stop):
            mine = [last[self.stream[s]]] if self.stream[s] in last else []
            result.append((*mine, *(p for p in self.waits[s] if p >= start)))
            last[self.stream[s]] = s
        return result


def order_of(
    before: Sequence[Sequence[int]],
    kinds: Sequence[int],
    seconds: Sequence[float],
    kernels: int = 1,
) -> Order:
    """An order on `kernels` streams in which every step comes after the steps in `before`.

    `seconds` are the times of steps. O(edges * streams).
    """
    count = kernels + 3
    ends = [0.0] * count  # of each stream
    done = [0.0] * len(before)  # of each step
    knows: list[tuple[int, ...]] = []  # for each step: the last step of each stream that is done at its end
    tail = [(-1,) * count for _ in range(count)]  # the same for the next step on a stream
    stream: list[int] = []
    waits: list[tuple[int, ...]] = []
    for s, earlier in enumerate(before):
        ready = max((done[p] for p in earlier), default=0.0)
        if kinds[s] == COMPUTE:
            latest = max(earlier, default=-1)
            at = min(
                range(kernels),
                key=lambda u: (max(ends[u], ready), latest < 0 or stream[latest] != u, u),
            )
        else:
            at = kernels + (kinds[s] - STORE)
        known = list(tail[at])
        events = []
        for p in sorted(earlier, reverse=True):  # the latest first: it implies most others
            if known[stream[p]] < p:
                events.append(p)
                known = [max(a, b) for a, b in zip(known, knows[p])]
        known[at] = s
        knows.append(tuple(known))
        tail[at] = knows[s]
        ends[at] = done[s] = max(ends[at], ready) + seconds[s]
        stream.append(at)
        waits.append(tuple(sorted(events)))
    return Order(tuple(stream), tuple(waits), kernels)
