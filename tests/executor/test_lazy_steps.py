"""Steps that the executor makes when a plan needs them: who calls whom, and how many are made."""

import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import mxlite as mx
from mxlite.executor.plan.lazy_steps import LazySteps
from mxlite.memplan import make_plan, plan_memory, Search
from mxlite.memplan.refusal import too_small
from mxlite.memplan.remat.frontier import Frontier, frontier
from tests.memplan.problems import residual
from tests.networks.small_networks import mlp

HOUSE = Path(mx.__file__).parent


@contextmanager
def calls_up():
    """Collects (function of memplan, function of executor) where one runs inside of the other."""
    found, executor, memplan = set(), str(HOUSE / "executor"), str(HOUSE / "memplan")

    def look(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(executor):
            outer = frame.f_back
            while outer is not None:
                if outer.f_code.co_filename.startswith(memplan):
                    found.add((outer.f_code.co_name, frame.f_code.co_name))
                outer = outer.f_back

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(before)


def test_the_planner_calls_nothing_of_the_executor():
    net, shapes = mlp(), {"data": (64, 20)}
    whole = net.memory_plan(mx.cpu(), **shapes)
    with calls_up() as found:
        with pytest.raises(mx.MemoryBudgetError) as refused:
            net.simple_bind(mx.cpu(), memory_budget=1, **shapes)
        least = refused.value.least_feasible_bytes
        plan = net.simple_bind(mx.cpu(), memory_budget=least, **shapes).memory_plan
        net.simple_bind(mx.cpu(), **shapes)
    assert plan.peak_bytes <= least <= whole.peak_bytes and not found


def test_a_plan_hands_a_question_for_another_budget_to_its_owner():
    net, shapes = mlp(), {"data": (64, 20)}
    plan = net.memory_plan(mx.cpu(), memory_budget="1GiB", **shapes)
    with calls_up() as found:
        other = plan.within("2GiB")
    assert other.peak_bytes == plan.peak_bytes
    assert {outer for outer, _ in found} == {"within"}


def test_no_step_is_made_that_nobody_needs():
    made = []

    def within():
        for n in (1, 2):
            made.append(n)
            yield residual(3, n)

    steps = LazySteps(lambda: residual(3, 1), within)
    full = make_plan(residual(3, 1)).peak_bytes
    assert steps.plan().peak_bytes == full and made == []
    assert steps.plan(full).peak_bytes == full and made == [1]
    with pytest.raises(mx.MemoryBudgetError):
        steps.plan(1)
    assert made == [1, 2]


def test_a_search_is_over_when_the_first_problem_fits_as_it_is():
    problem = residual(3, 1)
    full = make_plan(problem).peak_bytes
    search = Search(full)
    assert search.is_answered_by(problem)
    assert search.plan() == plan_memory(problem, full)
    search = Search(full - 1)
    assert not search.is_answered_by(problem)
    assert search.plan() == plan_memory(problem, full - 1)


def test_each_step_owns_its_own_bytes_beside_those_of_others():
    whole = replace(residual(3, 1), fixed_bytes={"arguments": 100, "optimizer": 200})
    shared = replace(whole, fixed_bytes={"arguments": 100, "optimizer": 50, "staging": 7})
    steps = LazySteps(lambda: whole, lambda: (shared, whole))
    beside = {"arguments": 100, "optimizer": 50, "staging": 7, "inputs": 30}  # with `shared`
    first, second = steps.owning(beside, shared.fixed_bytes)
    assert first.fixed_bytes == beside
    assert second.fixed_bytes == {"arguments": 100, "optimizer": 200, "staging": 0, "inputs": 30}


def test_whether_a_plan_fits_is_known_without_what_would(monkeypatch):
    """The same plan, or None where there is an error; a budget below the bound is not even searched."""
    steps = LazySteps.of(residual(5, 2))
    with pytest.raises(mx.MemoryBudgetError) as refused:
        steps.plan(1)
    least, bound = refused.value.least_feasible_bytes, steps.lower_bound_bytes
    for budget in (least, least + 1000, steps.plan().peak_bytes):
        assert steps.fitting(budget).schedule == steps.plan(budget).schedule
    assert steps.fitting(least - 1) is None
    monkeypatch.setattr(LazySteps, "_search", None)
    assert steps.fitting(bound - 1) is None


def test_of_several_steps_the_one_of_least_bytes_is_named_and_hopeless_ones_are_not_placed(monkeypatch):
    small, large = residual(4, 1), residual(9, 1)
    owned = replace(small, fixed_bytes={**small.fixed_bytes, "states": 10**7})
    placed = []
    smallest = Frontier.smallest
    monkeypatch.setattr(Frontier, "smallest", lambda f, i: placed.append(f.problem) or smallest(f, i))
    frontiers = [frontier(p) for p in (owned, large, small)]
    error = too_small([owned, large, small], 1, frontiers, make_plan(owned))
    assert error.least_feasible_bytes == min(f.least().peak_bytes for f in frontiers[1:])
    assert owned not in placed
