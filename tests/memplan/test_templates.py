"""Plans from templates: sound at every size, within their budgets, as small as plans from scratch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mxlite as mx
from mxlite.core.cached import Remembered
from mxlite.memplan import check, MemoryPlan, plan_memory, Problem, structure, Template
from mxlite.memplan.remat import search
from tests.memplan.problems import chain, random_problem, residual


def resized(problem: Problem, factor: float, seed: int | None = None) -> Problem:
    """The same structure with other sizes: all times `factor`, or, with a seed, each by its own."""
    rng = np.random.default_rng(seed)
    own = {}

    def size(nbytes: int) -> int:
        if nbytes not in own:
            own[nbytes] = max(1, round(nbytes * (factor if seed is None else factor * rng.uniform(0.5, 2))))
        return own[nbytes]

    values = tuple(replace(v, nbytes=size(v.nbytes) if v.nbytes else 0) for v in problem.values)
    tasks = tuple(
        replace(t, workspace=size(t.workspace) if t.workspace else 0, seconds=t.seconds * factor)
        for t in problem.tasks
    )
    return replace(problem, tasks=tasks, values=values)


def judged(plan: MemoryPlan, problem: Problem) -> MemoryPlan:
    assert plan.problem is problem
    check(plan, plan.predecessors)
    assert plan.placed_bytes >= plan.max_live_bytes
    return plan


@pytest.fixture
def searches(monkeypatch):
    """Counts plans that are made from nothing."""
    made = []
    real = search._search
    monkeypatch.setattr(search, "_search", lambda *a: made.append(a) or real(*a))
    monkeypatch.setattr(search, "_plans", Remembered(8))
    return made


@pytest.mark.parametrize("seed", range(40))
def test_plans_for_other_sizes_are_sound(seed):
    first = random_problem(seed)
    template = Template(plan_memory(first))
    for factor, own in ((2.0, None), (0.3, None), (1.0, seed), (3.0, seed + 100), (1.0, None)):
        problem = resized(first, factor, own)
        found = judged(plan_memory(problem, template=template), problem)
        scratch = plan_memory(problem)
        assert found.schedule == scratch.schedule
        assert found.liveness == scratch.liveness
        # As near to the bound as the first plan or the usual placing is.
        lost = template.first.placed_bytes / max(1, template.first.max_live_bytes)
        assert found.placed_bytes <= max(scratch.placed_bytes, lost * found.max_live_bytes)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [0.9, 0.6])
def test_plans_within_a_budget_are_sound_and_within(seed, share):
    first = [residual(6, 2, 4096), residual(5, 3, 1000, update=True), chain(30, 2000)][seed % 3]
    full = plan_memory(first)
    budget = first.fixed_total + int(full.arena_bytes * share)
    template = Template(plan_memory(first, budget))
    for factor, own in ((1.2, None), (0.9, None), (0.5, None), (1.0, seed)):
        problem = resized(first, factor, own)
        try:
            found = plan_memory(problem, budget, template=template)
        except mx.MemoryBudgetError:
            with pytest.raises(mx.MemoryBudgetError):
                plan_memory(problem, budget)
            continue
        judged(found, problem)
        assert found.peak_bytes <= budget == found.budget_bytes
        assert found.keep_all_peak_bytes == plan_memory(problem).peak_bytes
        if found.keep_all_peak_bytes <= budget:
            assert found.recomputed == 0


def test_a_uniform_change_of_size_costs_no_byte():
    first = plan_memory(residual(8, 2, 64 * 100))
    for factor in (2, 3, 10):
        problem = resized(first.problem, factor)
        found = plan_memory(problem, template=first)
        assert found.placed_bytes == found.max_live_bytes == factor * first.placed_bytes


def test_no_search_is_made_where_the_template_does(searches):
    first = residual(8, 2, 6400)
    budget = int(plan_memory(first).peak_bytes * 0.8)
    template = Template(plan_memory(first, budget))
    searches.clear()
    for factor in (1.1, 0.9, 0.2):
        found = plan_memory(resized(first, factor), budget, template=template)
        assert (found.recomputed > 0) == (factor > 0.5)
    assert not searches


def test_a_larger_budget_or_batch_moves_along_the_ladder():
    first = residual(10, 2, 6400)
    full = plan_memory(first)
    budget = first.fixed_total + int(0.7 * full.arena_bytes)
    template = Template(plan_memory(first, budget))
    extra = [
        plan_memory(resized(first, f), budget, template=template).extra_time for f in (1.2, 1.0, 0.8, 0.6)
    ]
    assert extra == sorted(extra, reverse=True)
    assert extra[-1] == 0 < extra[0]


def another_input(problem: Problem) -> Problem:
    tasks = list(problem.tasks)
    tasks[-1] = replace(tasks[-1], inputs=(*tasks[-1].inputs, 0))
    return replace(problem, tasks=tuple(tasks))


def change(**fields):
    def changed(problem: Problem) -> Problem:
        return replace(problem, tasks=(replace(problem.tasks[0], **fields), *problem.tasks[1:]))

    return changed


@pytest.mark.parametrize("changed", [
    another_input,
    change(recomputable=False),
    change(mirror=True),
    change(in_place=((3, 0),)),
    change(op="another"),
    lambda p: replace(p, num_forward=p.num_forward - 1),
    lambda p: replace(p, values=(*p.values, p.values[-1])),
    lambda p: replace(p, values=(p.values[0], replace(p.values[1], fixed=False), *p.values[2:])),
])  # fmt: skip
def test_another_structure_is_refused(changed, searches):
    first = plan_memory(residual(3, 1))
    other = changed(first.problem)
    assert structure(other) != structure(first.problem)
    assert Template(first).plan(other, None, search.frontier_of) is None
    searches.clear()
    plan_memory(other, template=first)
    assert len(searches) == 1


def test_what_differs_in_sizes_names_and_seconds_only_has_one_structure():
    first = residual(3, 1)
    other = resized(first, 3.0, seed=1)
    other = replace(other, tasks=tuple(replace(t, name=f"x{t.name}", kernel="k") for t in other.tasks))
    assert structure(other) == structure(first)


def test_outputs_that_no_longer_fit_over_their_inputs_get_bytes_of_their_own():
    first = plan_memory(residual(4, 1))
    values = [
        replace(v, nbytes=v.nbytes // 2) if v.name.startswith("relu") else v for v in first.problem.values
    ]
    problem = replace(first.problem, values=tuple(values))
    found = judged(plan_memory(problem, template=first), problem)
    assert len(found.liveness.ranges) > len(first.liveness.ranges)


def test_a_workspace_that_appears_or_vanishes_is_placed():
    first = plan_memory(residual(4, 1))
    for workspace in (0, 5000):
        tasks = tuple(replace(t, workspace=workspace) for t in first.problem.tasks)
        problem = replace(first.problem, tasks=tasks)
        found = judged(plan_memory(problem, template=first), problem)
        assert bool(found.liveness.workspace_of) == bool(workspace)


def test_marks_are_kept():
    first = residual(4, 2)
    tasks = tuple(replace(t, mirror=True) if t.cheap else t for t in first.tasks)
    first = plan_memory(replace(first, tasks=tasks))
    problem = resized(first.problem, 2.0)
    found = judged(plan_memory(problem, template=first), problem)
    assert found.schedule.copy == first.schedule.copy
    assert found.recomputed > 0


def test_plans_without_sharing_and_plans_with_a_host_are_made_from_nothing(searches):
    first = plan_memory(residual(4, 1))
    problem = resized(first.problem, 2.0)
    searches.clear()
    plan = plan_memory(problem, strategy="none", template=first)
    assert plan.placed_bytes > first.placed_bytes * 2
    assert len(searches) == 1
    hosted = replace(problem, host=mx.memplan.HostLink())
    assert Template(first).plan(hosted, None, search.frontier_of) is None


def test_a_template_changes_no_plan_that_did_not_ask_for_one():
    """Which sizes came first must not matter to anybody else."""
    first = residual(6, 2)
    budget = int(plan_memory(first).peak_bytes * 0.8)
    problem = resized(first, 1.1)
    before = plan_memory(problem, budget)
    plan_memory(problem, budget, template=plan_memory(resized(first, 0.9), budget))
    search._plans.clear()
    assert plan_memory(problem, budget) == before


def test_a_plan_whose_placed_arena_is_too_large_is_not_taken(monkeypatch):
    first = residual(6, 2, 6400)
    budget = int(plan_memory(first).peak_bytes * 0.8)
    template = Template(plan_memory(first, budget))
    problem = resized(first, 1.05)
    assert template.plan(problem, budget, search.frontier_of) is not None
    real = Template._with_choice

    def with_gaps(*given):
        plan = real(*given)
        return replace(plan, placed_bytes=plan.placed_bytes + budget) if plan.recomputed else plan

    monkeypatch.setattr(Template, "_with_choice", with_gaps)
    assert template.plan(problem, budget, search.frontier_of) is None


def test_a_reshaped_step_has_the_order_of_the_first_and_needs_no_search(searches):
    """By themselves the other batches may be ordered otherwise, which is another structure."""
    net, sgd = mx.models.get("resnet20_cifar"), mx.optimizer.SGD(momentum=0.9)
    budget = net.memory_plan(mx.cpu(), optimizer=sgd, data=(64, 3, 32, 32)).peak_bytes // 2
    first = net.simple_bind(mx.cpu(), optimizer=sgd, memory_budget=budget, data=(32, 3, 32, 32))
    listed = structure(first._planned.train.listed)
    searches.clear()
    for batch in (64, 16):
        exe = first.reshape(allow_up_sizing=True, data=(batch, 3, 32, 32))
        lowered, plan = exe._planned.train, exe.memory_plan
        if structure(lowered.listed) == listed:  # no kernel is another one
            assert lowered.order == first._planned.train.order and not searches
        check(plan, plan.predecessors)
        assert plan.peak_bytes <= budget
        searches.clear()


def test_a_reshaped_step_finds_an_order_of_its_own_where_the_first_ones_takes_too_much():
    data = mx.sym.Variable("data")
    held = mx.sym.FullyConnected(data, num_hidden=512, name="held")
    wide = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=2048, name="wide"), act_type="softsign")
    joined = mx.sym.concat(held, mx.sym.FullyConnected(wide, num_hidden=4, name="narrow"), dim=1)
    net, shape = mx.sym.FullyConnected(joined, num_hidden=4, name="end"), (64, 16)
    with pytest.raises(mx.MemoryBudgetError) as refusal:
        net.memory_plan(mx.cpu(), grad_req="null", memory_budget=1, data=shape)
    least = refusal.value.least_feasible_bytes
    first = net.simple_bind(mx.cpu(), grad_req="null", memory_budget=2 * least, data=(32, 16))
    train = first._planned.train
    listed = tuple(range(len(train.order)))
    assert train.order != listed  # in which `held` waits for `wide`
    first._planned = replace(first._planned, train=replace(train, order=listed))
    first._request = replace(first._request, memory_budget=least)
    assert first.reshape(allow_up_sizing=True, data=shape).memory_plan.peak_bytes == least
