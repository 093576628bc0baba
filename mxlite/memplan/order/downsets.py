"""Exact search for the order of a few tasks that needs the least memory, over sets of completed tasks.

The live bytes after some tasks have run depend on which have run, not on their order. So orders are paths in
the lattice of *downsets* (sets that contain with each task all its predecessors), and the least peak is the
path whose worst step is best: Dijkstra's shortest paths (1959) with the maximum in place of the sum.
The problem is NP-hard (Sethi 1975, "Complete register allocation problems"), hence the limit.

One observation keeps the lattice small. A ready task that leaves no more bytes live than it found and
stays below the peak that cannot be avoided may run at once: whatever order is completed otherwise,
moving this task to its front raises no step of it.

Part of the unavoidable peak is known before any search: while a task runs, every value that must have been
written by then and must still be read is live. That bounds what a search could gain.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from ...core.cached import cached_property
from .section import joined_bytes, Memory, Section

State = tuple[int, int, int, int, int, int]
"""Peak so far, minus the number of tasks done, the set of them, ready tasks, kept and own bytes."""


BOUNDED = 1024  # tasks up to which the bound is worked out; it takes tasks times values


class Downsets:
    """Lattice of downsets of one section. `steps` counts the transitions examined."""

    def __init__(self, section: Section) -> None:
        self.section = section
        self.tasks = section.order
        self.steps = 0
        bit = {t: 1 << i for i, t in enumerate(self.tasks)}
        self.full = (1 << len(self.tasks)) - 1
        self.needs = [sum(bit[p] for p in section.waits_for[t]) for t in self.tasks]
        position = {t: i for i, t in enumerate(self.tasks)}
        self.followers = [[position[f] for f in section.followers[t] if f in position] for t in self.tasks]
        of_update = {
            u: sum(bit[p] for p in section.waits_for[u])
            for u, update in enumerate(section.is_update)
            if update
        }
        # The tasks after which a value is dead: its readers, and for updates the tasks that they wait for.
        self.until = [0] * len(section.size)
        for v, row in enumerate(section.readers):
            for t in row:
                self.until[v] |= bit[t] if t in bit else of_update[t]
        self.allows: list[list[tuple[int, int]]] = [
            [(u, of_update[u]) for u in section.followers[t] if u in of_update] for t in self.tasks
        ]
        # An update that waits for several tasks runs after the last of them, with its workspace: none of
        # these tasks may be moved freely.
        self.is_late = [
            any(section.workspace[u] and needs & needs - 1 for u, needs in row) for row in self.allows
        ]
        memory = Memory(section)
        self.start = memory.kept, memory.own
        self.before = memory.before

    @cached_property
    def bound(self) -> tuple[int, int]:
        """Bytes, kept and own, that are live at some step of every order; 0 beyond BOUNDED tasks."""
        section, tasks, n = self.section, self.tasks, len(self.tasks)
        if n > BOUNDED:
            return 0, 0
        position = {t: i for i, t in enumerate(tasks)}
        # [i]: the predecessors of task i, and its successors; both include i itself.
        before, after = np.eye(n, dtype=bool), np.eye(n, dtype=bool)
        for i, t in enumerate(tasks):
            for p in section.waits_for[t]:
                before[i] |= before[position[p]]
        for i in reversed(range(n)):
            for f in self.followers[i]:
                after[i] |= after[f]
        # [v]: the tasks after which value v has certainly been written, and those that it must outlive.
        made = np.ones((len(section.size), n), bool)
        wanted = np.zeros((len(section.size), n), bool)
        is_new = np.zeros(len(section.size), bool)
        for i, t in enumerate(tasks):
            for v in section.made[t]:
                made[v], wanted[v, i], is_new[v] = after[i], True, True
        for v, until in enumerate(self.until):
            while until:
                low = until & -until
                until ^= low
                wanted[v] |= before[low.bit_length() - 1]
        size = np.array(section.size, np.int64)
        found = []
        for stays, start in zip((section.stays_kept, section.stays_own), self.start):
            alive = made & (wanted | np.array(stays, bool)[:, None])
            live = start - int(size[~is_new].sum()) + size @ alive
            for i, t in enumerate(tasks):
                live[i] += section.workspace[t]
                if section.joins[t]:
                    dying = [v for v in section.read[t] if not (wanted[v] & after[i])[i + 1 :].any()]
                    live[i] -= joined_bytes(section, t, dying, stays)
            found.append(int(live.max()))
        return found[0], found[1]

    def step(self, done: int, i: int, kept: int, own: int) -> tuple[int, int, int, int]:
        """Run task i after the set `done`: peak bytes of its step, kept and own, and the bytes after it."""
        self.steps += 1
        section, until, t = self.section, self.until, self.tasks[i]
        size, stays_kept, stays_own = section.size, section.stays_kept, section.stays_own
        not_done = ~(done | 1 << i)
        for v in section.made[t]:
            kept += size[v]
            own += size[v]
        most_kept, most_own = kept + section.workspace[t], own + section.workspace[t]
        fired = [u for u, needs in self.allows[i] if not needs & not_done]
        late = {v for u in fired for v in section.read[u]} if fired else ()
        if section.joins[t]:
            dying = [v for v in section.read[t] if not until[v] & not_done and v not in late]
            most_kept -= joined_bytes(section, t, dying, stays_kept)
            most_own -= joined_bytes(section, t, dying, stays_own)
        for v in section.read[t]:
            if not until[v] & not_done and v not in late:
                kept -= 0 if stays_kept[v] else size[v]
                own -= 0 if stays_own[v] else size[v]
        for v in section.made[t]:
            if not until[v]:
                kept -= 0 if stays_kept[v] else size[v]
                own -= 0 if stays_own[v] else size[v]
        for at, u in enumerate(fired):
            most_kept = max(most_kept, kept + section.workspace[u])
            most_own = max(most_own, own + section.workspace[u])
            for v in section.read[u]:
                again = any(v in section.read[w] for w in fired[at + 1 :])
                if not again and not until[v] & not_done:
                    kept -= 0 if stays_kept[v] else size[v]
                    own -= 0 if stays_own[v] else size[v]
        return most_kept, most_own, kept, own

    def least_kept(self, floor: int, limit: int) -> tuple[int, ...] | None:
        """An order of the least kept peak, or one within `floor` bytes; None after `limit` transitions."""
        return self._search(0, max(floor, self.before[0]), None, limit)

    def least_own(self, cap: int, limit: int) -> tuple[int, ...] | None:
        """An order of the least own peak among those whose kept peak is within `cap`, or None."""
        return self._search(1, self.before[1], cap, limit)

    def _search(self, measure: int, label: int, cap: int | None, limit: int) -> tuple[int, ...] | None:
        stop = self.steps + limit
        ready = sum(1 << i for i, row in enumerate(self.needs) if not row)
        # Among sets with equal peaks the largest comes first: it is nearest to the end.
        heap: list[State] = [(label, 0, 0, ready, *self.start)]
        came: dict[int, tuple[int, int]] = {}
        best = {0: label}
        closed: set[int] = set()
        while heap:
            label, count, done, ready, kept, own = heappop(heap)
            while done not in closed:
                closed.add(done)
                if done == self.full:
                    return self._path(came)
                if self.steps > stop:
                    return None
                moves = []
                rest = ready
                while rest:
                    low = rest & -rest
                    rest ^= low
                    i = low.bit_length() - 1
                    found = self.step(done, i, kept, own)
                    if cap is not None and found[0] > cap:
                        continue
                    moves.append((i, found))
                    less = found[2] <= kept and (measure == 0 or found[3] <= own)
                    if less and found[measure] <= label and not self.is_late[i]:
                        moves = moves[-1:]
                        rest = -1
                        break
                if rest < 0:  # at once, as part of the same state
                    i, found = moves[0]
                    now = done | 1 << i
                    if now not in closed:
                        came[now] = (done, i)
                    ready = self._ready(ready, now, i)
                    done, kept, own, count = now, found[2], found[3], count - 1
                    continue
                for i, found in moves:
                    now = done | 1 << i
                    peak = max(label, found[measure])
                    if now not in closed and peak < best.get(now, peak + 1):
                        best[now] = peak
                        came[now] = (done, i)
                        heappush(heap, (peak, count - 1, now, self._ready(ready, now, i), found[2], found[3]))
        return None

    def _ready(self, ready: int, done: int, i: int) -> int:
        """Tasks that can run after the set `done`, whose newest member is i."""
        ready ^= 1 << i
        for f in self.followers[i]:
            if not self.needs[f] & ~done:
                ready |= 1 << f
        return ready

    def _path(self, came: dict[int, tuple[int, int]]) -> tuple[int, ...]:
        order = []
        done = self.full
        while done:
            done, i = came[done]
            order.append(self.tasks[i])
        return tuple(reversed(order))
