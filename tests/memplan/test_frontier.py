"""The frontier: every budget's plan from one set of candidates."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from mxlite.core import MemoryBudgetError
from mxlite.memplan import check, find_cuts, partial, plan_memory, Problem, Task, Value
from mxlite.memplan.remat.anneal import _Draws, anneal
from mxlite.memplan.remat.blocks import Blocks
from mxlite.memplan.remat.chain import Chain, counts_of, filled, Table
from mxlite.memplan.remat.deep import Deep
from mxlite.memplan.remat.evaluate import Evaluator
from mxlite.memplan.remat.exchange import exchange
from mxlite.memplan.remat.frontier import Frontier, frontier
from mxlite.memplan.remat.improve import improve
from mxlite.memplan.remat.pool import CandidatePool
from mxlite.memplan.remat.search import frontier_of
from mxlite.memplan.remat.split import strides
from tests.memplan import exact_graphs as graphs
from tests.memplan.problems import chain, random_problem, residual

NETS = {
    "chain": lambda: chain(16, update=True),
    "residual": lambda: residual(5, 2, update=True),
    "uneven": lambda: graphs.step(graphs.wave(20)),
    "u-net": lambda: graphs.step(graphs.u_net(4)),
    "branched": lambda: graphs.step(graphs.branched(3)),
    "residual with norms": lambda: graphs.step(graphs.residual(4)),
    **{f"random {seed}": lambda seed=seed: random_problem(seed, forward=14) for seed in range(2)},
}


@pytest.mark.parametrize("name", NETS)
def test_a_larger_budget_never_gets_a_slower_plan_and_every_budget_is_kept_or_refused(name):
    problem = NETS[name]()
    full = plan_memory(problem)
    least, last = None, None
    for i, budget in enumerate(
        np.linspace(problem.fixed_total, full.peak_bytes + 64, 42).astype(int).tolist()
    ):
        try:
            plan = plan_memory(problem, budget)
        except MemoryBudgetError as error:
            assert last is None, "a smaller budget had a plan"
            assert error.least_feasible_bytes > budget
            least = error.least_feasible_bytes
            continue
        assert plan.peak_bytes <= budget
        assert last is None or plan.extra_time <= last
        last = plan.extra_time
        if i % 8 == 0:
            check(plan, plan.predecessors)
    assert last == 0
    assert least is not None
    assert plan_memory(problem, least).peak_bytes == least
    with pytest.raises(MemoryBudgetError):
        plan_memory(problem, least - 1)


def all_flat(problem: Problem) -> list[tuple[int, float]]:
    evaluator = Evaluator(problem)
    return [evaluator.one(counts) for counts in product((0, 1), repeat=problem.num_forward)]


@pytest.mark.parametrize("seed", range(8))
def test_no_choice_of_what_to_keep_beats_the_frontier_of_a_small_problem(seed):
    if seed < 4:
        problem = random_problem(seed, forward=6 + seed % 3)
    else:
        problem = graphs.step(
            (graphs.wave(8), graphs.drawn(3, 8), graphs.residual(1), graphs.u_net(2)[:8])[seed - 4]
        )
    assert problem.num_forward <= 12
    points = frontier(problem).points
    for nbytes, seconds in all_flat(problem):
        assert any(p.live_bytes <= nbytes and p.seconds <= seconds + 1e-9 for p in points)


def test_points_cost_what_they_say_and_none_beats_another():
    problem = residual(5, 2, update=True)
    points = frontier(problem).points
    assert len(points) >= 8
    assert points[0].seconds == 0
    for before, after in pairwise(points):
        assert after.live_bytes < before.live_bytes
        assert after.seconds > before.seconds
    for p in points:
        assert Evaluator(problem).one(p.choice) == (p.live_bytes, pytest.approx(p.seconds))


def test_the_search_is_better_than_cuts_at_equal_distances():
    """At every share of what keeping all takes; and at some by much."""
    problem = bottlenecks(6)
    evaluator, cuts = Evaluator(problem), find_cuts(problem)
    grid = [evaluator.one(partial(cuts, s, f / 16)) for s in (0, *strides(cuts)) for f in range(1, 17)]
    points = frontier(problem).points
    ratios = []
    for share in (0.9, 0.8, 0.7, 0.6, 0.5):
        nbytes = share * points[0].live_bytes
        best = min(seconds for size, seconds in grid if size <= nbytes)
        found = next(p.seconds for p in points if p.live_bytes <= nbytes)
        assert found <= best
        ratios.append(found / best)
    assert min(ratios) < 0.8


# -- the chain programme -----------------------------------------------------------------------------------


def programme(problem: Problem, widest: int = 0) -> Chain:
    return Chain(Blocks(find_cuts(problem, widest)))


@pytest.mark.parametrize("name", ["residual", "residual with norms", "uneven", "chain"])
def test_stretches_cost_what_their_sums_say(name):
    """The model knows nothing of steps, yet its bytes are right to a small part on chains of blocks."""
    problem = NETS[name]()
    chain_, evaluator = programme(problem), Evaluator(problem)
    most = float(chain_.tail[0])
    table = Table(chain_, most, twice=False)
    found = 0
    for share in np.linspace(0.98, 0.3, 18):
        slack = share * most
        stretches = table.walk([slack])[0]
        if stretches is None:
            continue
        found += 1
        assert [s.begin for s in stretches] == [0, *(s.end for s in stretches[:-1])][: len(stretches)]
        nbytes, _ = evaluator.one(counts_of(chain_, stretches).tolist())
        assert nbytes <= 1.12 * slack
        more, less_time = evaluator.one(
            counts_of(chain_, stretches, filled(chain_, stretches, slack)).tolist()
        )
        assert more <= 1.12 * slack
        assert less_time <= evaluator.one(counts_of(chain_, stretches).tolist())[1]
    assert found > 6


def bottlenecks(count: int, size: int = 4096) -> Problem:
    """Blocks whose inner convolutions make few bytes in much time."""
    layers = [graphs.Layer("conv", (-1,), size, 8.0)]
    for _ in range(count):
        top = len(layers) - 1
        layers += [
            graphs.Layer("conv", (top,), size // 4, 10.0),
            graphs.Layer("relu", (top + 1,), size // 4, 0.5, "o"),
            graphs.Layer("conv", (top + 2,), size, 3.0),
            graphs.Layer("norm", (top + 3,), size, 2.0),
            graphs.Layer("add", (top + 4, top), size, 1.0, "", True),
        ]
    return graphs.step(layers)


def test_inner_results_are_kept_where_the_ends_of_blocks_are_dropped():
    problem = bottlenecks(10)
    chain_ = programme(problem)
    blocks = chain_.blocks
    mixed = 0
    table = Table(chain_, float(chain_.tail[0]), twice=False)
    for share in (0.8, 0.7, 0.6):
        stretches = table.walk([share * float(chain_.tail[0])])[0]
        counts = counts_of(chain_, stretches)
        for b, leaving in enumerate(blocks.leaving[:-1]):
            inside = set(range(blocks.begin[b], blocks.end[b])) - set(leaving)
            mixed += all(counts[t] for t in leaving) and any(
                not counts[t] and blocks.needed[t] for t in inside
            )
    assert mixed


def test_wide_cuts_keep_everything_that_crosses():
    problem = graphs.step(graphs.u_net(4))
    chain_ = programme(problem, 8)
    cuts = chain_.blocks.cuts
    c = max(range(len(cuts.at)), key=lambda c: len(cuts.kept[c]))
    assert len(cuts.kept[c]) > 1
    older = sum(chain_.blocks.size[t] for t in cuts.kept[c] if t < chain_.blocks.begin[c])
    assert chain_.older(0, c + 1) == older > 0
    assert chain_.older(c, c + 1) == 0
    first = min(cuts.block_of[t] for t in cuts.kept[c])
    assert chain_.older(first, c + 1) == older > chain_.older(first + 1, c + 1)


# -- recursion ---------------------------------------------------------------------------------------------


def test_recursion_needs_a_logarithm_of_the_bytes():
    least = {n: frontier(chain(n)).points[-1].live_bytes for n in (12, 36)}
    assert least[36] < 1.7 * least[12]


def test_recursion_is_as_its_table_says():
    problem = chain(48)
    chain_, evaluator = programme(problem, 8), Evaluator(problem)
    deep = Deep(chain_, 0.4 * float(chain_.tail[0]), range(chain_.blocks.num + 1), 64)
    depths = set()
    last = None
    for share in (1.0, 0.8, 0.6, 0.5, 0.4, 0.3):
        slack = share * deep.limit
        counts = deep.counts(slack)
        if counts is None:
            continue
        nbytes, seconds = evaluator.one(counts.tolist())
        assert nbytes <= 1.1 * slack
        assert seconds == pytest.approx(deep.least(0, len(deep.at) - 1, slack), rel=0.25)
        assert last is None or seconds >= last - 1e-9
        last = seconds
        depths.add(int(counts.max()))
    assert max(depths) >= 3
    assert deep.counts(0.0) is None


# -- local search ------------------------------------------------------------------------------------------


def test_local_search_finds_what_it_starts_without():
    problem = graphs.step(graphs.residual(3))
    pool, cuts = CandidatePool(problem), find_cuts(problem)
    pool.add("drop", np.array([partial(cuts, 0, f / 16) for f in range(17)]))
    began = len(pool.points)
    improve(pool, np.array(cuts.order), 400_000)
    best = frontier(problem).points
    nbytes = 0.9 * best[0].live_bytes
    wanted = next(p.seconds for p in best if p.live_bytes <= nbytes)
    assert next(p.seconds for p in pool.points if p.live_bytes <= nbytes) <= 1.3 * wanted
    assert len(pool.points) > 2 * began


def test_the_work_of_the_local_search_is_bounded():
    problem = residual(5, 2)
    pool = CandidatePool(problem)
    pool.add("keep all", np.zeros((1, problem.num_forward), np.int64))
    before = pool.visits
    improve(pool, np.array(find_cuts(problem).order), 50_000)
    assert before < pool.visits <= before + 50_000 + 512 * len(problem.tasks)


def without_moves(problem: Problem) -> CandidatePool:
    """Where single changes end."""
    pool, cuts = CandidatePool(problem), find_cuts(problem)
    pool.add("drop", np.array([partial(cuts, 0, f / 16) for f in range(17)]))
    improve(pool, np.array(cuts.order), 400_000)
    return pool


@pytest.mark.parametrize("search", [anneal, exchange])
def test_several_changes_at_once_find_more_than_single_ones(search):
    problem = graphs.step(graphs.u_net(3))
    pool = without_moves(problem)
    before = pool.points
    search(pool, 300_000)
    faster = 0
    for point in before:
        best = next(p for p in pool.points if p.live_bytes <= point.live_bytes)
        assert best.seconds <= point.seconds
        faster += best.seconds < point.seconds
    assert faster > len(before) // 5
    evaluator = Evaluator(problem)
    for p in pool.points:
        assert evaluator.one(p.choice) == (p.live_bytes, pytest.approx(p.seconds))


@pytest.mark.parametrize("search", [anneal, exchange])
def test_the_work_of_searches_by_several_changes_is_bounded(search):
    problem = residual(5, 2)
    pool = without_moves(problem)
    before = pool.visits
    search(pool, 150_000)
    assert before < pool.visits <= before + 150_000 + 20_000 * len(problem.tasks)
    before = pool.visits
    search(pool, 100)  # too little for anything
    assert pool.visits == before


def test_random_numbers_are_the_same_everywhere():
    """Figures pinned: they come from the raw bits, which no version of numpy and no machine changes."""
    draws = _Draws(1)
    assert draws.below(1000, 5).tolist() == [511, 950, 144, 948, 311]
    assert all(0 <= x < 1 for x in draws.shares(1000).tolist())


# -- marks, strategies, placing ----------------------------------------------------------------------------


def test_what_is_marked_or_must_not_run_again_is_so_at_every_point():
    problem = residual(6, 2)
    tasks = tuple(
        replace(t, mirror=t.name == "relu3_0", recomputable=t.name != "conv2_1") for t in problem.tasks
    )
    problem = replace(problem, tasks=tasks)
    marked = next(t for t, task in enumerate(tasks) if task.mirror)
    once = next(t for t, task in enumerate(tasks) if task.name == "conv2_1")
    found = frontier(problem)
    assert len(found.points) > 5
    for i, p in enumerate(found.points):
        assert p.array[marked] >= 1
        schedule = found.plan(i).schedule
        assert all(not k for t, k in zip(schedule.task, schedule.copy) if t == once)


@pytest.mark.parametrize("strategy", ["none", "inplace"])
def test_where_values_share_no_bytes_nothing_is_recomputed(strategy):
    problem = residual(6, 2)
    full = plan_memory(problem, strategy=strategy)
    assert len(frontier(problem, strategy).points) == 1
    with pytest.raises(MemoryBudgetError) as caught:
        plan_memory(problem, full.peak_bytes - 1, strategy=strategy)
    assert caught.value.least_feasible_bytes == full.peak_bytes


def test_a_point_whose_placing_loses_bytes_is_passed_over(monkeypatch):
    problem = residual(5, 2)
    found = frontier(problem)
    middle = len(found.points) // 2
    budget = found.points[middle].live_bytes
    assert found.at(budget).extra_time == pytest.approx(found.points[middle].seconds / problem.step_seconds)
    honest = Frontier.plan

    def wasteful(self, i):
        plan = honest(self, i)
        return replace(plan, placed_bytes=plan.placed_bytes + 64 * (i == middle))

    monkeypatch.setattr(Frontier, "plan", wasteful)
    next_best = Frontier(problem, "sharing", found.points).at(budget)
    assert next_best.placed_bytes <= budget
    assert next_best.extra_time > found.points[middle].seconds / problem.step_seconds


def test_the_least_plan_has_the_smallest_placed_arena_of_all_points(monkeypatch):
    """Whichever point that is: here the last ones lose bytes to gaps; of equals the fastest counts."""
    honest = Frontier.smallest
    problem = residual(4, 1)
    points = frontier(problem).points
    assert len(points) > 5
    for lost in ({}, {-1: 10**6}, {-1: 10**6, -2: 10**6}, dict.fromkeys(range(1, len(points)), 10**6)):

        def wasteful(self, i, lost=lost):
            plan = honest(self, i)
            return replace(plan, placed_bytes=plan.placed_bytes + lost.get(i - len(points), lost.get(i, 0)))

        monkeypatch.setattr(Frontier, "smallest", wasteful)
        found = Frontier(problem, "sharing", points)
        placed = [wasteful(found, i).placed_bytes for i in range(len(points))]
        assert found.least().placed_bytes == min(placed), lost
        assert found.least().schedule.copy == honest(found, placed.index(min(placed))).schedule.copy
    least = points[-1].live_bytes
    monkeypatch.setattr(
        Frontier, "smallest", lambda self, i: replace(honest(self, i), placed_bytes=2 * least)
    )
    flat = Frontier(problem, "sharing", tuple(p for p in points if p.live_bytes <= 2 * least))
    assert flat.least().schedule.copy == honest(flat, 0).schedule.copy, "all are alike: the first is fastest"


def test_the_least_plan_may_be_faster_where_another_pass_needs_the_arena():
    problem = residual(5, 2)
    least = frontier_of(problem).least()
    roomy = replace(problem, least_arena=2 * least.placed_bytes)
    with pytest.raises(MemoryBudgetError) as caught:
        plan_memory(roomy, roomy.fixed_total)
    plan = plan_memory(roomy, caught.value.least_feasible_bytes)
    assert plan.arena_bytes == 2 * least.placed_bytes
    assert plan.extra_time < least.extra_time


DIGEST = """
import hashlib, sys
from tests.memplan import exact_graphs as graphs
from tests.memplan.problems import random_problem
from mxlite.memplan.remat.frontier import frontier
for problem in (graphs.step(graphs.u_net(3)), random_problem(3, 10)):
    points = frontier(problem).points
    rows = repr([(p.method, p.counts, p.live_bytes, p.seconds) for p in points])
    print(hashlib.sha256(rows.encode()).hexdigest())
"""


def test_the_frontier_does_not_depend_on_the_hashes_of_a_process():
    root = Path(__file__).resolve().parents[2]
    answers = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        run = subprocess.run(
            [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True
        )
        answers.add(run.stdout)
    assert len(answers) == 1
    assert len(answers.pop().split()) == 2


def test_a_long_stretch_of_which_backward_needs_nothing():
    """The recursion divides it by numbers of blocks, since there are no bytes to divide it by."""
    n = 300
    values = [Value("data", 64, fixed=True), *(Value(f"y{i}", 64) for i in range(n)), Value("d", 64)]
    tasks = [Task(f"f{i}", "f", (i,), (i + 1,), seconds=1.0) for i in range(n)]
    tasks.append(Task("loss", "f", (n,), (n + 1,), seconds=1.0))
    last = Value("dx", 64, fixed=True)
    tasks.append(Task("b", "b", (n + 1, n), (n + 2,), seconds=1.0))
    problem = Problem(tuple(tasks), (*values, last), n)
    assert frontier(problem).least().placed_bytes <= 192
