"""Costs of many candidates at once are those of the schedules written down one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mxlite.memplan import Problem, STRATEGIES, Task, Value
from mxlite.memplan.compiled import interpreted
from mxlite.memplan.plan import make_plan
from mxlite.memplan.remat import stepwise
from mxlite.memplan.remat.evaluate import Evaluator
from tests.memplan.problems import busy_problem, chain, random_problem, residual


@pytest.fixture(autouse=True, params=["Python", "machine code"])
def way(request, monkeypatch):
    """Costs come from loops in Python, or in machine code where there is a compiler."""
    if request.param == "Python":
        monkeypatch.setattr(stepwise, "machine_code", lambda: interpreted(stepwise.costs))


def compare(problem, counts, strategy="sharing"):
    """Also the caller's array must stay as it was."""
    evaluator = Evaluator(problem, strategy)
    before = counts.copy()
    nbytes, seconds = evaluator.many(counts)
    assert nbytes.dtype == np.int64 and seconds.dtype == np.float64
    assert (counts == before).all()
    found = [*zip(nbytes.tolist(), seconds.tolist())]
    assert found == [evaluator.one(row) for row in counts.tolist()]
    return found


def some_counts(rng, candidates, forward):
    """Nothing, everything, and as many ones as chance gives, from few to nearly all."""
    counts = (rng.random((candidates, forward)) < rng.random((candidates, 1)) * 1.2).astype(np.int64)
    counts[0], counts[1] = 0, 1
    return counts


@pytest.mark.parametrize("make", [random_problem, busy_problem])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_random_candidates_cost_what_their_schedules_do(make, strategy):
    different = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        problem = make(seed, forward=int(rng.integers(1, 30)))
        assert Evaluator(problem).profiles.plain
        different.update(compare(problem, some_counts(rng, 8, problem.num_forward), strategy))
    assert len(different) > 200


def test_trained_blocks_cost_what_their_schedules_do():
    for problem in (chain(40, update=True), residual(12, 3, 1000), residual(9, 4, 4000, update=True)):
        rng = np.random.default_rng(0)
        compare(problem, some_counts(rng, 12, problem.num_forward))


@pytest.mark.parametrize("make", [random_problem, busy_problem])
def test_bytes_of_each_stage_are_those_of_its_steps(make):
    """A stage is a forward task, or a backward task with all that runs before it since the one before."""
    for seed in range(20):
        problem = make(seed, forward=12)
        rng = np.random.default_rng(seed)
        counts = rng.integers(0, 3, (4, 12))
        evaluator = Evaluator(problem)
        live, _ = evaluator.stages(counts)
        for row, found in zip(counts.tolist(), live.tolist()):
            if not any(found[1:]):  # it was looked at alone
                assert found[0] == evaluator.one(row)[0]
                continue
            plan = make_plan(problem, row)
            steps = zip(plan.schedule.task, plan.schedule.copy, plan.live_bytes())
            stages, now = [], 0
            for t, copy, nbytes in steps:
                now = max(now, nbytes)
                if copy == 0 and not problem.tasks[t].update:
                    stages.append(now)
                    now = 0
            stages[-1] = max(stages[-1], now)  # updates behind the last task
            assert found == stages


def test_candidates_of_any_integers_and_none_at_all():
    problem = busy_problem(3, 20)
    counts = some_counts(np.random.default_rng(3), 11, problem.num_forward)
    compare(problem, counts)
    nbytes, seconds = Evaluator(problem).many(counts[:0])
    assert len(nbytes) == len(seconds) == 0
    compare(problem, counts.astype(np.int8))


@pytest.mark.parametrize("make", [random_problem, busy_problem])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_higher_counts_cost_what_their_schedules_do(make, strategy):
    different = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        problem = make(seed, forward=int(rng.integers(1, 30)))
        counts = some_counts(rng, 8, problem.num_forward)
        counts[3:] *= rng.integers(1, np.array([[3], [3], [4], [5], [6]]), (5, problem.num_forward))
        different.update(compare(problem, counts, strategy))
    assert len(different) > 150


def test_few_candidates_are_looked_at_alone(monkeypatch):
    """Those with copies that would read what backward has changed."""
    alone = 0
    for seed in range(20):
        problem = busy_problem(seed, 20)
        counts = np.random.default_rng(seed).integers(0, 3, (10, problem.num_forward))
        counts[0] = 5
        evaluator = Evaluator(problem)
        asked, one = [], evaluator.one
        monkeypatch.setattr(evaluator, "one", lambda row, asked=asked, one=one: asked.append(row) or one(row))
        evaluator.many(counts)
        alone += len(asked)
    assert 20 < alone < 150


def test_a_problem_that_the_tables_do_not_know_is_evaluated_one_by_one():
    """An update that reads what forward makes, and a step without a forward pass."""
    values = (Value("w", 64, True), Value("a", 64), Value("b", 128))
    tasks = (
        Task("f", "op", (0,), (1,)),
        Task("g", "op", (1,), (2,), recomputable=False),
        Task("u", "sgd", (0, 1), (), mutates=(0,), update=True),
    )
    problem = Problem(tasks, values, 1)
    assert not Evaluator(problem).profiles.plain
    assert compare(problem, np.array([[0]])) == [(64, 0.0)]
    compare(Problem(tasks[:1], values, 0), np.zeros((2, 0), np.int64))


def test_one_donor_serves_one_output_of_each_task():
    """Two outputs may take the input's place, of two tasks that both read it: the later task's first one."""
    values = (Value("x", 64, True), *(Value(n, 640) for n in "abcdeg"))
    tasks = (
        Task("make", "op", (0,), (1,)),
        Task("early", "op", (1,), (2, 3), ((2, 1), (3, 1)), always=(2, 3)),
        Task("late", "op", (1,), (4, 5), ((4, 1), (5, 1)), always=(4, 5)),
        Task("back", "op", (2, 4, 5), (6,), ((6, 5), (6, 4))),
    )
    for read in ((4, 5), (5,), (2, 5), (2, 4, 5)):
        problem = Problem((*tasks[:3], replace(tasks[3], inputs=read)), values, 3)
        problem = Problem(tuple(replace(t, in_place=tuple(p for p in t.in_place if p[1] in t.inputs))
                                for t in problem.tasks), values, 3)  # fmt: skip
        counts = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
        for strategy in STRATEGIES:
            compare(problem, counts, strategy)


def test_seconds_are_added_in_one_order():
    """Rounding depends on the order; a thousand tenths in another one differ in the last digit."""
    problem = chain(300)
    rng = np.random.default_rng(5)
    tasks = tuple(replace(t, seconds=float(s)) for t, s in zip(problem.tasks, rng.random(len(problem.tasks))))
    problem = replace(problem, tasks=tasks)
    for _, seconds in compare(problem, some_counts(rng, 4, problem.num_forward))[1:]:
        assert 0 < seconds < 600


def test_forward_may_leave_nothing_in_the_arena():
    """All of its results are the user's; backward still works in place."""
    values = (
        Value("data", 64, fixed=True), Value("out", 64, fixed=True), Value("d0", 64), Value("d1", 64),
        Value("grad", 64, fixed=True),
    )  # fmt: skip
    tasks = (
        Task("f", "f", (0,), (1,), seconds=1.0),
        Task("b0", "b", (1,), (2,), seconds=1.0),
        Task("b1", "b", (2,), (3,), ((3, 2),), seconds=1.0),
        Task("b2", "b", (3,), (4,), seconds=1.0),
    )
    evaluator = Evaluator(Problem(tasks, values, 1))
    counts = np.array([[0], [1], [2], [3]])
    nbytes, seconds = evaluator.many(counts)
    assert [(b, s) for b, s in zip(nbytes.tolist(), seconds.tolist())] == [
        evaluator.one(row) for row in counts.tolist()
    ]
