"""The order of tasks: allowed by the data, never worse, proved least where small, equal results to the bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from networks import fill, random_network
from problems import chain, random_problem, residual

import mxlite as mx
from mxlite.executor import lower as lower_module
from mxlite.memplan import check, make_plan, Problem, reorder, Task, Value
from mxlite.memplan.downsets import Downsets
from mxlite.memplan.listing import rules
from mxlite.memplan.narrow import pieces
from mxlite.memplan.reorder import cost
from mxlite.memplan.section import Section, section_of


def permuted(problem: Problem, order: Any) -> Problem:
    assert sorted(order) == list(range(len(problem.tasks)))
    return replace(problem, tasks=tuple(problem.tasks[t] for t in order))


def sections(problem: Problem) -> tuple[Section, Section]:
    return section_of(problem, 0, problem.num_forward), section_of(
        problem, problem.num_forward, len(problem.tasks)
    )


def legal(section: Section, order: Any) -> bool:
    place = {t: i for i, t in enumerate(order)}
    return sorted(order) == sorted(section.order) and all(
        place[p] < place[t] for t in order for p in section.waits_for[t]
    )


def all_orders(section: Section) -> list[tuple[int, ...]]:
    """Every order that the dependencies allow."""
    found: list[tuple[int, ...]] = []
    tasks = set(section.order)

    def extend(order: tuple[int, ...]) -> None:
        if len(order) == len(tasks):
            found.append(order)
        for t in sorted(tasks - set(order)):
            if all(p in order for p in section.waits_for[t]):
                extend((*order, t))

    extend(())
    return found


def some_order(section: Section, seed: int) -> tuple[int, ...]:
    rng = np.random.default_rng(seed)
    order: list[int] = []
    while len(order) < len(section.order):
        ready = [
            t for t in section.order if t not in order and all(p in order for p in section.waits_for[t])
        ]
        order.append(int(rng.choice(ready)))
    return tuple(order)


def whole(problem: Problem, fore: Any, back: Any) -> Problem:
    n = problem.num_forward
    updates = [t for t in range(n, len(problem.tasks)) if problem.tasks[t].update]
    return permuted(problem, (*fore, *(n + t for t in back), *updates))


# -- what an order costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_profile_is_what_the_plan_of_that_order_keeps_alive(seed):
    problem = random_problem(seed)
    forward, backward = sections(problem)
    fore, back = some_order(forward, seed), some_order(backward, seed)
    kept = [*forward.profile(fore)[0], *backward.profile(back)[0]]
    assert max(kept) == make_plan(whole(problem, fore, back)).max_live_bytes


@pytest.mark.parametrize("seed", range(20))
def test_own_bytes_of_a_forward_pass_are_those_of_inference(seed):
    problem = random_problem(seed)
    n = problem.num_forward
    alone = Problem(problem.tasks[:n], problem.values, n)
    # Nobody behind reads them: what only backward reads dies at once.
    own = max(section_of(problem, 0, n).profile(range(n))[1])
    plan = make_plan(Problem(tuple(replace(t, always=t.outputs) for t in alone.tasks), problem.values, n))
    assert own == plan.max_live_bytes


# -- search ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_small_passes_get_an_order_proved_least(seed):
    problem = random_problem(seed, forward=7)
    for section in sections(problem):
        orders = all_orders(section)
        if not 1 < len(orders) <= 3000:
            continue
        costs = [cost(section, order)[:2] for order in orders]
        lattice = Downsets(section)
        first = lattice.least_kept(0, 100_000)
        assert first is not None and legal(section, first)
        assert cost(section, first)[0] == min(costs)[0]
        second = lattice.least_own(min(costs)[0], 100_000)
        assert second is not None and legal(section, second)
        assert cost(section, second)[:2] == min(costs)


@pytest.mark.parametrize("seed", range(60))
def test_the_least_peak_of_all_orders_is_found_for_small_steps(seed):
    problem = random_problem(seed, forward=6)
    forward, backward = sections(problem)
    fore, back = all_orders(forward), all_orders(backward)
    if len(fore) > 3000 or len(back) > 3000:
        return
    least = max(
        min(cost(section, order)[0] for order in orders)
        for section, orders in ((forward, fore), (backward, back))
    )
    assert make_plan(permuted(problem, reorder(problem))).max_live_bytes == least


@pytest.mark.parametrize("seed", range(30))
def test_rules_and_pieces_respect_the_data(seed):
    for section in sections(random_problem(seed, forward=20)):
        assert all(legal(section, order) for order in rules(section))
        assert legal(section, [t for piece in pieces(section) for t in piece])
