"""Steps that the executor makes when a plan needs them: who calls whom, and how many are made."""

import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import mxlite as mx
from mxlite.executor.plan.lazy_steps import LazySteps
from mxlite.memplan import make_plan, plan_memory, Search
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
