"""Schedules that say outright what runs again and when: what they cost, and how they are changed."""

from __future__ import annotations

import numpy as np
import pytest

from mxlite.memplan import check, make_schedule, Problem
from mxlite.memplan.compiled import interpreted
from mxlite.memplan.plan import make_plan
from mxlite.memplan.remat import holds as holds_module, stepwise
from mxlite.memplan.remat.evaluate import Evaluator
from mxlite.memplan.remat.holds import Held, Holds, plain_code
from mxlite.memplan.remat.profiles import Profiles
from mxlite.memplan.remat.schedule import Runs
from tests.memplan import exact_graphs as graphs
from tests.memplan.exact_schedule import replay
from tests.memplan.problems import busy_problem, chain, random_problem, residual

MAKERS = {
    "random": lambda seed: random_problem(seed, 4 + seed % 12),
    "busy": lambda seed: busy_problem(seed, 4 + seed % 12),
    "trained chain": lambda seed: chain(4 + seed % 9, update=True),
    "residual": lambda seed: residual(2 + seed % 3, 2, update=seed % 2 == 0),
    "drawn": lambda seed: graphs.step(graphs.drawn(seed, 6 + seed % 10)),
}


def tables(problem: Problem) -> Holds:
    return Holds(problem, Profiles(problem), [0] * problem.num_forward)


def states(problem: Problem, rng: np.random.Generator, number: int) -> tuple[Holds, Held]:
    """Schedules from random bits, from few that are held to nearly all."""
    holds = tables(problem)
    everything = holds.of([Runs(((),) * problem.num_forward)])
    first, spans = [0], []
    for share in np.linspace(0.0, 1.0, number):
        bits = rng.random((problem.num_forward, holds.stages)) < share
        spans += [(u, j, j, int(bits[u, j])) for u in range(len(bits)) for j in range(holds.stages)]
        first.append(len(spans))
    return holds, holds.edited(everything, np.array(first), np.array(spans))


def same(a: Held, b: Held) -> bool:
    return (a.held == b.held).all() and (a.runs == b.runs).all()


@pytest.fixture(params=["Python", "machine code"])
def way(request, monkeypatch):
    if request.param == "Python":
        monkeypatch.setattr(stepwise, "machine_code", lambda: interpreted(stepwise.costs))
        monkeypatch.setattr(holds_module, "machine_code", lambda: None)


@pytest.mark.parametrize("kind", MAKERS)
def test_any_runs_cost_what_their_schedules_do(kind, way):
    again = 0
    for seed in range(12):
        problem = MAKERS[kind](seed)
        evaluator = Evaluator(problem)
        assert evaluator.runs_by_stage
        holds, some = states(problem, np.random.default_rng(seed), 5)
        found = [holds.runs(some, i) for i in range(len(some))]
        num, every = holds.runs_of(some)
        assert num.tolist() == [list(map(len, runs.stages)) for runs in found]
        assert every.tolist() == [j for runs in found for row in runs.stages for j in row]
        live, seconds = evaluator.stages_of_runs(num, every)
        for runs, row, extra in zip(found, live.tolist(), seconds.tolist()):
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
def test_bits_and_runs_are_two_forms_of_one_schedule(kind, way):
    for seed in range(12):
        problem = MAKERS[kind](seed)
        holds, some = states(problem, np.random.default_rng(seed), 4)
        every = [holds.runs(some, i) for i in range(len(some))]
        assert same(holds.of(every), some)  # nothing runs that nothing reads
        for runs in every:
            assert make_schedule(problem, runs).runs == runs  # and all of it may run
        assert not (some.held & some.runs).any()


def test_what_the_bits_say_is_what_a_replay_counts():
    for seed in range(10):
        problem = graphs.step(graphs.drawn(seed, 9))
        evaluator = Evaluator(problem)
        holds, some = states(problem, np.random.default_rng(seed), 4)
        for i in range(len(some)):
            schedule = make_schedule(problem, holds.runs(some, i))
            nbytes, seconds = evaluator.one(holds.runs(some, i))
            assert replay(problem, schedule.task) == (nbytes, pytest.approx(seconds))


def test_a_change_of_one_task_settles_as_all_would(way):
    """Only what a change reaches is looked at again; that must be everything that it does."""
    for seed in range(10):
        problem = MAKERS["drawn"](seed)
        holds, some = states(problem, np.random.default_rng(seed), 3)
        for i in range(len(some)):
            changes = holds.changes(some[i : i + 1])
            assert len(changes) > 0
            assert (changes.spans[changes.first[:-1], 0] == changes.ways[:, 0]).all()
            new = holds.edited(some[i : i + 1], changes.first, changes.spans)
            again = holds.of([holds.runs(new, k) for k in range(len(new))])
            assert same(again, new)
            holds.settle(again)
            assert same(again, new)


def test_a_result_is_kept_until_it_is_read_then_made_again(way):
    """Kept for stages 0 and 1, then made again for stage 3; counts say all or nothing of that."""
    problem = graphs.step(graphs.chain([4096] * 4, [5.0] * 4))
    holds = tables(problem)
    everything = holds.of([Runs(((),) * 4)])
    changes = holds.changes(everything)
    first = [way for way in changes.ways.tolist() if way[0] == 0]
    assert len(first) == 1 and first[0][2] == 0
    dropped = holds.edited(everything, changes.first[:2], changes.spans)
    assert holds.runs(dropped, 0).stages == ((first[0][1],), (), (), ())
    back = holds.changes(dropped)
    restored = holds.edited(dropped, back.first[:2], back.spans)
    assert same(restored, everything)


def test_sets_of_changes_are_their_spans_in_a_row():
    holds, some = states(MAKERS["drawn"](3), np.random.default_rng(3), 2)
    changes = holds.changes(some[1:])
    chosen = np.random.default_rng(1).random((5, len(changes))) < 0.3
    chosen[2] = False
    first, spans = changes.sets(chosen)
    for row, begin, end in zip(chosen, first, first[1:]):
        wanted = [changes.spans[a:b] for k, a, b in zip(row, changes.first, changes.first[1:]) if k]
        assert spans[begin:end].tolist() == [x.tolist() for part in wanted for x in part]
    stage = holds.stages // 2
    near = holds.changes(some[1:], stage)
    assert {tuple(w) for w in near.ways.tolist()} <= {tuple(w) for w in changes.ways.tolist()}
    twice = near.joined([near, changes])
    assert len(twice) == len(changes) and (twice.ways[: len(near)] == near.ways).all()


def test_rows_of_any_width_say_the_same(monkeypatch):
    """Machine code cuts rows into numbers of 60 bits; here into some of 3, several in most rows."""
    for kind, make in MAKERS.items():
        problem = make(5)
        whole = states(problem, np.random.default_rng(2), 4)
        with monkeypatch.context() as patch:
            patch.setattr(holds_module, "machine_code", plain_code)
            patch.setattr(holds_module, "PLACES", 3)
            cut = states(problem, np.random.default_rng(2), 4)
        assert cut[0].words > 1 or cut[0].stages <= 3
        draws = np.random.default_rng(4)
        tasks = draws.integers(-1, len(cut[0].free), (4, 3))
        tasks = np.where(tasks < 0, -1, cut[0].free[tasks])
        which, kinds = draws.integers(0, 1000, (4, 3)), draws.integers(0, 2, (4, 3))
        for i in range(4):
            assert cut[0].runs(cut[1], i) == whole[0].runs(whole[1], i), kind
            a, b = (h.changes(some[i : i + 1]) for h, some in (cut, whole))
            assert (a.ways == b.ways).all() and (a.spans == b.spans).all() and (a.first == b.first).all()
        a, b = (h.moved(some, tasks, which, kinds) for h, some in (cut, whole))
        for i in range(4):
            assert cut[0].runs(a, i) == whole[0].runs(b, i)


def test_machine_code_and_python_agree():
    pytest.importorskip("llvmlite")
    for seed in range(6):
        problem = busy_problem(seed, 8)
        profiles = Profiles(problem)
        counts = np.random.default_rng(seed).integers(0, 6, (4, problem.num_forward))
        counts = np.where(profiles.droppable, counts, 0)
        code = stepwise.Stepwise(problem, profiles, stepwise.machine_code())
        plain = stepwise.Stepwise(problem, profiles, interpreted(stepwise.costs))
        for a, b in zip(code.of_counts(counts), plain.of_counts(counts)):
            assert (a == b).all()
