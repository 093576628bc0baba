"""Cuts of a forward pass into segments, and the mirror counts that cuts give.

A **cut** lies after a forward task. The values that cross it, written before and read after, are all that has
to be kept to recompute the tasks after it. Good cuts are narrow: one value between two residual
blocks, the states of all layers between two time steps of a recurrent net.

Tianqi Chen et al. 2016 (see schedule.py): segments with a byte budget are their Algorithm 3 (7 in
the thesis); `nested` is their recursion with any number of levels. Two things are added. The part of a
recomputed segment that backward needs first is kept at once, since it would be recomputed just then; and
dropping may be partial, cheapest time per byte first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...core.cached import cached_property
from ..problem import padded, Problem

WIDEST = 0.2
"""Cuts that leave a larger share than this of a network's bytes in one piece are useless."""


@dataclass(frozen=True)
class Cuts:
    """The candidate cuts of a problem: `at[c]` is the task before cut c, `kept[c]` the tasks it keeps."""

    problem: Problem
    at: tuple[int, ...]
    kept: tuple[tuple[int, ...], ...]

    @cached_property
    def block_of(self) -> tuple[int, ...]:
        """Number of cuts before each forward task."""
        result, c = [], 0
        for t in range(self.problem.num_forward):
            while c < len(self.at) and self.at[c] < t:
                c += 1
            result.append(c)
        return tuple(result)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Recomputable forward tasks, the least time per byte of output first."""
        problem = self.problem
        ratio = {}
        for t, task in enumerate(problem.tasks[: problem.num_forward]):
            nbytes = _arena_bytes(problem, t)
            if nbytes and task.recomputable and not task.mutates:
                ratio[t] = task.seconds / nbytes
        return tuple(sorted(ratio, key=lambda t: (ratio[t], t)))


def _arena_bytes(problem: Problem, t: int) -> int:
    values = problem.values
    return sum(padded(values[v].nbytes) for v in problem.tasks[t].outputs if v >= 0 and not values[v].fixed)


def find_cuts(problem: Problem, widest: int = 0) -> Cuts:
    """The user's marks (`mirror_stage`) if there are any, else the cuts that only one value crosses, else
    local minima. With `widest`, every cut that at most so many values cross.

    O(tasks).
    """
    n = problem.num_forward
    last_use = [-1] * n
    for t in range(n):
        for p in problem.reads[t]:
            last_use[p] = t
    opens: list[list[int]] = [[] for _ in range(n)]
    closes: list[list[int]] = [[] for _ in range(n + 1)]
    for t in range(n):
        if last_use[t] > t:
            opens[t].append(t)
            closes[last_use[t]].append(t)
    crossing: dict[int, None] = {}
    counts, nbytes, total = [], [], 0
    size = [_arena_bytes(problem, t) for t in range(n)]
    for t in range(n):
        for p in closes[t]:
            del crossing[p]
            total -= size[p]
        for p in opens[t]:
            crossing[p] = None
            total += size[p]
        counts.append(len(crossing))
        nbytes.append(total)
    inside = range(n - 1)
    marked = [t for t in inside if problem.tasks[t].stage]
    single = [t for t in inside if counts[t] == 1]
    if marked:
        at = marked
    elif widest:
        at = [t for t in inside if 0 < counts[t] <= widest]
    elif _largest_share(size, single) <= WIDEST:
        at = single
    else:
        at = [
            t
            for t in inside
            if counts[t] and (t == 0 or nbytes[t] <= nbytes[t - 1]) and nbytes[t] <= nbytes[t + 1]
        ]
    # A second walk collects only the values that cross the chosen cuts.
    chosen, kept = set(at), []
    crossing.clear()
    for t in range(n):
        for p in closes[t]:
            del crossing[p]
        for p in opens[t]:
            crossing[p] = None
        if t in chosen:
            kept.append(tuple(crossing))
    return Cuts(problem, tuple(at), tuple(kept))


def _largest_share(size: Sequence[int], at: Sequence[int]) -> float:
    """The most bytes written between two neighbouring cuts `at`, as a share of all."""
    total, most, since, cuts = sum(size), 0, 0, set(at)
    for t, nbytes in enumerate(size):
        since += nbytes
        most = max(most, since)
        if t in cuts:
            since = 0
    return most / total if total else 0.0


def thinned(cuts: Cuts, most: int) -> Cuts:
    """At most `most` of the cuts: of neighbours that which keeps the fewest bytes, of equals the last."""
    n = len(cuts.at)
    if n <= most:
        return cuts
    nbytes = [sum(_arena_bytes(cuts.problem, t) for t in kept) for kept in cuts.kept]
    chosen = [
        min(range(g * n // most, (g + 1) * n // most), key=lambda c: (nbytes[c], -c)) for g in range(most)
    ]
    return Cuts(cuts.problem, tuple(cuts.at[c] for c in chosen), tuple(cuts.kept[c] for c in chosen))


def forced(problem: Problem) -> list[int]:
    """Counts of the marked tasks: by the user with `force_mirroring`, or as 16-bit copies on the CPU."""
    return [int(t.mirror) for t in problem.tasks[: problem.num_forward]]


def keeping(problem: Problem) -> str:
    """Name of a plan that recomputes only what is marked; it lists the marked operators."""
    ops = sorted({t.op for t in problem.tasks[: problem.num_forward] if t.mirror})
    if not ops:
        return "keep all"
    more = f" and {len(ops) - 3} more" if len(ops) > 3 else ""
    return f"keep all, run {', '.join(ops[:3])}{more} again"


def cheap(problem: Problem) -> list[int]:
    """Counts that drop every cheap result: batch norm, activation, pooling, elementwise operators."""
    return [int(t.cheap or t.mirror) for t in problem.tasks[: problem.num_forward]]


def partial(cuts: Cuts, stride: int, fraction: float) -> list[int]:
    """Counts that keep what crosses every `stride`-th cut (0: no cut) and drop the first `fraction` of the
    rest in `cuts.order`.

    Tasks after the last used cut are kept: backward needs them first.
    """
    problem = cuts.problem
    counts = [int(t.mirror) for t in problem.tasks[: problem.num_forward]]
    for t in cuts.order[: round(fraction * len(cuts.order))]:
        counts[t] = 1
    used = range(stride - 1, len(cuts.at), stride) if stride else range(0)
    for c in used:
        for t in cuts.kept[c]:
            counts[t] = 0
    if used:
        for t in range(cuts.at[used[-1]] + 1, problem.num_forward):
            counts[t] = 0
    return counts


def by_bytes(cuts: Cuts, budget: int) -> list[int]:
    """Counts of Algorithm 3: a segment ends at the first cut after more than `budget` bytes."""
    problem = cuts.problem
    n = problem.num_forward
    counts = [1] * n
    passed, c, last = 0, 0, -1
    for t in range(n):
        passed += _arena_bytes(problem, t)
        if c < len(cuts.at) and cuts.at[c] == t:
            if passed > budget:
                for p in cuts.kept[c]:
                    counts[p] = 0
                passed, last = 0, t
            c += 1
    for t in range(last + 1, n):
        counts[t] = 0
    return counts


def nested(cuts: Cuts, radix: int, levels: int) -> list[int]:
    """Counts with `levels` of recursion: cuts whose number is a multiple of radix**levels are kept, those of
    a lower power are kept within their segment, and so on.

    The last part of each recomputed segment is not dropped once more, because backward starts there.
    """
    problem = cuts.problem
    n, blocks = problem.num_forward, len(cuts.at) + 1
    counts = [0] * n
    powers = [radix**i for i in range(levels + 1)]

    def level_of_block(b: int) -> int:
        m = levels
        for low, high in pairwise(powers):
            # The segment of `high` blocks around b, cut short by the end; is b in its last part?
            end = min((b // high + 1) * high, blocks)
            if b // low == (end - 1) // low and low > 1:
                m -= 1
        if b // powers[-1] == (blocks - 1) // powers[-1]:
            m -= 1  # the very last segment is still live from the forward pass
        return max(m, 0)

    per_block = [level_of_block(b) for b in range(blocks)]
    for t, b in enumerate(cuts.block_of):
        counts[t] = per_block[b]
    for c, kept in enumerate(cuts.kept):
        number = c + 1  # block c + 1 starts after cut c
        power = 0
        while power < levels and number % powers[power + 1] == 0:
            power += 1
        if power:
            for t in kept:
                counts[t] = min(counts[t], max(levels - power, 0))
    return counts


def strides(cuts: Cuts) -> Iterator[int]:
    """Distances between kept cuts that are worth a try: all small ones, then growing by about a quarter."""
    s, limit = 1, max(1, len(cuts.at) // 2)
    while s <= limit:
        yield s
        s = max(s + 1, s * 5 // 4)


def total_bytes(problem: Problem) -> int:
    """Arena bytes of all forward values together."""
    return sum(_arena_bytes(problem, t) for t in range(problem.num_forward))


def kept_bytes(problem: Problem) -> int:
    """Arena bytes of what backward reads of the forward pass, without what the user marked for recomputation:
    if nothing else is recomputed, all of it is live when backward begins.
    """
    n, made = problem.num_forward, problem.arena_producer
    read = {v for t in problem.tasks[n:] for v in t.inputs if 0 <= made[v] < n}
    return sum(padded(problem.values[v].nbytes) for v in read if not problem.tasks[made[v]].mirror)
