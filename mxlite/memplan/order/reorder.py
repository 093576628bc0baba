"""Order of a step's tasks: among the orders that dependencies allow, one that needs little memory.

Tasks of parallel branches may run in any order; a gradient of weights may run before or after the gradient of
data; a sum of gradients as soon as its terms are there or later. The live bytes meanwhile differ. The order
chosen here is part of the problem that everything else (plans, files, judge, engine) works on.

    given    a1 a2 a3 b1 b2 b3 sum     a3 small, b1 large: b's large start with nothing but a3 beside it;
             b1 b2 b3 a1 a2 a3 sum     if b3 is small and a1 larger, the other way round

A pass is cut where every order comes through the same task; what lies between two such **narrow places** can
be ordered by itself. A short piece is ordered by exact search (downsets.py). For a long one several rules
each propose an order, the given one is among them, and then short stretches of the best are searched exactly.
Orders are compared by, first to last: the peak when everything is kept; the peak of the pass's own working
memory, which matters when results are recomputed; the sum of live bytes over all steps.

Ravi Sethi and Jeffrey Ullman 1970, "The generation of optimal code for arithmetic expressions": enter first
the branch whose peak exceeds its result by most. On trees that is nearly the best order;
on graphs it is a rule like the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt, prod

import numpy as np

from ..files.findings import found
from ..problem import Problem
from ..remat.evaluate import Evaluator
from ..remat.split import find_cuts, nested, partial
from .downsets import Downsets
from .listing import follow, rules
from .section import Memory, pieces, Section, section_of, window_of

Order = tuple[int, ...]
Cost = tuple[int, int, int]

EXACT = 20_000  # transitions of the exact search in one piece or stretch, at most
FEW = 2_000  # and no more than this where fewer bytes could be gained than there are transitions
EFFORT = 20  # transitions per task of the pass, and as many more for a single search
LARGEST = 1024  # tasks of a piece that is searched as a whole; larger ones have too many downsets
SMALL = 24  # a pass of so few tasks is one piece
WINDOW = 24  # tasks of a stretch around a peak that is searched exactly
ROUNDS = 16  # stretches tried


def reorder(problem: Problem, num_constant: int = 0) -> Order:
    """The tasks of `problem` in a better order, or in the given one if none is found.

    A permutation: entry i is the number of the task that is to be the i-th. Forward tasks stay before all
    others, the first `num_constant` stay where they are, updates go to the end. The peak of the plan that
    keeps everything is never larger than with the given order, where kernels have the least scratch they can
    do with: so the order, and with it the least budget, is the same for any number of threads. Near-linear in
    tasks. The result of an earlier process is reused; see `findings.py`.
    """
    problem = problem.leanest
    return found(
        f"order {problem.digest} {num_constant}",
        len(problem.tasks),
        lambda: _reordered(problem, num_constant),
        lambda order: _is_order(problem, order),
    )


def reorder_within(problem: Problem, order: Order, num_constant: int = 0) -> Order:
    """The order for budgets that force `order`, the result of `reorder`, to recompute: `order` itself
    unless another is known that needs fewer bytes then. Long passes have only one, which weighs both.
    """
    problem = problem.leanest
    tasks = problem.tasks[problem.num_forward :]
    if problem.num_forward == len(problem.tasks) or sum(not t.update for t in tasks) > SMALL:
        return order
    other = found(
        f"order within {problem.digest} {num_constant}",
        len(problem.tasks),
        lambda: _reordered(problem, num_constant, recomputes=True),
        lambda order: _is_order(problem, order),
    )
    return other if _recomputed(problem, other) < _recomputed(problem, order) else order


def _is_order(problem: Problem, order: np.ndarray) -> bool:
    """True if every task is there once, after all that write or change what it reads."""
    n, forward = len(problem.tasks), problem.num_forward
    if not np.array_equal(np.sort(order), np.arange(n)) or (order[:forward] >= forward).any():
        return False
    at = np.empty(n, np.int64)  # of each task
    at[order] = np.arange(n)
    changed: dict[int, list[int]] = {}
    for t, task in enumerate(problem.tasks):
        for v in task.mutates:
            changed.setdefault(v, []).append(t)
    for t, task in enumerate(problem.tasks):
        for v in (*task.inputs, *task.mutates):
            if (maker := problem.producer[v]) >= 0 and at[maker] >= at[t]:
                return False
            if any((at[c] < at[t]) != (c < t) for c in changed.get(v, ())):
                return False
    return True


def _reordered(problem: Problem, num_constant: int, recomputes: bool = False) -> Order:
    """The order, searched for; `recomputes`: the one whose plans with recomputation take the fewest bytes."""
    n, forward = len(problem.tasks), problem.num_forward
    backward = section_of(problem, forward, n)
    backs = _ordered(backward, 0)
    start, updates = range(num_constant), [t for t, update in enumerate(backward.is_update) if update]

    def joined(fore: Sequence[int], back: Sequence[int]) -> Order:
        if back == backward.order:
            return (*start, *(num_constant + t for t in fore), *range(forward, n))
        return (*start, *(num_constant + t for t in fore), *(forward + t for t in (*back, *updates)))

    is_large = len(backward.order) > SMALL
    if recomputes or (is_large and len({kept for kept, _, _ in backs.values()}) > 1):
        # A lower peak may cost more below a budget: a task that waits for memory to be freed has live inputs.
        given = range(forward - num_constant)
        low = {back: _recomputed(problem, joined(given, back)) for back in backs}
        back = min(backs, key=lambda o: (low[o] if recomputes else backs[o][0] * low[o], backs[o]))
    else:
        back = min(backs, key=backs.__getitem__)
    section = section_of(problem, num_constant, forward)
    fores = _ordered(section, backs[back][0])
    fore = min(fores, key=fores.__getitem__)
    return joined(fore, back)


def _recomputed(problem: Problem, order: Order) -> int:
    """Live bytes of plans that recompute, few of each kind: the product of the least of both families.

    1 cut in about the square root of their number is kept; or there are 2, 3 and 4 levels.
    """
    problem = replace(problem, tasks=tuple(problem.tasks[t] for t in order))
    cuts, evaluator = find_cuts(problem), Evaluator(problem)
    count = len(cuts.at)
    stride, third, fourth = isqrt(count), max(2, round(count ** (1 / 3))), max(2, round(count**0.25))
    flat = [partial(cuts, s, 1.0) for s in (stride // 2, stride, 2 * stride)]
    deep = [nested(cuts, third, 2), nested(cuts, third, 3), nested(cuts, fourth, 4)]
    return prod(min(evaluator.one(counts)[0] for counts in family) for family in (flat, deep))


def cost(section: Section, order: Sequence[int], floor: int = 0) -> Cost:
    """(peak of what is kept, own peak, sum of both over the steps), less being better in this order.

    A kept peak below `floor` does not count.
    """
    kept, own = section.profile(order)
    return max([floor, *kept]), max(own, default=0), sum(kept) + sum(own)


class _Effort:
    """Number of transitions that the exact searches of one pass may still examine."""

    def __init__(self, count: int) -> None:
        self.left = count

    def search(self, section: Section, found: Order, floor: int) -> tuple[Order, bool]:
        """A better order than `found`, or `found` itself; and True if the search was completed."""
        if len(section.order) > LARGEST:
            return found, False
        best = cost(section, found, floor)
        lattice = Downsets(section)
        least = max(floor, lattice.bound[0]), lattice.bound[1]
        limit = min(EXACT, self.left, max(FEW, best[0] - least[0], best[1] - least[1]))
        order = lattice.least_kept(floor, limit)
        if order is not None and cost(section, order, floor) < best:
            found, best = order, cost(section, order, floor)
        if order is not None:
            order = lattice.least_own(best[0], limit)
            if order is not None and cost(section, order, floor) < best:
                found = order
        self.left -= lattice.steps
        return found, order is not None


def _ordered(section: Section, floor: int) -> dict[Order, Cost]:
    """The given order of a whole pass and the best found, with their costs.

    Two may be the best: one for its kept peak, one for the rest without a higher peak than the given order's.
    """
    given = section.order
    if section.is_chain:
        return {given: cost(section, given, floor)}
    effort = _Effort(EXACT + EFFORT * len(given))
    memory = Memory(section)
    result: list[int] = []
    for piece in pieces(section) if len(given) > SMALL else [given]:
        if len(piece) > 1:
            window = window_of(memory, piece)
            piece = tuple(piece[i] for i in _best(window, floor, effort))
        for t in piece:
            memory.run(t)
        result += piece
    tried = [given, tuple(result)]
    if len(given) > SMALL:
        # Weight gradients may do better long after their piece, where less is live.
        tried += [follow(section, result), follow(section, given)]
    costs = {order: cost(section, order, floor) for order in tried}
    no_worse = [order for order in costs if costs[order][0] <= costs[given][0]]
    best = min(no_worse, key=costs.__getitem__)  # among equals the first: the given one
    lean = min(no_worse, key=lambda order: costs[order][1:])
    return {order: costs[order] for order in (given, best, lean)}


def _best(section: Section, floor: int, effort: _Effort) -> Order:
    """The best order found for one piece."""
    tried = dict.fromkeys((section.order, *rules(section)))
    best = min(tried, key=lambda order: cost(section, order, floor))
    found, proved = effort.search(section, best, floor)
    return found if proved else _lowered(section, found, floor, effort)


def _lowered(section: Section, order: Order, floor: int, effort: _Effort) -> Order:
    """`order` with the stretch around its peak in a better order, as often as that helps."""
    best = cost(section, order, floor)
    for _ in range(ROUNDS):
        kept, own = section.profile(order)
        most = kept if max(kept) > floor else own
        at = max(0, most.index(max(most)) - WINDOW // 2)
        memory = Memory(section)
        for t in order[:at]:
            memory.run(t)
        part = order[at : at + WINDOW]
        window = window_of(memory, part)
        found, _ = effort.search(window, window.order, floor)
        tried = (*order[:at], *(part[i] for i in found), *order[at + WINDOW :])
        now = cost(section, tried, floor)
        if now >= best or effort.left <= 0:
            break
        order, best = tried, now
    return order
