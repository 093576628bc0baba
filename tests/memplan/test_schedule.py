"""Rules of the planner on problems of a few tasks: what runs again, updates, in place, budgets."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mxlite.core import MemoryBudgetError
from mxlite.core.cached import Remembered
from mxlite.executor.plan.lazy_steps import LazySteps
from mxlite.memplan import (
    check,
    find_cuts,
    HostLink,
    LiveRange,
    make_plan,
    make_schedule,
    nested,
    partial,
    place,
    Placement,
    plan as plan_module,
    plan_memory,
    Problem,
    Task,
    Value,
)
from mxlite.memplan.placement.arena import greedy_by_size, lowest_offset_first
from mxlite.memplan.remat import search as search_module
from mxlite.memplan.remat.search import frontier_of
from mxlite.memplan.remat.split import by_bytes, cheap
from tests.memplan.problems import chain, random_problem, residual


def ran(plan):
    return [plan.problem.tasks[t].name for t in plan.schedule.task]


def again(plan):
    return {plan.problem.tasks[t].name for t, k in zip(plan.schedule.task, plan.schedule.copy) if k}


# -- what may run again ----------------------------------------------------------------------------------


def recomputed_layer(**options):
    """data -> f -> loss; backward reads f's output."""
    values = (
        Value("data", 64, True),
        Value("f", 640),
        Value("y", 64, True),
        Value("d", 64, True),
        Value("s", 64, True),
    )
    tasks = (
        Task("f", "op", (0, 4), (1,), **options),
        Task("y", "op", (1,), (2,)),
        Task("grad", "op", (1, 2), (3,)),
    )
    return Problem(tasks, values, 2)


def test_a_layer_runs_again_unless_it_must_not():
    assert again(make_plan(recomputed_layer(), [1, 0])) == {"f"}
    assert again(make_plan(recomputed_layer(recomputable=False), [1, 0])) == set()
    assert again(make_plan(recomputed_layer(mutates=(4,)), [1, 0])) == set()


def test_what_reads_storage_that_backward_has_changed_is_kept():
    """BatchNorm's running statistics move in backward: a copy behind that must not read them."""
    values = (
        Value("data", 64, True), Value("moving", 64, True), Value("a", 640), Value("y", 64, True),
        Value("d", 640), Value("da", 64, True),
    )  # fmt: skip
    tasks = (
        Task("a", "bn", (0, 1), (2,)),
        Task("y", "op", (2,), (3,)),
        Task("d", "op", (3, 1), (4,), mutates=(1,)),
        Task("da", "op", (2, 4), (5,)),
    )
    plan = make_plan(Problem(tasks, values, 2), [1, 0])
    check(plan, plan.predecessors)
    assert again(plan) == set()
    unchanged = (*tasks[:2], replace(tasks[2], mutates=()), tasks[3])
    assert again(make_plan(Problem(unchanged, values, 2), [1, 0])) == {"a"}


@pytest.mark.parametrize("seed", range(8))
def test_runs_read_what_is_there_and_nothing_runs_that_is(seed):
    """Counts of any height: a read means the newest run; what stays, after `count` runs, never runs again."""
    problem = random_problem(seed, 14) if seed else chain(12)
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, problem.num_forward).tolist()
    plan = make_plan(problem, counts)
    check(plan, plan.predecessors)
    schedule = plan.schedule
    made = {o: k for k, row in zip(schedule.copy, schedule.outputs) for o in row if o >= 0}
    newest = [0] * problem.num_forward
    for t, k, row in zip(schedule.task, schedule.copy, schedule.inputs):
        for i in row:
            p = problem.arena_producer[schedule.value_of[i]]
            if 0 <= p < problem.num_forward:
                assert made[i] == newest[p]
        if k:
            assert k == newest[t] + 1 <= counts[t]
            newest[t] = k
    assert max(schedule.copy) > 1


def test_a_count_is_the_number_of_runs_for_the_moment():
    """The first run of layer 1 makes layer 2 and is gone; the second stays for the backward tasks."""
    problem = chain(4)
    schedule = make_plan(problem, [0, 0, 2, 2, 1, 1, 0, 0, 0]).schedule
    names = [problem.tasks[t].name + "*" * k for t, k in zip(schedule.task, schedule.copy)]
    assert names[problem.num_forward :] == [
        "loss_backward", "relu3_0_backward",
        "conv1_0*", "relu1_0*", "conv2_0*", "relu2_0*", "conv3_0_backward", "relu2_0_backward",
        "conv1_0**", "relu1_0**", "conv2_0_backward", "relu1_0_backward", "conv1_0_backward",
        "relu0_0_backward", "conv0_0_backward",
    ]  # fmt: skip


# -- updates ---------------------------------------------------------------------------------------------


def test_an_update_waits_for_later_readers_of_the_old_weight():
    """The gradient is there early, but another backward task still reads the weight."""
    values = (
        Value("x", 64, True),
        Value("w", 64, True),
        Value("a", 64),
        Value("dw", 64),
        Value("dx", 64, True),
    )
    tasks = (
        Task("a", "op", (0, 1), (2,)),
        Task("dw", "op", (0,), (3,)),
        Task("dx", "op", (2, 1), (4,)),
        Task("update", "sgd", (1, 3), (), mutates=(1,), update=True),
    )
    plan = make_plan(Problem(tasks, values, 1), None)
    assert ran(plan) == ["a", "dw", "dx", "update"]
    check(plan, plan.predecessors)


def test_an_update_waits_for_a_forward_task_that_runs_again_with_the_old_weight():
    values = (
        Value("x", 64, True), Value("w", 64, True), Value("a", 640), Value("y", 64, True),
        Value("dw", 64), Value("dx", 64, True),
    )  # fmt: skip
    tasks = (
        Task("a", "op", (0, 1), (2,)),
        Task("y", "op", (2,), (3,)),
        Task("dw", "op", (0,), (4,)),
        Task("dx", "op", (2,), (5,)),
        Task("update", "sgd", (1, 4), (), mutates=(1,), update=True),
    )
    plan = make_plan(Problem(tasks, values, 2), [1, 0])
    assert ran(plan) == ["a", "y", "dw", "a", "update", "dx"]
    check(plan, plan.predecessors)


def test_an_update_waits_for_its_gradient():
    problem = residual(4, 1, update=True)
    for counts in ([0] * problem.num_forward, [1] * problem.num_forward):
        plan = make_plan(problem, counts)
        check(plan, plan.predecessors)
        names = ran(plan)
        for i in range(4):
            assert names.index(f"w{i}_0_update") > names.index(f"conv{i}_0_backward")


# -- in place --------------------------------------------------------------------------------------------


def joined(task, sizes=(64, 64, 64), readers=()):
    values = tuple(Value(n, s) for n, s in zip("abo", sizes)) + (Value("y", 64, True),)
    tasks = (
        Task("a", "src", (), (0,)),
        Task("b", "src", (), (1,)),
        task,
        *readers,
        Task("y", "op", (2,), (3,)),
    )
    plan = make_plan(Problem(tasks, values, len(tasks)), None)
    check(plan, plan.predecessors)
    return {r.members for r in plan.liveness.ranges if len(r.members) > 1}


def test_the_best_dead_donor_of_the_same_size_is_overwritten():
    pairs = ((2, 0), (2, 1))
    assert joined(Task("o", "add", (0, 1), (2,), pairs)) == {(0, 2)}
    assert joined(Task("o", "add", (0, 1), (2,), pairs[::-1])) == {(1, 2)}
    assert joined(Task("o", "add", (0, 1), (2,), pairs), sizes=(128, 64, 64)) == {(1, 2)}
    assert joined(Task("o", "add", (0, 1), (2,), pairs), readers=(Task("r", "op", (0,), ()),)) == {(1, 2)}
    assert joined(Task("o", "add", (0, 1), (2,))) == set()


def test_an_input_that_is_read_twice_by_the_task_is_not_overwritten():
    """``dot(a, a)`` may do elementwise work on one while it still needs the other."""
    assert joined(Task("o", "dot", (0, 0), (2,), ((2, 0),))) == set()


def test_two_outputs_never_overwrite_one_input():
    values = (Value("a", 64), Value("o", 64), Value("p", 64), Value("y", 64, True))
    tasks = (
        Task("a", "src", (), (0,)),
        Task("both", "op", (0,), (1, 2), ((1, 0), (2, 0))),
        Task("y", "op", (1, 2), (3,)),
    )
    plan = make_plan(Problem(tasks, values, 3), None)
    check(plan, plan.predecessors)
    assert plan.arena_bytes == 128


# -- marks -----------------------------------------------------------------------------------------------


def test_what_the_user_marked_is_dropped_at_every_budget():
    problem = residual(8, 2)
    tasks = tuple(replace(t, mirror=t.name == "relu3_0") for t in problem.tasks)
    marked = replace(problem, tasks=tasks)
    cuts = find_cuts(marked)
    at = next(t for t, task in enumerate(tasks) if task.name == "relu3_0")
    assert partial(cuts, 0, 0.0) == [int(t == at) for t in range(marked.num_forward)]
    assert cheap(marked)[at] == 1
    heavy = next(t for t, task in enumerate(tasks) if task.name == "conv3_0")
    assert cheap(problem)[heavy] == 0
    tasks = tuple(replace(t, mirror=t.name == "conv3_0") for t in problem.tasks)
    assert cheap(replace(problem, tasks=tasks))[heavy] == 1
    assert "relu3_0" in again(plan_memory(marked, plan_memory(problem).peak_bytes))


# -- segments and arenas ---------------------------------------------------------------------------------


def test_segments_by_bytes_end_when_they_are_full_and_the_last_one_is_kept():
    problem = residual(100, 2)
    cuts = find_cuts(problem)
    total = sum(1024 for t in problem.tasks[: problem.num_forward] if t.op != "loss")
    for budget in (8_000, 32_000, 64_000):
        counts = by_bytes(cuts, budget)
        kept = [c for c, at in enumerate(cuts.at) if all(counts[t] == 0 for t in cuts.kept[c])]
        inner = [c for c in kept if any(counts[t] for t in range(cuts.at[c] + 1, problem.num_forward))]
        assert len(inner) <= total / budget
        assert len(inner) >= total / (budget + 4 * 1024) - 2
        last = max(t for t, k in enumerate(counts) if k)
        assert any(cuts.at[c] in (last, last + 1) for c in kept)
        assert counts[-1] == 0


def test_the_last_stretch_of_a_recursion_is_not_dropped():
    """Backward starts there: it would be run again at once."""
    problem = chain(64)
    cuts = find_cuts(problem)
    for radix, levels in ((4, 2), (2, 3), (3, 2)):
        counts = nested(cuts, radix, levels)
        assert max(counts) == levels
        assert set(counts[cuts.at[-1] + 1 :]) == {0}


def test_ranges_that_only_touch_share_their_bytes():
    ranges = [LiveRange((0,), 0, 2, 640), LiveRange((1,), 2, 4, 640), LiveRange((2,), 1, 3, 64)]
    for how in (greedy_by_size, place):
        assert how(ranges).nbytes == 704
        assert how(ranges[:2]).offsets == (0, 0)


def test_a_gap_of_exactly_the_size_is_used():
    """[0, 64) and [128, 192) are taken when the third comes; between them is room for one line."""
    ranges = [
        LiveRange((0,), 0, 9, 64), LiveRange((1,), 0, 3, 64), LiveRange((2,), 0, 9, 64),
        LiveRange((3,), 4, 6, 64),
    ]  # fmt: skip
    assert greedy_by_size(ranges).nbytes == 192


def test_place_is_the_best_of_its_heuristics_and_better_than_the_first_alone():
    rng = np.random.default_rng(5)
    better = 0
    for _ in range(60):
        ranges = []
        for i in range(25):
            a = int(rng.integers(0, 20))
            ranges.append(LiveRange((i,), a, a + int(rng.integers(1, 9)), 64 * int(rng.integers(1, 9))))
        found, first = place(ranges).nbytes, greedy_by_size(ranges).nbytes
        assert found <= min(first, lowest_offset_first(ranges, "area").nbytes)
        better += found < first
    assert better > 5


# -- budgets ---------------------------------------------------------------------------------------------


def test_a_budget_that_holds_everything_costs_no_time_one_byte_less_does():
    for problem in (residual(12, 2), chain(20, update=True)):
        full = plan_memory(problem)
        exact = plan_memory(problem, full.peak_bytes)
        assert exact.recomputed == 0
        assert exact.offsets == full.offsets
        less = plan_memory(problem, full.peak_bytes - 1)
        assert less.recomputed > 0
        assert less.peak_bytes < full.peak_bytes
        assert less.keep_all_peak_bytes == exact.keep_all_peak_bytes == full.peak_bytes


def test_the_found_size_is_a_budget_that_finds_it_again():
    problem = residual(12, 2)
    plan = plan_memory(problem, int(plan_memory(problem).peak_bytes * 0.7))
    same = plan_memory(problem, plan.peak_bytes)
    assert same.peak_bytes <= plan.peak_bytes
    assert same.extra_time <= plan.extra_time


def test_only_what_is_placed_counts_not_what_the_search_hopes(monkeypatch):
    """With a placer that leaves a gap under everything, a budget is still kept or refused."""
    honest = plan_module.place

    def wasteful(ranges, lower_bound=0):
        placed = honest(ranges, lower_bound)
        return Placement(tuple(o + 640 for o in placed.offsets), placed.nbytes + 640)

    monkeypatch.setattr(plan_module, "place", wasteful)
    monkeypatch.setattr(search_module, "_plans", Remembered(8))
    problem = residual(12, 2)
    full = plan_memory(problem).peak_bytes
    kept = 0
    for budget in range(full - 8000, full, 500):
        try:
            assert plan_memory(problem, budget).peak_bytes <= budget
            kept += 1
        except MemoryBudgetError as error:
            assert plan_memory(problem, error.least_feasible_bytes).peak_bytes <= error.least_feasible_bytes
    assert kept > 3


def test_the_pass_that_shares_the_arena_counts_against_the_budget():
    problem = residual(12, 2)
    full = plan_memory(problem).peak_bytes
    big = replace(problem, least_arena=10 * full, least_bound=10 * full)
    plan = plan_memory(big)
    assert plan.arena_bytes == 10 * full
    assert plan.peak_bytes == plan.lower_bound_bytes == problem.fixed_total + 10 * full
    with pytest.raises(MemoryBudgetError) as caught:
        plan_memory(big, full)
    assert caught.value.least_feasible_bytes == plan.peak_bytes == caught.value.lower_bound_bytes
    assert sum(plan.breakdown.values()) == plan.peak_bytes


def test_remembered_plans_are_told_apart():
    """By problem, budget, strategy and what else needs the arena."""
    problem = residual(6, 2)
    first = plan_memory(problem)
    assert (
        plan_memory(problem, strategy="none").peak_bytes > plan_memory(problem, strategy="inplace").peak_bytes
    )
    assert plan_memory(problem).peak_bytes == first.peak_bytes
    assert plan_memory(replace(problem, least_arena=1 << 20)).arena_bytes == 1 << 20
    assert plan_memory(replace(problem, fixed_bytes={"arguments": 7})).problem.fixed_total == 7
    assert plan_memory(problem, first.peak_bytes).budget_bytes == first.peak_bytes
    assert plan_memory(problem).budget_bytes is None


def test_the_refusal_names_a_much_smaller_budget_that_works():
    problem = residual(30, 2)
    full = plan_memory(problem).peak_bytes
    with pytest.raises(MemoryBudgetError) as caught:
        plan_memory(problem, problem.lower_bound_bytes - 1)
    assert caught.value.least_feasible_bytes < 0.6 * full


def test_deep_recomputation_is_tried_when_flat_does_not_fit():
    problem = chain(96, update=True)
    with pytest.raises(MemoryBudgetError) as caught:
        plan_memory(problem, problem.lower_bound_bytes - 1)
    plan = plan_memory(problem, caught.value.least_feasible_bytes)
    assert max(plan.schedule.copy) >= 2
    assert plan.peak_bytes == caught.value.least_feasible_bytes == problem.lower_bound_bytes


def test_a_plan_with_a_budget_is_the_fastest_of_what_fits():
    """More bytes never cost more time, but for a point of what the search is allowed to miss."""
    problem = residual(20, 2)
    full = plan_memory(problem).peak_bytes
    times = [plan_memory(problem, int(full * share)).extra_time for share in (0.5, 0.65, 0.8, 0.95)]
    assert all(later <= earlier + 0.01 for earlier, later in pairwise(times))
    assert times[-1] < 0.1
    assert times[-1] > 0


def test_the_bound_of_a_single_task_counts_its_workspace_and_what_is_in_place():
    values = (Value("x", 64, True), Value("a", 640), Value("b", 640), Value("y", 64, True))
    tasks = (
        Task("a", "op", (0,), (1,)),
        Task("b", "op", (1,), (2,), ((2, 1),), workspace=128),
        Task("y", "op", (2,), (3,)),
    )
    problem = Problem(tasks, values, 3, {"arguments": 128})
    assert problem.task_bound == (640 + 128, 1)
    assert make_plan(problem, None).peak_bytes == problem.lower_bound_bytes == 128 + 640 + 128
    apart = replace(problem, tasks=(tasks[0], replace(tasks[1], in_place=()), tasks[2]))
    assert apart.task_bound == (1280 + 128, 1)


def test_what_only_backward_reads_may_be_made_by_another_run_than_what_forward_reads():
    """As a mask beside the result of a dropout: no run needs room for both."""
    names = ("x", "out", "mask", "y", "dy", "dx")
    values = tuple(Value(n, 6400 if n in ("out", "mask") else 64, n in ("x", "dx")) for n in names)
    drop = Task("drop", "op", (0,), (1, 2), seconds=1)
    tasks = (
        drop,
        Task("y", "op", (1,), (3,), seconds=1),
        Task("y_backward", "op", (3,), (4,), seconds=1),
        Task("drop_backward", "op", (4, 2), (5,), seconds=1),
    )
    problem = Problem(tasks, values, 2)
    assert problem.task_bound == (6464, 1)
    with pytest.raises(MemoryBudgetError) as caught:
        plan_memory(problem, 1)
    assert caught.value.least_feasible_bytes == caught.value.lower_bound_bytes == 6464
    for changed in (replace(drop, recomputable=False), replace(drop, always=(1, 2))):
        apart = replace(problem, tasks=(changed, *tasks[1:]))
        assert apart.task_bound == (12800, 0)
        assert plan_memory(apart, 12800 + 128).peak_bytes >= 12800


def test_a_breakdown_names_the_workspace_at_the_fullest_step():
    values = (Value("x", 64, True), Value("a", 640), Value("y", 64, True))
    tasks = (Task("a", "op", (0,), (1,)), Task("y", "op", (1,), (2,), workspace=100))
    plan = make_plan(Problem(tasks, values, 2, {"arguments": 64, "outputs": 64, "optimizer": 32}), None)
    assert plan.breakdown == {
        "arguments": 64, "gradients": 0, "auxiliary": 0, "optimizer": 32, "inputs": 0, "outputs": 64,
        "activations": 640, "workspace": 128,
    }  # fmt: skip
    assert plan.peak_bytes == 160 + 768


def test_schedules_of_random_problems_drop_what_nobody_reads():
    for seed in range(30):
        problem = random_problem(seed, forward=12)
        schedule = make_schedule(problem, [seed % 3] * problem.num_forward)
        read = {i for row in schedule.inputs for i in row}
        for row in schedule.outputs:
            for o in row:
                assert o < 0 or o in read or problem.values[schedule.value_of[o]].fixed


def test_an_output_that_each_run_makes_is_there_in_a_second_run_too():
    """Of a's outputs backward reads only value 2, yet a second run of a makes value 1 as well."""
    tasks = (
        Task("a", "a", (0,), (1, 2), always=(1,)),
        Task("b", "b", (1,), (3,)),
        Task("c", "c", (2, 3), (4,)),
    )
    values = (Value("x", 64, True), *(Value(f"v{i}", 64) for i in range(1, 4)), Value("g", 64, True))
    schedule = make_schedule(Problem(tasks, values, 2), [1, 0])
    runs = [row for t, row in zip(schedule.task, schedule.outputs) if t == 0]
    assert len(runs) == 2 and all(o >= 0 for o in (runs[0][0], runs[1][0], runs[1][1])) and runs[0][1] == -1
    bare = Problem((replace(tasks[0], always=()), *tasks[1:]), values, 2)
    assert make_schedule(bare, [1, 0]).outputs[-2][0] == -1


def test_problems_that_differ_anywhere_have_digests_of_their_own():
    """By them plans are remembered, in the process and on disk."""
    problem = residual(2, 1)
    values = (*problem.values[:-1], replace(problem.values[-1], nbytes=problem.values[-1].nbytes + 1))
    tasks = (replace(problem.tasks[0], workspace=problem.tasks[0].workspace + 1), *problem.tasks[1:])
    slower = (replace(problem.tasks[0], seconds=10.5), *problem.tasks[1:])
    others = [
        replace(problem, values=values), replace(problem, tasks=tasks), replace(problem, tasks=slower),
        replace(problem, num_forward=problem.num_forward - 1), replace(problem, fixed_bytes={"arguments": 1}),
        replace(problem, least_arena=64), replace(problem, host=HostLink()),
        replace(problem, host=HostLink(capacity=1)), replace(problem, base_seconds=1.0),
        replace(problem, cache_bytes=64),
    ]  # fmt: skip
    assert len({p.digest for p in (problem, *others)}) == len(others) + 1
    assert replace(problem).digest == problem.digest


def test_of_several_steps_that_fit_the_fastest_is_taken():
    """The second makes again what takes hardly any time; both fit."""
    first = residual(3, 1)
    quick = tuple(replace(t, seconds=t.seconds / 100) if not t.update else t for t in first.tasks)
    second = replace(first, tasks=quick, base_seconds=first.step_seconds, instead="quickly")
    least = frontier_of(first).least().peak_bytes
    for order in ((first, second), (second, first)):
        plan = LazySteps(lambda order=order: order[0], lambda order=order: order).plan(least)
        assert plan.problem.instead == "quickly" and plan.peak_bytes <= least
