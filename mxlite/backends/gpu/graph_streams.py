"""Which step of a program goes to which stream, and which events keep their order.

A plan says of each step which earlier steps must be over when it starts: those whose results it reads, those
whose bytes it takes, those whose workspace it takes. One stream keeps any such order by itself. Several
streams keep what is asked of each other by events: a step records one, another stream waits for it.

    before          c <- a, b     d <- b
    stream 0        a     c           c waits for a as it follows it, and for b's event
    stream 1        b     d

Steps are dealt out in their own order, each to the stream where it can start first by the modelled time,
which is the earliest-start rule of list scheduling (R. L. Graham 1969, "Bounds on multiprocessing timing
anomalies"). An event is left out where another one, or the stream, makes sure of it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COMPUTE, STORE, FETCH = 0, 1, 2
"""Kinds of steps: a kernel; a copy to host memory; a copy back. As a plan's schedule numbers them."""


@dataclass(frozen=True)
class Order:
    """Step s goes to stream `stream[s]`, behind the steps before it there and behind those in `waits[s]`.

    Streams 0 to `kernels` - 1 are for kernels, the next for copies out, the last for copies back.
    """

    stream: tuple[int, ...]
    waits: tuple[tuple[int, ...], ...]
    kernels: int

    def realised(self, start: int = 0, stop: int | None = None) -> list[tuple[int, ...]]:
        """For each step in [start, stop) the steps that surely end before it starts; those before `start`
        are over. This is what a judge of plans has to look at: streams and events, not what they were made
        from.
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

    `seconds` is what steps take. O(edges * streams).
    """
    count = kernels + 2
    ends = [0.0] * count  # of each stream
    done = [0.0] * len(before)  # of each step
    knows: list[tuple[int, ...]] = []  # of each step: the last one of each stream that is over at its end
    tail = [(-1,) * count for _ in range(count)]  # the same for what comes next on a stream
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
            at = kernels + (kinds[s] == FETCH)
        known = list(tail[at])
        events = []
        for p in sorted(earlier, reverse=True):  # the latest first: it makes sure of most others
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
