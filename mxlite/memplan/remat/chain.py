"""Dynamic programme over a chain of blocks: which segments to recompute, for every amount of memory at once.

Let kept cuts divide the forward pass into segments. When backward enters a segment, everything it needs
there is recomputed in one burst, and the arena holds

    what is kept of all earlier segments  +  all that backward needs of this one  +  gradients.

So a segment [c, d) can be worked on with `slack` bytes, those that earlier segments leave, if `hold(c, d)`
is no more; it takes `kept` bytes of the slack away from all that follow; and it costs the seconds of what was
dropped. With g(c, slack) the least cost of blocks c and on,

    g(c, slack) = 0                                               if hold(c, end) <= slack: keep all of it
    g(c, slack) = min over d, price:  seconds(c, d, price) + g(d, slack - kept(c, d, price))
                                                                  for hold(c, d) <= slack

where a segment keeps what saves at least `price` seconds per byte, besides the cut at its end. One table
serves every budget, because the state is the slack that is left, not the bytes used. Segments come out long
at the input, where nothing is kept yet, and short at the output.

This differs from the programmes of rotor (Beaumont et al. 2019) and Checkmate's baselines in what may be
kept: results inside a segment whose blocks' outputs are dropped. The best plans do that, since convolutions
save many seconds for few bytes. A second form of a segment computes cheap results twice, once on the way
through and once when backward comes to their block, and so holds fewer bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...core.cached import cached_property
from .blocks import Blocks

FAR = 1e30  # seconds of an infeasible state
MENU = 12  # prices that a segment may choose from
LEVELS = 192  # of slack
WORK = 400_000_000  # entries that one table examines, at most; long chains get fewer levels and lengths


@dataclass(frozen=True)
class Stretch:
    """Segment of blocks [begin, end) that keeps everything that saves `price` or more; `twice`: see above."""

    begin: int
    end: int
    price: float
    twice: bool


@dataclass(frozen=True)
class _Options:
    """The segments that may start at a block: `ends` (D), `hold` (forms, D), `kept` (menu, D), `seconds`
    (forms, menu, D).
    """

    ends: np.ndarray
    hold: np.ndarray
    kept: np.ndarray
    seconds: np.ndarray


class Chain:
    """Prefix sums along the blocks, from which the cost of every segment follows."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.menu = _menu(blocks)
        shape = (2, len(self.menu), blocks.num)
        kept, seconds, passing = np.empty(shape), np.empty(shape), np.empty(shape)
        for e in (0, 1):
            for b, path in enumerate(blocks.paths[e]):
                at = np.searchsorted(-path.price, -self.menu, side="right") - 1
                kept[e, :, b], seconds[e, :, b] = path.nbytes[at], path.seconds[at]
                passing[e, :, b] = path.passing[at]
        self.kept, self.seconds, self.passing = _summed(kept[0]), _summed(seconds[0]), _summed(passing[0])
        self.kept_last, self.seconds_last = kept[1], seconds[1]
        tasks = blocks.problem.tasks
        needed, cheap = np.zeros(blocks.num), np.zeros(blocks.num)
        for b, leaving in enumerate(blocks.leaving):
            for t in range(blocks.begin[b], blocks.end[b]):
                needed[b] += blocks.needed[t]
                if blocks.droppable[t] and tasks[t].cheap and t not in leaving:
                    cheap[b] += blocks.needed[t]
        gradients = blocks.gradient_bytes
        self.held = np.array([_summed(needed), _summed(needed - cheap)])
        self.peak = np.array([self.held[0, 1:] + gradients, self.held[1, 1:] + gradients + cheap])
        # The bytes from each block to the end, with everything kept.
        self.tail = np.maximum.accumulate(self.peak[0, ::-1])[::-1] - self.held[0, :-1]

    @cached_property
    def _wide(self) -> list[list[tuple[int, int]]]:
        """For each cut what it keeps of blocks before the last: (block, bytes)."""
        blocks, block_of = self.blocks, self.blocks.cuts.block_of
        return [
            [(block_of[t], blocks.size[t]) for t in kept if t < blocks.begin[b]]
            for b, kept in enumerate(blocks.cuts.kept)
        ]

    def older(self, c: int, d: int) -> float:
        """Bytes that the cut after segment [c, d) keeps of blocks of the segment before its last."""
        return float(sum(nbytes for b, nbytes in self._wide[d - 1] if b >= c))

    def options(self, c: int, lengths: np.ndarray, forms: int) -> _Options:
        """Segments that may follow cut c: those of the given lengths that do not reach the very end."""
        ends = c + lengths
        ends = ends[ends < self.blocks.num]
        last = ends - 1
        longest = int(ends[-1]) if len(ends) else c
        reach = np.maximum.accumulate(self.peak[:forms, c:longest], axis=1)
        hold = reach[:, last - c] - self.held[:forms, [c]]
        kept = self.kept[:, last] - self.kept[:, [c]] + self.kept_last[:, last]
        for i, b in enumerate(last.tolist()):
            if self._wide[b]:
                kept[:, i] += self.older(c, b + 1)
        seconds = self.seconds[:, last] - self.seconds[:, [c]] + self.seconds_last[:, last]
        twice = self.passing[:, last] - self.passing[:, [c]]
        return _Options(ends, hold, kept, np.stack([seconds, seconds + twice][:forms]))


class Table:
    """g(c, slack) for slack up to `limit` bytes, and the segments that reach it."""

    def __init__(self, chain: Chain, limit: float, *, twice: bool) -> None:
        self.chain = chain
        self.forms = 2 if twice else 1
        num, menu = chain.blocks.num, len(chain.menu)
        lengths = _lengths(num)
        self.levels = LEVELS
        while self.levels > 64 and num * len(lengths) * menu * self.levels * self.forms > WORK:
            self.levels //= 2
        self.step = limit / self.levels
        slack = np.arange(self.levels + 1) * self.step
        self.least = np.full((num + 1, self.levels + 1), FAR)
        self.least[num] = 0.0
        self.options: list[_Options] = []
        for c in range(num - 1, -1, -1):
            options = chain.options(c, lengths, self.forms)
            # A segment that does not fit the whole slack is of no use to any state.
            fits = options.hold.min(axis=0) <= limit
            if not fits.all():
                options = _Options(
                    options.ends[fits],
                    options.hold[:, fits],
                    options.kept[:, fits],
                    options.seconds[:, :, fits],
                )
            self.options.append(options)
            self.least[c, slack >= chain.tail[c]] = 0.0
            if len(options.ends):
                np.minimum(self.least[c], self._best(options, slack), out=self.least[c])
        self.options.reverse()

    def _best(self, options: _Options, slack: np.ndarray) -> np.ndarray:
        size = self.levels + 1
        shift = options.kept / self.step
        whole = shift.astype(np.int64)
        part = (shift - whole)[:, :, None]
        # A segment shifts the row of its end by what it keeps. Rows with FAR before them make that a window,
        # which is copied as a whole; with nothing left, only a segment that keeps nothing could go on.
        rest = np.full((len(options.ends), 2 * size + 1), FAR)
        rest[:, size + 1 :] = self.least[options.ends]
        row = np.arange(len(options.ends))[None, :]
        start = size + 1 - np.minimum(whole, size)
        below = sliding_window_view(rest, size, axis=1)[row, start - 1]
        rest[:, size + 1] = FAR
        after = sliding_window_view(rest, size, axis=1)[row, start]
        after *= 1 - part
        below *= part
        after += below
        best = np.full(size, FAR)
        for form in range(self.forms):
            # Prices are reduced first: what a segment must hold does not depend on them.
            cost = np.add(after, options.seconds[form][:, :, None], out=below).min(axis=0)
            cost[slack < options.hold[form][:, None]] = FAR
            np.minimum(best, cost.min(axis=0), out=best)
        return best

    def walk(self, budgets: Sequence[float]) -> list[list[Stretch] | None]:
        """The segments for arenas of the given bytes; after the last segment everything is kept. None if
        infeasible.
        """
        chain = self.chain
        found: list[list[Stretch] | None] = [[] for _ in budgets]
        slack = np.array(budgets, np.float64)
        at: dict[int, list[int]] = {0: [*range(len(budgets))]}  # block -> budgets that have reached it
        for c in range(chain.blocks.num):
            here = np.array(at.pop(c, ()), np.int64)
            here = here[slack[here] < chain.tail[c]]
            if not len(here):
                continue
            for i, step in zip(here.tolist(), self._steps(c, slack[here])):
                way = found[i]
                if step is None or way is None:
                    found[i] = None
                    continue
                form, menu, d = step
                end = int(self.options[c].ends[d])
                way.append(Stretch(c, end, float(chain.menu[menu]), form == 1))
                slack[i] -= self.options[c].kept[menu, d]
                at.setdefault(end, []).append(i)
        return found

    def _steps(self, c: int, slack: np.ndarray) -> list[tuple[int, int, int] | None]:
        """The best (form, menu, end) to continue with from block c, for each slack."""
        options = self.options[c]
        if not len(options.ends):
            return [None] * len(slack)
        left = (slack[:, None, None] - options.kept) / self.step
        whole = np.floor(left).astype(np.int64)
        part = left - whole
        low = np.minimum(np.maximum(whole, 0), self.levels)
        high = np.minimum(np.maximum(whole + 1, 0), self.levels)
        after = self.least[options.ends, low] * (1 - part) + self.least[options.ends, high] * part
        after[whole < 0] = FAR
        cost = after[:, None] + options.seconds
        cost += np.where(options.hold > slack[:, None, None], FAR, 0.0)[:, :, None, :]
        cost = cost.reshape(len(slack), -1)
        best = cost.argmin(axis=1)
        far = cost[np.arange(len(slack)), best] >= FAR / 2
        found = zip(*(i.tolist() for i in np.unravel_index(best, options.seconds.shape)))
        return [None if none else step for none, step in zip(far.tolist(), found)]


def _menu(blocks: Blocks) -> np.ndarray:
    """Prices that split all steps of all paths into classes of about equal bytes. 0 keeps everything."""
    weight: dict[float, float] = {}
    for path in blocks.paths[0]:
        for price, nbytes in zip(path.price[1:].tolist(), np.diff(path.nbytes).tolist()):
            weight[price] = weight.get(price, 0.0) + nbytes
    prices = sorted(weight)
    if len(prices) > MENU - 2:
        # Those classes stay apart whose prices differ most.
        gaps = sorted(range(1, len(prices)), key=lambda i: (prices[i - 1] / prices[i], i))
        chosen = sorted({0, *gaps[: MENU - 3]})
        prices = [prices[i] for i in chosen]
    return np.array([0.0, *prices, np.inf])


def _lengths(limit: int) -> np.ndarray:
    """Lengths up to `limit`: all small numbers, then growing by an eighth."""
    n, found = 1, []
    while n <= limit:
        found.append(n)
        n = max(n + 1, n * 9 // 8)
    return np.array(found, np.int64)


def _summed(rows: np.ndarray) -> np.ndarray:
    """Prefix sums of the last axis, beginning with zero."""
    zero = np.zeros((*rows.shape[:-1], 1))
    return np.concatenate([zero, np.cumsum(rows, axis=-1)], axis=-1)


def counts_of(chain: Chain, stretches: list[Stretch], partly: dict[int, int] | None = None) -> np.ndarray:
    """Mirror counts of the forward tasks. `partly[b]` are additional steps of block b's path to keep."""
    blocks = chain.blocks
    tasks = blocks.problem.tasks
    counts = np.zeros(blocks.problem.num_forward, np.int64)
    for s in stretches:
        for b in range(s.begin, s.end):
            is_last = b == s.end - 1
            path = blocks.paths[is_last][b]
            begin, leaving = blocks.begin[b], blocks.leaving[b]
            steps = path.kept(s.price) + (partly or {}).get(b, 0)
            kept = {begin + t for row in path.tasks[:steps] for t in row}
            for t in range(begin, blocks.end[b]):
                if blocks.droppable[t] and t not in kept:
                    again = s.twice and tasks[t].cheap and blocks.needed[t] and t not in leaving
                    counts[t] = 2 if again else 1
        for t in blocks.cuts.kept[s.end - 1]:
            counts[t] = 0
    return counts


def filled(chain: Chain, stretches: list[Stretch], slack: float) -> dict[int, int]:
    """Additional steps of single blocks' paths for which the slack of an arena of `slack` bytes has room.

    A byte kept in a segment is missing in all later ones and in the tail. Most seconds per byte first; among
    equals the last, because fewest segments follow it.
    """
    blocks = chain.blocks
    room = np.empty(len(stretches) + 1)
    price_at = {float(p): i for i, p in enumerate(chain.menu)}
    items = []
    for i, s in enumerate(stretches):
        form, menu = int(s.twice), price_at[s.price]
        hold = chain.peak[form, s.begin : s.end].max() - chain.held[form, s.begin]
        room[i] = slack - hold
        last = s.end - 1
        slack -= chain.kept[menu, last] - chain.kept[menu, s.begin] + chain.kept_last[menu, last]
        slack -= chain.older(s.begin, s.end)
        for b in range(s.begin, s.end):
            path = blocks.paths[b == last][b]
            for step in range(path.kept(s.price), len(path.price)):
                items.append(
                    (-float(path.price[step]), -b, step, i, float(path.nbytes[step] - path.nbytes[step - 1]))
                )
    room[-1] = slack - (chain.tail[stretches[-1].end] if stretches else 0.0)
    added: dict[int, int] = {}
    refused: set[int] = set()
    items.sort()
    for _, minus_b, _, i, nbytes in items:
        b = -minus_b
        if b in refused:
            continue  # steps of a path are taken in order
        if room[i + 1 :].min() >= nbytes:
            room[i + 1 :] -= nbytes
            added[b] = added.get(b, 0) + 1
        else:
            refused.add(b)
    return added
