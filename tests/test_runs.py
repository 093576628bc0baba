"""Schedules that say outright what runs again and when: what they cost, and how they are changed."""

from __future__ import annotations

import exact_graphs as graphs
import numpy as np
import pytest
from exact_schedule import replay
from problems import busy_problem, chain, random_problem, residual

from mxlite.memplan import check, make_schedule, Problem, stepwise
from mxlite.memplan.evaluate import Evaluator
from mxlite.memplan.holds import Holds
from mxlite.memplan.plan import make_plan
from mxlite.memplan.profiles import Profiles
from mxlite.memplan.schedule import Runs

MAKERS = {
    "random": lambda seed: random_problem(seed, 4 + seed % 12),
    "busy": lambda seed: busy_problem(seed, 4 + seed % 12),
    "trained chain": lambda seed: chain(4 + seed % 9, update=True),
    "residual": lambda seed: residual(2 + seed % 3, 2, update=seed % 2 == 0),
    "drawn": lambda seed: graphs.step(graphs.drawn(seed, 6 + seed % 10)),
}


def tables(problem: Problem) -> Holds:
    return Holds(problem, Profiles(problem, in_place=True, sharing=True), [0] * problem.num_forward)


def states(problem: Problem, rng: np.random.Generator, number: int):
    """Schedules from random bits, from few that are held to nearly all."""
    holds = tables(problem)
    everything = holds.of(Runs(((),) * problem.num_forward))
    for share in np.linspace(0.0, 1.0, number):
        bits = rng.random((problem.num_forward, holds.stages)) < share
        edits = tuple((u, 0, holds.bits(np.flatnonzero(row).tolist())) for u, row in enumerate(bits))
        yield holds, holds.edited(everything, edits)


@pytest.fixture(params=["numpy", "machine code"])
def way(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(stepwise, "machine_code", lambda: None)
    elif stepwise.machine_code() is None:
        pytest.skip("llvmlite (extra 'compile') makes the machine code")
    return request.param


@pytest.mark.parametrize("kind", MAKERS)
def test_any_runs_cost_what_their_schedules_do(kind, way):
    again = 0
    for seed in range(12):
        problem = MAKERS[kind](seed)
        evaluator = Evaluator(problem)
        assert evaluator.runs_by_stage
        found = [(h.runs(s), s) for h, s in states(problem, np.random.default_rng(seed), 5)]
        num = np.array([list(map(len, runs.stages)) for runs, _ in found])
        every = [j for runs, _ in found for row in runs.stages for j in row]
        live, seconds = evaluator.stages_of_runs(num, np.array(every, np.int64))
        for (runs, _), row, extra in zip(found, live.tolist(), seconds.tolist()):
            assert (max(row), extra) == evaluator.one(runs)
            plan = make_plan(problem, runs)
            if kind != "busy":  # those change state that is read later, whatever the plan
                check(plan, plan.predecessors)
            again += plan.recomputed
            stages, now = [], 0
            for t, copy, nbytes in zip(plan.schedule.task, plan.schedule.copy, plan.live_bytes()):
                now = max(now, nbytes)
                if copy == 0 and not problem.tasks[t].update:
                    stages.append(now)
                    now = 0
            stages[-1] = max(stages[-1], now)
            assert row == stages
    assert again > 100


@pytest.mark.parametrize("kind", MAKERS)
def test_bits_and_runs_are_two_forms_of_one_schedule(kind):
    for seed in range(12):
        problem = MAKERS[kind](seed)
        for holds, state in states(problem, np.random.default_rng(seed), 4):
            runs = holds.runs(state)
            assert holds.of(runs) == state  # nothing runs that nothing reads
            assert make_schedule(problem, runs).runs == runs  # and all of it may run
            for held, again in zip(state.held, state.runs):
                assert not held & again


def test_what_the_bits_say_is_what_a_replay_counts():
    for seed in range(10):
        problem = graphs.step(graphs.drawn(seed, 9))
        evaluator = Evaluator(problem)
        for holds, state in states(problem, np.random.default_rng(seed), 4):
            schedule = make_schedule(problem, holds.runs(state))
            nbytes, seconds = evaluator.one(holds.runs(state))
            assert replay(problem, schedule.task) == (nbytes, pytest.approx(seconds))


def test_a_change_of_one_task_settles_as_all_would():
    """Only what a change reaches is looked at again; that must be everything that it does."""
    for seed in range(10):
        problem = MAKERS["drawn"](seed)
        rng = np.random.default_rng(seed)
        for holds, state in states(problem, rng, 3):
            for u, edit in holds.changes(state, holds.free):
                new = holds.edited(state, edit)
                assert u in {t for t, _, _ in edit}
                assert holds.of(holds.runs(new)) == new
                assert holds.edited(new, tuple((t, holds.full, 0) for t in range(len(new.held)))) == new


def test_a_result_is_kept_until_it_is_read_then_made_again():
    """Kept for stages 0 and 1, then made again for stage 3; counts say all or nothing of that."""
    problem = graphs.step(graphs.chain([4096] * 4, [5.0] * 4))
    holds = tables(problem)
    everything = holds.of(Runs(((),) * 4))
    events = holds.events(everything, 0)
    assert len(events) == 1
    cut = holds.change(everything, 0, -1, events[0], 0)
    dropped = holds.edited(everything, cut)
    assert holds.runs(dropped).stages == ((events[0],), (), (), ())
    back = holds.change(dropped, 0, -1, events[0], 0)
    assert holds.edited(dropped, back) == everything


def test_machine_code_and_python_agree():
    if stepwise.machine_code() is None:
        pytest.skip("llvmlite (extra 'compile') makes the machine code")
    for seed in range(6):
        problem = busy_problem(seed, 8)
        profiles = Profiles(problem, in_place=True, sharing=True)
        counts = np.random.default_rng(seed).integers(0, 6, (4, problem.num_forward))
        counts = np.where(profiles.droppable, counts, 0)
        code = stepwise.Stepwise(problem, profiles, stepwise.machine_code())
        plain = stepwise.Stepwise(problem, profiles, stepwise.costs)
        for a, b in zip(code.of_counts(counts), plain.of_counts(counts)):
            assert (a == b).all()
