"""The order of tasks: allowed by the data, never worse, least where small, equal results to the bit."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.executor.plan import lower as lower_module
from mxlite.memplan import check, LiveRange, make_plan, Problem, reorder, Task, Value
from mxlite.memplan.order.downsets import Downsets
from mxlite.memplan.order.listing import rules
from mxlite.memplan.order.reorder import cost
from mxlite.memplan.order.section import pieces, Section, section_of
from mxlite.memplan.placement import arena, fullest
from mxlite.memplan.placement.liveness import most_live
from tests.memplan.problems import chain, random_problem, residual
from tests.networks.small_networks import fill, random_network


def permuted(problem: Problem, order: Any) -> Problem:
    assert sorted(order) == list(range(len(problem.tasks)))
    return replace(problem, tasks=tuple(problem.tasks[t] for t in order))


def sections(problem: Problem) -> tuple[Section, Section]:
    return section_of(problem, 0, problem.num_forward), section_of(
        problem, problem.num_forward, len(problem.tasks)
    )


def test_a_chain_has_no_order_but_the_given():
    """A section is one where each task waits for the one before it; so it is if there is one order alone."""
    kinds = set()
    for problem in (chain(5), chain(4, update=True), *(random_problem(seed, 4) for seed in range(8))):
        for section in sections(problem):
            assert section.is_chain == (len(all_orders(section)) == 1)
            kinds.add(section.is_chain)
    assert kinds == {True, False}


def legal(section: Section, order: Any) -> bool:
    place = {t: i for i, t in enumerate(order)}
    return sorted(order) == sorted(section.order) and all(
        place[p] < place[t] for t in order for p in section.waits_for[t]
    )


MOST = 800  # orders that are tried one by one


def all_orders(section: Section) -> list[tuple[int, ...]]:
    """Every order that the dependencies allow; none where they are more than MOST."""
    found: list[tuple[int, ...]] = []
    tasks = set(section.order)
    stack: list[tuple[int, ...]] = [()]
    while stack and len(found) <= MOST:
        order = stack.pop()
        if len(order) == len(tasks):
            found.append(order)
        for t in sorted(tasks - set(order)):
            if all(p in order for p in section.waits_for[t]):
                stack.append((*order, t))
    return found if len(found) <= MOST else []


def some_order(section: Section, seed: int) -> tuple[int, ...]:
    rng = np.random.default_rng(seed)
    order: list[int] = []
    while len(order) < len(section.order):
        ready = [t for t in section.order if t not in order and all(p in order for p in section.waits_for[t])]
        order.append(int(rng.choice(ready)))
    return tuple(order)


def whole(problem: Problem, fore: Any, back: Any) -> Problem:
    n = problem.num_forward
    updates = [t for t in range(n, len(problem.tasks)) if problem.tasks[t].update]
    return permuted(problem, (*fore, *(n + t for t in back), *updates))


# -- what an order costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_profile_is_what_the_plan_of_that_order_keeps_alive(seed):
    problem = random_problem(seed)
    forward, backward = sections(problem)
    fore, back = some_order(forward, seed), some_order(backward, seed)
    kept = [*forward.profile(fore)[0], *backward.profile(back)[0]]
    assert max(kept) == make_plan(whole(problem, fore, back)).max_live_bytes


@pytest.mark.parametrize("seed", range(20))
def test_own_bytes_of_a_forward_pass_are_those_of_inference(seed):
    problem = random_problem(seed)
    n = problem.num_forward
    alone = Problem(problem.tasks[:n], problem.values, n)
    # Nobody behind reads them: what only backward reads dies at once.
    own = max(section_of(problem, 0, n).profile(range(n))[1])
    plan = make_plan(Problem(tuple(replace(t, always=t.outputs) for t in alone.tasks), problem.values, n))
    assert own == plan.max_live_bytes


# -- search ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_small_passes_get_an_order_proved_least(seed):
    problem = random_problem(seed, forward=7)
    for section in sections(problem):
        orders = all_orders(section)
        if len(orders) < 2:
            continue
        costs = [cost(section, order)[:2] for order in orders]
        lattice = Downsets(section)
        assert all(b <= min(column) for b, column in zip(lattice.bound, zip(*costs)))
        first = lattice.least_kept(0, 100_000)
        assert first is not None and legal(section, first)
        assert cost(section, first)[0] == min(costs)[0]
        second = lattice.least_own(min(costs)[0], 100_000)
        assert second is not None and legal(section, second)
        assert cost(section, second)[:2] == min(costs)


@pytest.mark.parametrize("seed", range(40))
def test_the_least_peak_of_all_orders_is_found_for_small_steps(seed):
    problem = random_problem(seed, forward=6)
    forward, backward = sections(problem)
    fore, back = all_orders(forward), all_orders(backward)
    if not fore or not back:
        return
    least = max(
        min(cost(section, order)[0] for order in orders)
        for section, orders in ((forward, fore), (backward, back))
    )
    assert make_plan(permuted(problem, reorder(problem))).max_live_bytes == least


@pytest.mark.parametrize("seed", range(30))
def test_rules_and_pieces_respect_the_data(seed):
    for section in sections(random_problem(seed, forward=20)):
        assert all(legal(section, order) for order in rules(section))
        assert legal(section, [t for piece in pieces(section) for t in piece])


# -- reorder -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_any_step_stays_sound_and_needs_no_more(seed):
    problem = random_problem(seed, forward=25)
    order = reorder(problem)
    assert order == reorder(problem)
    n = problem.num_forward
    assert set(order[:n]) == set(range(n))
    after = permuted(problem, order)
    before, plan = make_plan(problem), make_plan(after)
    check(plan)
    check(plan, plan.predecessors)
    assert plan.max_live_bytes <= before.max_live_bytes
    for old, new in zip(sections(problem), sections(after), strict=True):
        assert cost(new, new.order)[0] <= max(cost(old, old.order)[0], before.max_live_bytes)


def test_a_step_without_choice_stays_as_it_is():
    for problem in (chain(30), chain(30, update=True)):
        assert reorder(problem) == tuple(range(len(problem.tasks)))


def fork(sizes: dict[str, tuple[int, int]], order: str) -> Problem:
    """Branches of two tasks each between a source and a sum: (large middle, small end) bytes."""
    values = [Value("data", 64, fixed=True), Value("source", 64)]
    tasks = [Task("source", "op", (0,), (1,))]
    ends = []
    for name in order:
        middle, end = sizes[name]
        values += [Value(f"{name}1", middle), Value(f"{name}2", end)]
        n = len(values)
        tasks += [Task(f"{name}1", "op", (1,), (n - 2,)), Task(f"{name}2", "op", (n - 2,), (n - 1,))]
        ends.append(n - 1)
    values.append(Value("sum", 64, fixed=True))
    tasks.append(Task("sum", "op", tuple(ends), (len(values) - 1,)))
    return Problem(tuple(tasks), tuple(values), len(tasks))


def test_the_branch_with_the_higher_peak_comes_first():
    sizes = {"a": (6400, 640), "b": (64000, 64), "c": (640, 6400)}
    for given in ("abc", "cba", "bac"):
        problem = fork(sizes, given)
        after = permuted(problem, reorder(problem))
        assert [t.name for t in after.tasks[:3]] == ["source", "b1", "b2"]
        assert make_plan(after).max_live_bytes == 64 + 64000 + 64


def test_a_large_weight_gradient_waits_until_little_is_alive():
    # Nobody but its update reads it, and the activations of earlier layers die meanwhile.
    problem = chain(40, size=6400, update=True)
    last = next(t for t in problem.tasks[problem.num_forward :] if t.op == "conv")
    large = last.outputs[1]
    values = tuple(replace(v, nbytes=64000) if i == large else v for i, v in enumerate(problem.values))
    # Its gradient of weights is a task of its own.
    tasks = []
    for t in problem.tasks:
        if t is last:
            tasks.append(replace(t, outputs=(t.outputs[0], -1)))
            tasks.append(replace(t, name="large", outputs=(-1, large)))
        else:
            tasks.append(t)
    problem = Problem(tuple(tasks), values, problem.num_forward)
    before = make_plan(problem)
    after = make_plan(permuted(problem, reorder(problem)))
    small = make_plan(replace(problem, values=chain(40, size=6400, update=True).values))
    assert before.max_live_bytes >= small.max_live_bytes + 64000 - 6400
    # What it reads lives longer for it.
    assert after.max_live_bytes <= small.max_live_bytes + 6400
    check(after, after.predecessors)


def test_tasks_that_touch_one_state_keep_their_order():
    values = (
        Value("data", 64, True),
        Value("state", 64, True),
        *(Value(f"v{i}", 64 * (9 - i)) for i in range(6)),
        Value("out", 64, True),
    )
    tasks = [
        Task("read0", "op", (0, 1), (2,)),
        Task("read1", "op", (0, 1), (3,)),
        Task("write2", "op", (0, 1), (4,), mutates=(1,)),
        Task("read3", "op", (0, 1), (5,)),
        Task("read4", "op", (0, 1), (6,)),
        Task("write5", "op", (0, 1), (7,), mutates=(1,)),
        Task("sum", "op", (2, 3, 4, 5, 6, 7), (8,)),
    ]
    section = section_of(Problem(tuple(tasks), values, 0), 0, 7)
    assert section.waits_for[:6] == [(), (), (0, 1), (2,), (2,), (2, 3, 4)]
    for step in (
        Problem(tuple(tasks), values, 7),
        Problem((Task("f", "op", (0,), ()), *tasks), values, 1),
    ):
        names = [step.tasks[t].name for t in reorder(step)]
        assert [n for n in names if n.startswith("write")] == ["write2", "write5"]
        assert set(names[-7:-5]) == {"read0", "read1"}


def test_constants_stay_in_front():
    problem = fork({"a": (640, 640), "b": (6400, 64)}, "ab")
    assert reorder(problem) == (0, 3, 4, 1, 2, 5)
    assert reorder(problem, num_constant=3) == tuple(range(6))


def test_twenty_thousand_tasks_take_work_in_proportion(monkeypatch):
    looked = []
    real = Downsets.step

    def counted(self, *args):
        looked.append(1)
        return real(self, *args)

    monkeypatch.setattr(Downsets, "step", counted)
    counts = []
    for blocks in (100, 200):
        looked.clear()
        problem = residual(blocks, 4)
        reorder(problem)
        counts.append(len(looked))
    assert counts[1] <= 2.2 * counts[0] + 100


# -- bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["inception_bn", "mobilenet_v2", "resnet50", "unet", "vgg16", "resnet56_cifar"]
)
def test_the_arena_of_a_network_is_its_lower_bound(name):
    net = mx.models.get(name)
    shapes = mx.models.shapes_of(name, 8)
    requests = {n: "null" if n in shapes else "write" for n in net.list_arguments()}
    plan = net.memory_plan(mx.cpu(), grad_req=requests, **shapes)
    assert plan.placed_bytes == plan.max_live_bytes


def test_what_lies_too_high_is_placed_first_in_the_next_round(monkeypatch):
    """One small part is searched; the first round behind it does not reach the bound, a later one does."""
    monkeypatch.setattr(fullest, "FIRST", 12)
    monkeypatch.setattr(arena, "GROWN", 1)
    monkeypatch.setattr(arena, "fullest_parts", lambda *given: islice(fullest.fullest_parts(*given), 1))
    for seed in (36, 44, 86, 96, 98, 110):
        rng = np.random.default_rng(seed)
        ranges = []
        for _ in range(60):
            start = int(rng.integers(0, 60))
            width = int(rng.integers(1, 40) if rng.random() < 0.5 else rng.integers(1, 4))
            ranges.append(LiveRange((), start, start + width, 64 * int(rng.choice([1, 2, 4, 16, 64]))))
        bound = most_live(*zip(*((r.start, r.stop, r.nbytes) for r in ranges), strict=True))
        tried = (arena.greedy_by_fullness, arena.greedy_by_size)
        best = min((place(ranges) for place in tried), key=lambda p: p.nbytes)
        monkeypatch.setattr(arena, "ROUNDS", 1)
        assert arena._fullest_exactly(ranges, bound, best).nbytes > bound
        monkeypatch.setattr(arena, "ROUNDS", 3)
        found = arena._fullest_exactly(ranges, bound, best)
        for (a, p), (b, q) in combinations(zip(ranges, found.offsets, strict=True), 2):
            if a.start < b.stop and b.start < a.stop:
                assert p + a.nbytes <= q or q + b.nbytes <= p
        assert found.nbytes == bound


def test_weight_gradients_of_a_recurrent_net_are_summed_as_they_come(monkeypatch):
    net = mx.models.get("lstm_unrolled", steps=4, layers=2, hidden=256)
    shapes = mx.models.shapes_of("lstm_unrolled", 8, steps=4, layers=2, hidden=256)
    requests = {n: "null" if n in shapes else "write" for n in net.list_arguments()}
    stored = net.memory_plan(mx.cpu(), grad_req=requests, **shapes).arena_bytes
    # By their order alone: where sums have bytes of their own.
    monkeypatch.setattr(lower_module, "accumulated", lambda found, num_forward: found)
    found = [net.memory_plan(mx.cpu(), grad_req=requests, **shapes).arena_bytes]
    monkeypatch.setattr(lower_module, "reorder", lambda p, c=0: tuple(range(len(p.tasks))))
    found.append(net.memory_plan(mx.cpu(), grad_req=requests, **shapes).arena_bytes)
    assert found[0] <= 0.75 * found[1] and stored <= found[0]


# -- what runs ---------------------------------------------------------------------------------------------


def train(net: Any, shapes: Any, is_ordered: bool, monkeypatch: Any) -> tuple[list[str], list[Any]]:
    """Names of the tasks in order; all that a user can see of two steps of training and an evaluation."""
    with monkeypatch.context() as patch:
        if not is_ordered:
            patch.setattr(lower_module, "reorder", lambda p, c=0: tuple(range(len(p.tasks))))
        mx.random.seed(7)
        executor = net.simple_bind(mx.cpu(), grad_req="write", **shapes)
    fill(executor, 3)
    seen = []
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward()
        arrays = (*executor.outputs, *executor.grad_arrays, *executor.aux_arrays)
        seen += [a.asnumpy() for a in arrays if a is not None]
    seen += [a.asnumpy() for a in executor.forward(is_train=False)]
    return [t.name for t in executor._planned.train.problem.tasks], seen


def test_results_are_equal_to_the_bit_in_every_order(monkeypatch):
    monkeypatch.setenv("MXLITE_CHECK_PLAN", "1")
    changed = 0
    for seed in range(12):
        net, shapes = random_network(seed, blocks=8)
        (names, one), (old, two) = (train(net, shapes, order, monkeypatch) for order in (True, False))
        changed += names != old
        assert sorted(names) == sorted(old)
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
    assert changed >= 3


def test_a_loop_body_is_ordered_too():
    def body(x, states):
        wide = mx.sym.tanh(mx.sym.tile(x, reps=(1, 64)))
        left = mx.sym.sum(x * 2, axis=1, keepdims=True)
        right = mx.sym.sum(wide, axis=1, keepdims=True)
        return left + right + states[0], [left]

    out, _ = mx.sym.contrib.foreach(body, mx.sym.Variable("data"), [mx.sym.Variable("s")])
    executor = out.simple_bind(mx.cpu(), grad_req="null", data=(3, 2, 4), s=(2, 1))
    data = np.random.default_rng(0).standard_normal((3, 2, 4)).astype("float32")
    found = executor.forward(data=mx.nd.array(data), s=mx.nd.zeros((2, 1)))[0].asnumpy()
    left = 2 * data.sum(2, keepdims=True)
    before = np.concatenate([np.zeros((1, 2, 1), "float32"), left[:-1]])
    np.testing.assert_allclose(found, left + 64 * np.tanh(data).sum(2, keepdims=True) + before, rtol=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_branches_that_may_be_interleaved_get_the_least_peak(seed):
    rng = np.random.default_rng(seed)
    sizes = {name: (int(rng.integers(1, 20)) * 64, int(rng.integers(1, 20)) * 64) for name in "abc"}
    problem = fork(sizes, "abc")
    section, _ = sections(problem)
    orders = all_orders(section)
    assert len(orders) == 90
    found = Downsets(section).least_kept(0, 10_000)
    assert found is not None
    assert cost(section, found)[0] == min(cost(section, order)[0] for order in orders)


def test_pieces_of_many_tasks_are_not_searched_as_a_whole(monkeypatch):
    """Sets of thousands of tasks are wide, and too many: minutes for nothing on an unrolled network."""
    module = sys.modules["mxlite.memplan.order.reorder"]
    searched = []

    class Watched(Downsets):
        def __init__(self, section):
            searched.append(len(section.order))
            super().__init__(section)

    monkeypatch.setattr(module, "Downsets", Watched)
    problem = random_problem(3, forward=60)
    for largest in (10**9, 24):
        monkeypatch.setattr(module, "LARGEST", largest)
        searched.clear()
        order = reorder(problem)
        assert sorted(order) == list(range(len(problem.tasks)))
        assert (max(searched, default=0) > 24) == (largest > 24)
