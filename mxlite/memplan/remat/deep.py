"""Recursive recomputation: segments within recomputed segments, for the least bytes, and their cost.

    r(c, d, slack) = 0                                         if all of [c, d) can be held, else
                   = min over e:  r(e, d, slack - cut(e)) + pass(c, e) + r(c, e, slack)

is the least time that blocks [c, d) cost beyond the pass through them that is being made. That pass keeps
cut e; blocks after it are worked on first; then the blocks before it are passed once more. The recursion is
that of Griewank and Walther 2000 and of rotor (Beaumont et al. 2019) for blocks of different sizes; a
depth of k is a mirror count of k. Two things are added: a segment that can be held may leave out cheap
results, to be recomputed when backward needs them; and it may keep, from the pass before, what
saves most for its bytes, as in chain.py.

All pairs are tabled, so long chains are taken several blocks at a time; within those the recursion is
repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .chain import Chain, FAR

INNER = 16  # cuts between which the recursion chooses within what lies between two places, at most
LEVELS = 160  # of slack


@dataclass(frozen=True)
class ChainPart:
    """Blocks [begin, end), whose results are all held once copy `depth` of them is computed.

    Results that save `price` seconds per byte are held since the pass before. `twice`: cheap ones are not
    held, but recomputed.
    """

    begin: int
    end: int
    depth: int
    twice: bool
    price: float = np.inf


class Deep:
    """r(c, d, slack) for slack up to `limit` bytes."""

    def __init__(
        self,
        chain: Chain,
        limit: float,
        among: Sequence[int],
        places: int,
        known: dict[bytes, np.ndarray] | None = None,
    ) -> None:
        """Solve between at most `places` cuts of `among`, whose first and last are the ends, then between all
        within those.

        `known` are tables found before: a network's blocks repeat.
        """
        known = {} if known is None else known
        self.chain = chain
        self.limit = limit
        self.step = limit / LEVELS
        self.at = _thinned(chain, among, places)
        self.inner: list[Deep | None] = [
            Deep(chain, limit, range(c, d + 1), INNER, known) if d - c > 1 else None
            for c, d in pairwise(self.at)
        ]
        # Prices that a part may choose from when it can be held; the last one keeps only its end.
        menu = len(chain.menu)
        self.menu = sorted({menu - 1, *range(1, menu - 1, 2)})
        n = len(self.at)
        self.cuts = np.zeros((len(self.menu), n, n))
        self.passes = np.zeros((len(self.menu), n, n))
        self.hold = np.full((2, n, n), FAR)
        self.again = np.zeros((n, n))
        self._measure()
        self.key = self._key()
        if self.key not in known:
            known[self.key] = self._solved()
        self.table = known[self.key]

    def _measure(self) -> None:
        """Compute bytes and seconds of the segments between any two places."""
        chain, num = self.chain, self.chain.blocks.num
        places, menu = np.array(self.at), self.menu
        for i, c in enumerate(places[:-1].tolist()):
            ends = places[i + 1 :]
            last = ends - 1
            reach = np.maximum.accumulate(chain.peak[:, c : ends[-1]], axis=1)
            self.hold[:, i, i + 1 :] = reach[:, last - c] - chain.held[:, [c]]
            kept = chain.kept[np.ix_(menu, last)] - chain.kept[menu, c][:, None]
            self.cuts[:, i, i + 1 :] = kept + chain.kept_last[np.ix_(menu, last)]
            self.cuts[:, i, i + 1 :] += [chain.older(c, e) if e < num else 0.0 for e in ends.tolist()]
            seconds = chain.seconds[np.ix_(menu, last)] - chain.seconds[menu, c][:, None]
            self.passes[:, i, i + 1 :] = seconds + chain.seconds_last[np.ix_(menu, last)]
            self.again[i, i + 1 :] = chain.passing[-1, last] - chain.passing[-1, c]

    def _key(self) -> bytes:
        """Key of this table, equal for equal tables."""
        found = blake2b(digest_size=16)
        for rows in (self.hold, self.cuts, self.passes, self.again):
            found.update(rows.tobytes())
        for inner in self.inner:
            found.update(inner.key if inner is not None else b"-")
        return found.digest()

    def _solved(self) -> np.ndarray:
        """[i, j, level]: r between places i and j."""
        slack = np.arange(LEVELS + 1) * self.step
        n = len(self.at)
        table = np.full((n, n, LEVELS + 1), FAR, np.float32)
        held = slack >= self.hold[0][:, :, None]
        for i, inner in enumerate(self.inner):
            if inner is not None:
                table[i, i + 1] = inner.table[0, -1]
        twice = (slack >= self.hold[1][:, :, None]) & (self.again[:, :, None] < table)
        table = np.where(twice, self.again[:, :, None], table)
        table[held] = 0.0
        shift = self.cuts / self.step
        whole = shift.astype(np.int64)
        part = shift - whole
        # The bytes of a kept cut shift a row; FAR before the rows makes that a window (see Table in
        # chain.py).
        size = LEVELS + 1
        rows = np.full((2, n, n, 2 * size + 1), FAR, np.float32)
        rows[:, :, :, size + 1 :] = table
        rows[1, :, :, size + 1] = FAR
        table = rows[0, :, :, size + 1 :]
        below, above = sliding_window_view(rows, size, axis=3)
        start = size + 1 - np.minimum(whole, size)
        near = np.argwhere(self.hold[0] <= self.limit)
        reach = int((near[:, 1] - near[:, 0]).max()) if len(near) else 0  # longest that can be held
        for width in range(2, n):
            first = np.arange(n - width)[:, None]
            last = first + width
            best = table[first[:, 0], last[:, 0]]
            for m in range(len(self.menu)):
                if m < len(self.menu) - 1:
                    middle = first + np.arange(1, min(width, reach + 1))
                    if not reach:
                        continue  # nothing can be held
                else:
                    middle = first + np.arange(1, width)
                begin = start[m, first, middle]
                share = part[m, first, middle][:, :, None].astype(np.float32)
                cost = above[middle, last, begin]
                cost *= 1 - share
                cost += below[middle, last, begin - 1] * share
                cost += self.passes[m, first, middle][:, :, None].astype(np.float32)
                if m == len(self.menu) - 1:
                    cost += table[first, middle]
                else:
                    cost[~held[first, middle]] = FAR
                np.minimum(best, cost.min(axis=1), out=best)
            table[first[:, 0], last[:, 0]] = best
            rows[1, first[:, 0], last[:, 0], size + 2 :] = best[:, 1:]
        capped: np.ndarray = np.minimum(table, FAR)
        return capped

    def least(self, i: int, j: int, slack: float) -> float:
        """r between places i and j, linearly interpolated between two levels."""
        return float(self._between(np.array(i), np.array(j), np.array(slack)))

    def _costs(self, i: int, j: int, slack: float) -> np.ndarray:
        """(places, menu) for each place between i and j, and each price: the time if the pass keeps that cut
        and everything that saves as much.
        """
        middle = np.arange(i + 1, j)
        deepest = len(self.menu) - 1
        last, first = np.full_like(middle, j), np.full_like(middle, i)
        cost = self._between(middle[:, None], last[:, None], slack - self.cuts[:, i, middle].T)
        cost += self.passes[:, i, middle].T
        cost[:, deepest] += self._between(first, middle, np.full(len(middle), slack))
        cost[self.hold[0, i, middle] > slack, :deepest] = FAR
        return cost

    def _between(self, i: np.ndarray, j: np.ndarray, slack: np.ndarray) -> np.ndarray:
        """`least` for many places and slacks at once."""
        at = slack / self.step
        low = np.clip(at, 0, LEVELS - 1).astype(np.int64)
        part = np.minimum(at, LEVELS) - low
        found = self.table[i, j, low] * (1 - part) + self.table[i, j, low + 1] * part
        return np.where(at < 0, FAR, found)

    def parts(
        self, i: int, j: int, slack: float, depth: int, found: list[ChainPart], cuts: dict[int, int]
    ) -> bool:
        """Work out [i, j] when its pass is copy `depth`: append its parts, and enter cuts with their counts.

        False if that is infeasible with `slack` bytes.
        """
        places, deepest = self.at, len(self.menu) - 1
        stack = [(i, j, slack, depth)]
        while stack:
            i, j, slack, depth = stack.pop()
            c, d = places[i], places[j]
            if self.hold[0, i, j] <= slack:
                found.append(ChainPart(c, d, depth, False))
                continue
            best, way = FAR, (-1, deepest)
            if self.hold[1, i, j] <= slack:
                best = float(self.again[i, j])
            if j == i + 1 and (inner := self.inner[i]) is not None:
                if best < FAR and inner.least(0, len(inner.at) - 1, slack) >= best:
                    found.append(ChainPart(c, d, depth, True))
                elif not inner.parts(0, len(inner.at) - 1, slack, depth, found, cuts):
                    return False
                continue
            cost = self._costs(i, j, slack)
            if cost.size and (least := float(cost.min())) < best:
                best = least
                m, k = divmod(int(cost.argmin()), cost.shape[1])
                way = (i + 1 + m, k)
            if best >= FAR / 1e6:
                return False
            m, k = way
            if m < 0:
                found.append(ChainPart(c, d, depth, True))
                continue
            cuts[places[m]] = depth
            if k == deepest:
                stack.append((i, m, slack, depth + 1))
            else:
                price = float(self.chain.menu[self.menu[k]])
                found.append(ChainPart(c, places[m], depth + 1, False, price))
            stack.append((m, j, slack - float(self.cuts[k, i, m]), depth))
        return True

    def counts(self, slack: float) -> np.ndarray | None:
        """Mirror counts of the whole forward pass for an arena of `slack` bytes."""
        blocks = self.chain.blocks
        parts: list[ChainPart] = []
        cuts: dict[int, int] = {}
        if not self.parts(0, len(self.at) - 1, slack, 0, parts, cuts):
            return None
        tasks = blocks.problem.tasks
        counts = np.zeros(blocks.problem.num_forward, np.int64)
        for part in parts:
            for b in range(part.begin, part.end):
                path = blocks.paths[b == part.end - 1][b]
                kept = {blocks.begin[b] + t for row in path.tasks[: path.kept(part.price)] for t in row}
                for t in range(blocks.begin[b], blocks.end[b]):
                    if t in kept:
                        counts[t] = part.depth - 1
                    elif blocks.droppable[t]:
                        more = (
                            part.twice and tasks[t].cheap and blocks.needed[t] and t not in blocks.leaving[b]
                        )
                        counts[t] = part.depth + bool(more)
        for e, depth in sorted(cuts.items()):
            for t in blocks.cuts.kept[e - 1]:
                counts[t] = min(counts[t], depth)
        return counts


def _thinned(chain: Chain, among: Sequence[int], places: int) -> list[int]:
    """At most `places` of the cuts `among`, chosen to split what backward needs into about equal parts.

    If that leaves more than half of the cuts in one part, because most blocks hold nothing, the numbers of
    blocks are made equal instead: so parts of parts soon are single blocks.
    """
    n = len(among)
    if n <= places:
        return list(among)
    held = chain.held[0][np.array(among)]
    wanted = held[0] + np.arange(1, places - 1) * ((held[-1] - held[0]) / (places - 1))
    chosen = sorted({0, *np.searchsorted(held, wanted).tolist(), n - 1} - {n})
    if max(b - a for a, b in pairwise(chosen)) > n // 2:
        chosen = sorted({i * (n - 1) // (places - 1) for i in range(places)})
    return [among[i] for i in chosen]
