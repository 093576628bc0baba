"""Orders by list scheduling: a rule picks the next among the ready tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from .section import joined_bytes, Memory, Section

Order = tuple[int, ...]


def rules(section: Section) -> Iterator[Order]:
    """Orders of all tasks but updates, one for each rule. Near-linear in tasks each."""
    given = section.order
    is_update = section.is_update
    followers = [[f for f in row if not is_update[f]] for row in section.followers]
    made = [sum(section.size[v] for v in row) for row in section.made]
    read = [sum(section.size[v] for v in row) for row in section.read]
    yield follow(section, given)
    yield follow(section, branches(given, section.waits_for, made))
    yield follow(section, branches(given[::-1], followers, read)[::-1])
    yield follow(section, None)


def follow(section: Section, wanted: Sequence[int] | None) -> Order:
    """List schedule in the order `wanted`, if dependencies allow; None: what adds the fewest bytes first.

    A task that leaves no more bytes live than it found runs as soon as it is ready, unless it would raise the
    peak so far: then it waits until less is live.
    """
    memory = Memory(section)
    is_update, followers, left = section.is_update, section.followers, memory.left
    place = {t: i for i, t in enumerate(wanted if wanted is not None else section.order)}
    done = bytearray(len(section.read))
    is_ready = bytearray(len(section.read))
    ready: list[tuple[int, int]] = []
    free: list[tuple[int, int]] = []  # by the bytes that they need while they run
    is_free = bytearray(len(section.read))
    # A gradient that its update cannot use yet, because the weight has still to be read, can wait.
    for_update = [bool(row) and all(is_update[f] for f in row) for row in followers]
    last: list[tuple[int, int]] = []
    peak = max(memory.before)
    order: list[int] = []

    def look(t: int) -> None:
        kept, own, most = gain(memory, t)
        if kept <= 0 and own <= 0:
            is_free[t] = 1
            heappush(free, (most, place[t]))
        elif for_update[t]:
            heappush(last, (most, place[t]))
        else:
            heappush(ready, (place[t] if wanted is not None else kept + own, place[t]))

    at = list(place)
    for t in section.order:
        if memory.waiting[t] == 0:
            is_ready[t] = 1
            look(t)
    while len(order) < len(place):
        while free and done[at[free[0][1]]]:
            heappop(free)
        while ready and (done[at[ready[0][1]]] or is_free[at[ready[0][1]]]):
            heappop(ready)
        if free and (not ready or memory.kept + free[0][0] <= peak):
            t = at[heappop(free)[1]]
        elif ready:
            t = at[heappop(ready)[1]]
        else:
            t = at[heappop(last)[1]]
            if done[t]:
                continue
        reading = section.read[t]
        peak = max(peak, memory.run(t)[0])
        done[t] = 1
        order.append(t)
        for f in followers[t]:
            if is_update[f]:
                if memory.waiting[f] == 1:
                    for p in section.waits_for[f]:
                        if is_ready[p] and not done[p]:
                            look(p)
            elif memory.waiting[f] == 0:
                is_ready[f] = 1
                look(f)
        for v in reading:
            if left[v] == 1:  # running its last reader now frees it
                for f in section.readers[v]:
                    if is_ready[f] and not done[f]:
                        look(f)
    return tuple(order)


def gain(memory: Memory, t: int) -> tuple[int, int, int]:
    """Net bytes, kept and own, that running t next would add, and the peak above live bytes meanwhile."""
    section, left = memory.section, memory.left
    size, stays_kept, stays_own = section.size, section.stays_kept, section.stays_own
    kept = sum(size[v] for v in section.made[t])
    own, most = kept, kept + section.workspace[t]
    ends = {v: left[v] - 1 for v in section.read[t]}
    for v in section.made[t]:
        ends[v] = left[v]
    for f in section.followers[t]:
        if section.is_update[f] and memory.waiting[f] == 1:
            for v in section.read[f]:
                ends[v] = ends.get(v, left[v]) - 1
    for v, more in ends.items():
        if more == 0:
            if not stays_kept[v]:
                kept -= size[v]
            if not stays_own[v]:
                own -= size[v]
    if section.joins[t]:
        dying = [v for v in section.read[t] if left[v] == 1]
        most -= joined_bytes(section, t, dying, stays_kept)
    return kept, own, most


def branches(given: Sequence[int], waits: Sequence[Sequence[int]], nbytes: Sequence[int]) -> Order:
    """Depth-first order that enters first the branch whose peak exceeds its result by most.

    `nbytes` is the size of each task's result.
    """
    used = {p for t in given for p in waits[t]}
    peak: dict[int, int] = {}
    rows: dict[int, list[int]] = {}
    place = {t: i for i, t in enumerate(given)}
    for t in given:
        row = sorted(waits[t], key=lambda p: (nbytes[p] - peak[p], place[p]))
        held = most = 0
        for p in row:
            most = max(most, held + peak[p])
            held += nbytes[p]
        peak[t] = max(most, held + nbytes[t])
        rows[t] = row
    roots = [t for t in given if t not in used]
    return _visited(sorted(roots, key=lambda t: (nbytes[t] - peak[t], place[t])), rows)


def _visited(roots: Sequence[int], rows: dict[int, list[int]]) -> Order:
    """Postorder from `roots`: every task after all in its row, with rows read from left to right."""
    done: set[int] = set()
    order: list[int] = []
    stack = [(t, iter(rows[t])) for t in reversed(roots)]
    while stack:
        t, rest = stack[-1]
        for p in rest:
            if p not in done:
                stack.append((p, iter(rows[p])))
                break
        else:
            stack.pop()
            if t not in done:
                done.add(t)
                order.append(t)
    return tuple(order)
