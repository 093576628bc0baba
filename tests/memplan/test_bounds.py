"""Proven lower bounds: no plan of any small problem gets below them, and those of simple ones reach them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np
import pytest

from mxlite.core import MemoryBudgetError
from mxlite.memplan import make_plan, OFFLOADED, plan_memory, Problem, Task, Value
from mxlite.memplan.plan import forward_bound
from mxlite.memplan.problem import most_overwritten
from mxlite.memplan.remat.schedule import Runs
from tests.memplan.exact_schedule import may_repeat, solve
from tests.memplan.problems import random_problem, residual, several_results

KIB = 1024


# -- in place --------------------------------------------------------------------------------------------


def test_of_all_ways_to_overwrite_inputs_the_one_that_saves_most_counts():
    rng = random.Random(0)
    for _ in range(400):
        outs = {o: rng.choice([64, 128, 1024]) for o in range(rng.randint(1, 4))}
        pairs = [(o, i) for o in outs for i in range(10, 10 + rng.randint(1, 4)) if rng.random() < 0.5]
        rng.shuffle(pairs)
        best = 0
        for count in range(len(outs) + 1):
            for chosen in combinations(pairs, count):
                if all(len({p[side] for p in chosen}) == count for side in (0, 1)):
                    best = max(best, sum(outs[o] for o, _ in chosen))
        assert most_overwritten(pairs, outs) == best


def test_an_output_may_be_the_second_choice_of_its_input():
    """`small` may take x or y, `large` only x: as sizes are, it is large that gets x."""
    names = {"x": 1024, "y": 64, "small": 64, "large": 1024}
    values = tuple(Value(n, nbytes) for n, nbytes in names.items())
    both = Task("both", "op", (0, 1), (2, 3), ((2, 0), (2, 1), (3, 0)))
    tasks = (Task("x", "op", (), (0,)), Task("y", "op", (), (1,)), both, Task("end", "op", (2, 3), ()))
    problem = Problem(tasks, values, len(tasks))
    assert problem.task_bound == (1088, 2)
    assert make_plan(problem).placed_bytes == 1088


# -- steps -----------------------------------------------------------------------------------------------


def all_runs(problem):
    """Each way to run forward tasks again, each of them once more at most."""
    n, again = problem.num_forward, set(may_repeat(problem))
    stages = range(len([t for t in problem.tasks[n:] if not t.update]))
    rows = [[(), *((j,) for j in stages)] if t in again else [()] for t in range(n)]
    return [Runs(row) for row in product(*rows)]


def least_live(problem):
    """The least live bytes that the planner's own steps take, whatever runs again or waits on the host."""
    least = min(make_plan(problem, runs).max_live_bytes for runs in all_runs(problem))
    if problem.host is None:
        return least
    counts = product((OFFLOADED, 0, 1), repeat=problem.num_forward)
    return min(least, *(make_plan(problem, row).max_live_bytes for row in counts))


def test_no_plan_of_a_small_step_with_several_results_is_below_its_bound():
    tight = 0
    for seed in range(120):
        problem = several_results(seed)
        bound, least = problem.lower_bound_bytes, problem.fixed_total + least_live(problem)
        assert bound <= least, f"seed {seed}"
        tight += bound == least
    assert tight > 30


@pytest.mark.parametrize("draw", [several_results, lambda seed: without_updates(random_problem(seed, 4))])
def test_no_schedule_at_all_of_a_small_step_is_below_its_bound(draw):
    """By constraint programming, with runs and in-place reads that our schedules cannot say."""
    pytest.importorskip("ortools", reason="ortools (extra 'exact') proves the optima")
    for seed in range(40):
        problem = draw(1000 + seed)
        answer = solve(problem, problem.task_bound[0] - 1, effort=2.0)
        assert answer.proven and answer.order is None, f"seed {1000 + seed}"


def without_updates(problem):
    return replace(problem, tasks=tuple(t for t in problem.tasks if not t.update))


def test_what_is_told_with_a_refusal_and_with_a_plan_is_below_every_plan():
    for seed in range(25):
        problem = several_results(seed)
        with pytest.raises(MemoryBudgetError) as caught:
            plan_memory(problem, problem.fixed_total - 1)
        error, plan = caught.value, plan_memory(problem)
        least = problem.fixed_total + least_live(problem)
        assert plan.lower_bound_bytes == error.lower_bound_bytes <= least
        assert least <= error.least_feasible_bytes <= plan.peak_bytes
        assert plan.within(error.least_feasible_bytes).lower_bound_bytes == error.lower_bound_bytes


def test_the_bound_of_a_step_is_that_of_its_largest_task_exactly():
    """By hand: 1000 and 200 bytes of scratch are 1024 and 256 in the arena; input, gradient, its output."""
    problem = residual(3, 1)
    nbytes, at = problem.task_bound
    assert problem.tasks[at].op == "conv" and nbytes == 3 * 1024 + 256
    assert problem.lower_bound_bytes == problem.fixed_total + nbytes


# -- inference -------------------------------------------------------------------------------------------


def small_problem(rng):
    """Up to seven tasks with one result each."""
    forward, backward = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    count = forward + backward
    values = tuple(Value(f"v{i}", int(rng.choice([64, 1024, 1088]))) for i in range(count))
    tasks = []
    for t in range(count):
        ins = tuple(int(v) for v in rng.permutation(t)[: int(rng.integers(0, 3))]) if t else ()
        join = ((t, ins[0]),) if ins and rng.random() < 0.5 else ()
        tasks.append(Task(f"t{t}", "t", ins, (t,), join, workspace=int(rng.integers(0, 10)) * 64))
    read = {v for task in tasks for v in task.inputs}
    tasks = [t if t.outputs[0] in read else replace(t, outputs=(-1,), in_place=()) for t in tasks]
    return Problem(tuple(tasks), values, forward)


def small_pass(seed):
    """A forward pass of one result each, or of several."""
    problem = small_problem(np.random.default_rng(seed)) if seed % 2 else several_results(seed)
    return replace(problem, num_forward=len(problem.tasks), host=None)


def orders(problem):
    """Each order in which whatever a task reads is made before it."""
    made = problem.producer
    for order in permutations(range(len(problem.tasks))):
        place = {t: i for i, t in enumerate(order)}
        if all(place[made[v]] < place[t] for t in order for v in problem.tasks[t].inputs if made[v] >= 0):
            yield replace(problem, tasks=tuple(problem.tasks[t] for t in order))


def test_no_order_of_a_small_forward_pass_needs_less():
    tight = 0
    for seed in range(60):
        problem = small_pass(seed)
        least = min(make_plan(other).max_live_bytes for other in orders(problem))
        bound = forward_bound(make_plan(problem))
        assert problem.task_bound[0] <= bound <= least, f"seed {seed}"
        tight += bound == least
    assert tight > 40


def test_around_the_fullest_task_of_inference_what_is_added_later_is_there():
    """A residual block: while its second layer runs, what goes around both is there as well."""
    names = ("x", "a", "b", "c", "out")
    values = tuple(Value(n, KIB, n == "out") for n in names)
    reads = ((), (0,), (1,), (0, 2), (3,))
    tasks = tuple(Task(n, "op", row, (v,)) for v, (n, row) in enumerate(zip(names, reads)))
    plan = make_plan(Problem(tasks, values, len(tasks)))
    assert forward_bound(plan) == plan.placed_bytes == 3 * KIB
    assert forward_bound(make_plan(Problem((), (), 0))) == 0


def test_what_is_read_again_later_is_not_overwritten_in_the_bound():
    """`a` may lie where x is, but x is read at the end: x, a and the scratch of a are there at once."""
    values = tuple(Value(n, KIB, n == "out") for n in ("x", "a", "b", "out"))
    tasks = (
        Task("x", "op", (), (0,)),
        Task("a", "op", (0,), (1,), ((1, 0),), workspace=KIB),
        Task("b", "op", (1,), (2,), ((2, 1),)),
        Task("out", "op", (0, 2), (3,)),
    )
    problem = Problem(tasks, values, len(tasks))
    assert problem.task_bound == (2 * KIB, 1)
    assert forward_bound(make_plan(problem)) == make_plan(problem).placed_bytes == 3 * KIB


def test_what_nobody_reads_is_in_no_bound():
    """Though its task names it as an output, no run makes it."""
    values = (Value("a", 64), Value("unread", KIB), Value("out", 64, True))
    problem = Problem((Task("a", "op", (), (0, 1)), Task("out", "op", (0,), (2,))), values, 2)
    assert problem.task_bound[0] == make_plan(problem).placed_bytes == 64
    assert forward_bound(make_plan(problem)) == 64
