"""Times of calls in steps: plans that are tried, in turns, on the bytes that they take."""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.backend import CPU
from mxlite.backends.timed_call import fill, PATTERN
from mxlite.executor.measure.rehearsal import Rehearsal
from mxlite.executor.measure.timings import Seconds
from mxlite.executor.measure.trial import Trial
from mxlite.memplan import MemoryPlan, plan_memory
from tests.executor.timed import calibration, chain, own_cache, Place, settled, trials  # noqa: F401


def rehearsed(monkeypatch, net, **shapes):
    """The step that was lowered for `net`, and what was made of it in steps."""
    found, in_steps = [], calibration.in_steps

    def look(lowered, budget):
        found.append((lowered, budget, in_steps(lowered, budget)))
        return found[-1][2]

    monkeypatch.setattr(calibration, "in_steps", look)
    net.calibrate(**(shapes or {"data": (16, 32)}))
    (one,) = found
    return one


def test_each_call_of_a_step_is_timed_where_it_stands_in_two_plans(monkeypatch):
    made = []

    class Looked(Rehearsal):
        def __init__(self, lowered, plans):
            made.append(list(plans))
            super().__init__(lowered, plans)

    monkeypatch.setattr(calibration, "Rehearsal", Looked)
    lowered, budget, seen = rehearsed(monkeypatch, chain(8))
    keep, least = made[0]
    assert budget is None and keep.recomputed == 0 < least.recomputed
    assert least.arena_bytes < keep.arena_bytes
    assert set(seen) == set(calibration.distinct_calls(lowered))
    assert all(0 < s.warm <= s.usual for s in seen.values())
    problem = chain(8).memory_plan(data=(16, 32), device="measured").problem
    assert {t.seconds for t in problem.tasks} == {s.usual for s in seen.values()}


def test_a_step_is_run_on_the_bytes_of_its_plan_and_gives_the_numbers_of_each_plan(monkeypatch):
    lowered, _, _ = rehearsed(monkeypatch, chain(8))
    keep = plan_memory(lowered.problem)
    least = calibration.frontier_of(lowered.problem).least()
    taken = []
    empty = type(lowered.backend).empty
    monkeypatch.setattr(type(lowered.backend), "empty", lambda self, n: taken.append(n) or empty(self, n))
    rehearsal = Rehearsal(lowered, [keep, least])
    assert sum(taken) <= keep.peak_bytes  # what is padded in a program is not here
    gradients = []
    for p, plan in enumerate((keep, least)):
        times = rehearsal.turn(p)
        assert len(times) == len(plan.schedule.task) and all(t > 0 for t in times)
        assert rehearsal.left_out(p) == []
        gradients.append({k: a.copy() for k, a in rehearsal._arrays.items() if k[0] == "grad"})
    assert gradients[0] and all((gradients[0][k] == gradients[1][k]).all() for k in gradients[0])


def test_no_more_than_the_budget_is_taken_to_run_steps(monkeypatch):
    net, most = chain(8), []
    whole = net.memory_plan(data=(16, 32))
    budget = whole.problem.fixed_total + whole.arena_bytes // 2

    def looked(kind):
        def make(lowered, plans):
            most.append(max(plan.peak_bytes for plan in plans))
            return kind(lowered, plans)

        return make

    monkeypatch.setattr(calibration, "Rehearsal", looked(Rehearsal))
    monkeypatch.setattr(trials, "Trial", looked(Trial))
    assert net.memory_plan(data=(16, 32), device="measured", memory_budget=budget).peak_bytes <= budget
    assert len(most) == 2 and max(most) <= budget  # two plans for their calls, then the plan that was chosen


def test_a_plan_that_is_bound_has_been_tried_once(monkeypatch):
    tried, ask = [], {"data": (16, 32), "device": "measured"}
    found = trials.in_turns

    def look(make, steps, rounds):
        tried.append(sum(len(plans) for _, plans in steps))
        rows, plans = found(make, steps, rounds), [plan for _, plans in steps for plan in plans]
        if make is Rehearsal:
            return rows
        lengths = [len(plan.schedule.task) for plan in plans]
        return [row._replace(turns=[float(n) for _ in row.turns]) for row, n in zip(rows, lengths)]

    monkeypatch.setattr(trials, "MOST_OVER", 1e9)
    monkeypatch.setattr(trials, "in_turns", look)
    monkeypatch.setattr(calibration, "in_turns", look)
    net = chain(8)
    plan = net.memory_plan(**ask)
    assert tried == [2, 1]
    assert plan.predicted_seconds == plan.rehearsed_seconds == len(plan.schedule.task)
    assert plan.predicted_extra_time == 0.0 and plan.modelled_seconds > 0
    assert net.simple_bind(mx.cpu(), **ask).memory_plan.rehearsed_seconds == plan.rehearsed_seconds
    assert tried == [2, 1]
    budget = plan.problem.fixed_total + plan.arena_bytes // 2
    less = net.memory_plan(memory_budget=budget, **ask)
    assert less.predicted_seconds == len(less.schedule.task) and tried == [2, 1, 1]
    assert MemoryPlan.from_json(less.to_json()).predicted_seconds == less.predicted_seconds
    assert net.memory_plan(data=(16, 32)).rehearsed_seconds == 0.0


def test_of_many_steps_of_a_plan_the_median_counts(monkeypatch):
    def in_turns(make, steps, rounds):
        """Some steps are disturbed, and some are lucky."""
        seconds = [9.0, 2.0, 2.0, 0.1, 2.0, 9.0, 0.2]
        return [trials.Tried(seconds, []) for _, plans in steps for _ in plans]

    monkeypatch.setattr(trials, "MOST_OVER", 1e9)
    monkeypatch.setattr(trials, "in_turns", in_turns)
    plan = chain().memory_plan(data=(16, 32), device="measured")
    assert plan.predicted_seconds == 2.0


def test_plans_are_compared_round_by_round():
    """Others leave one half of the machine in most rounds of the first plan, and few of the second."""
    slow = [1.0, 2.0, 2.0, 1.0, 2.0], [1.0, 1.0, 2.0, 1.0, 1.0]
    first, second = ([s * p for s in of] for of, p in zip(slow, (1.0, 1.5)))
    took = trials._seconds([first, second])
    assert took == [2.0, 2.0 * 1.5]


def test_scratch_arrays_hold_fractions_of_a_pattern_whatever_their_size():
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, np.float64):
        pattern = np.random.default_rng(1).uniform(0.5, 1.5, PATTERN).astype(dtype)
        for shape in ((), (0, 3), (7,), (PATTERN,), (2, PATTERN), (173, 101)):
            array = CPU.array(shape, np.dtype(dtype))
            fill(CPU, array)
            assert array.tobytes() == np.resize(pattern, shape).tobytes()


@pytest.mark.parametrize("most, disturbed", [(1e-6, True), (1e6, False)])
def test_a_try_far_above_what_the_kernels_say_was_disturbed(monkeypatch, most, disturbed):
    monkeypatch.setattr(trials, "MOST_OVER", most)
    monkeypatch.setattr(trials, "CALL_S", 0.0)
    plan = chain().memory_plan(data=(16, 32), device="measured")
    assert (plan.predicted_seconds == plan.modelled_seconds) == disturbed


def test_plans_that_were_disturbed_together_keep_what_they_took_against_one_another(monkeypatch):
    def in_turns(make, steps, rounds):
        """Others took the cores for ever longer."""
        plans = [plan for _, plans in steps for plan in plans]
        return [trials.Tried([len(p.schedule.task) * 2.0**r for r in range(5)], []) for p in plans]

    net = chain(8)
    monkeypatch.setattr(trials, "in_turns", in_turns)
    whole = net.memory_plan(data=(16, 32), device="measured")
    budget = whole.problem.fixed_total + whole.arena_bytes // 2
    keep, less = net.calibrate(data=(16, 32), budgets=[budget]).plans
    calls = len(keep.schedule.task), len(less.schedule.task)
    assert less.predicted_seconds / keep.predicted_seconds == pytest.approx(calls[1] / calls[0])
    together = keep.modelled_seconds + less.modelled_seconds
    assert keep.predicted_seconds + less.predicted_seconds == pytest.approx(together)


def test_a_plan_whose_calls_cannot_all_be_run_takes_their_modelled_times_for_them(monkeypatch):
    monkeypatch.setattr(
        trials,
        "in_turns",
        lambda make, steps, rounds: [
            trials.Tried([0.0] * 3, list(range(len(p.schedule.task)))) for _, plans in steps for p in plans
        ],
    )
    plan = chain().memory_plan(data=(16, 32), device="measured")
    assert plan.predicted_seconds == pytest.approx(plan.modelled_seconds)


def test_plans_of_budgets_are_tried_in_turns_and_known_when_they_are_bound(monkeypatch):
    ran = []

    class Looked(Trial):
        def turn(self, p):
            ran.append((self, p))
            return 1.0 / (100 + len(ran)) * len(self._programs[p].plan.schedule.task)

    net, ask = chain(8), {"data": (16, 32)}
    whole = net.memory_plan(device="measured", **ask)
    arena, fixed = whole.arena_bytes, whole.problem.fixed_total
    budgets = [fixed + arena * 3 // 4, fixed + arena // 2]
    monkeypatch.setattr(trials, "MOST_OVER", 1e9)
    monkeypatch.setattr(trials, "Trial", Looked)
    done = net.calibrate(budgets=[*budgets, f"{whole.peak_bytes + 1}B"], **ask)
    of = done.plans
    assert [p.budget_bytes for p in of] == [None, *budgets, whole.peak_bytes + 1]
    assert all(p.peak_bytes <= b for p, b in zip(of[1:], budgets))
    turns = ran[-3 * trials.ROUNDS :]  # the last plan is the first again
    assert len(set(turns)) == 3 and turns == turns[:3] * (len(turns) // 3)
    assert of[3].predicted_seconds == of[0].predicted_seconds
    ratio = of[2].predicted_seconds / of[0].predicted_seconds
    assert ratio == pytest.approx(len(of[2].schedule.task) / len(of[0].schedule.task), rel=0.05)
    assert str(done).splitlines()[3].endswith(f"ms, {100 * (ratio - 1):+.1f} %")
    monkeypatch.setattr(trials, "in_turns", None)  # nothing is tried again
    for plan, budget in zip(of, (None, *budgets)):
        bound = net.simple_bind(mx.cpu(), device="measured", memory_budget=budget, **ask).memory_plan
        assert bound.predicted_seconds == plan.predicted_seconds


def test_a_budget_that_is_too_small_is_refused_before_anything_is_tried(monkeypatch):
    monkeypatch.setattr(trials, "tried_in_turns", None)
    with pytest.raises(mx.MemoryBudgetError):
        chain(4).calibrate(budgets=["1GiB", 1], data=(16, 32))


def test_what_is_said_to_work_works_whichever_budget_was_asked_for_first(monkeypatch):
    net, ask, made = chain(8), {"data": (64, 32), "device": "measured"}, []

    class Looked(Rehearsal):
        def __init__(self, lowered, plans):
            made.append([plan.peak_bytes for plan in plans])
            super().__init__(lowered, plans)

    monkeypatch.setattr(calibration, "Rehearsal", Looked)
    with pytest.raises(mx.MemoryBudgetError) as no:
        net.memory_plan(memory_budget=1, **ask)
    least = no.value.least_feasible_bytes
    assert len(made) == 1  # or times would change, and with them the least, when there is a budget that works
    for budget in (least, least + 5000, least):
        assert net.memory_plan(memory_budget=budget, **ask).peak_bytes <= budget
    with pytest.raises(mx.MemoryBudgetError) as again:
        net.memory_plan(memory_budget=1, **ask)
    assert again.value.least_feasible_bytes == least


def test_without_room_for_a_step_calls_alone_count(monkeypatch):
    class Full(Rehearsal):
        def __init__(self, lowered, plans):
            raise mx.OutOfMemoryError("full")

    monkeypatch.setattr(calibration, "Rehearsal", Full)
    tasks = chain().memory_plan(data=(16, 32), device="measured").problem.tasks
    assert all(t.seconds == t.cold for t in tasks)


def test_a_call_that_fails_in_a_step_is_left_out(monkeypatch):
    def fails():
        raise ValueError("refused")

    bound = sys.modules["mxlite.executor.measure.rehearsal"].call_of
    monkeypatch.setattr(
        "mxlite.executor.measure.rehearsal.call_of",
        lambda lowered, plan, s, *rest: fails if s == 2 else bound(lowered, plan, s, *rest),
    )
    _, _, seen = rehearsed(monkeypatch, chain())
    assert seen


ALONE = {"a": Seconds(5.0, 1.0), "b": Seconds(3.0, 2.0)}


def places(share, plans):
    """Calls as (key, lost) whose times are 10 s and `share` of what the cache matters to them alone."""
    matters = {key: share * (s.cold - s.warm) for key, s in ALONE.items()}
    return [[Place(key, lost, 10.0 + lost * matters[key]) for key, lost in plan] for plan in plans]


@pytest.mark.parametrize("share", [0.5, 1.0, 1.5])
def test_times_in_steps_are_found_again_whatever_the_cache_matters_there(share):
    plans = places(
        share, ([("a", 0.9), ("b", 0.5), ("a", 0.7)], [("a", 0.1), ("b", 0.2), ("a", 0.3), ("a", 0.5)])
    )
    found = settled(plans, ALONE)
    assert found["a"].warm == pytest.approx(10.0) and found["a"].cold == pytest.approx(10.0 + 4 * share)
    assert found["b"].warm == pytest.approx(10.0) and found["b"].cold == pytest.approx(10.0 + share)
    for key, s in found.items():
        assert s.usual == pytest.approx(np.mean([p.seconds for plan in plans for p in plan if p.key == key]))


def test_what_the_cache_matters_in_steps_has_bounds():
    wild = [[Place("a", 0.9, 1000.0)], [Place("a", 0.1, 1.0)]]
    assert settled(wild, ALONE)["a"].cold - settled(wild, ALONE)["a"].warm == pytest.approx(6.0)
    equal = [[Place("a", 0.5, 9.0)], [Place("a", 0.5, 8.0)]]
    assert settled(equal, ALONE)["a"] == (8.5 + 2.0, 8.5 - 2.0, 8.5)
    cheap = [[Place("a", 1.0, 1.0)], [Place("a", 1.0, 1.0)]]
    assert settled(cheap, ALONE)["a"] == (1.0, 0.25, 1.0)
