"""Host memory as a second tier: schedules with copies, their model of time, the search, bound programs."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.checks import guard
from mxlite.core import BindError, BudgetError, FormatError, MemoryBudgetError, OutOfMemoryError, PlanError
from mxlite.engine import use_engine
from mxlite.executor.plan.lazy_steps import LazySteps
from mxlite.memplan import (
    check,
    FETCH,
    HostLink,
    make_plan,
    make_schedule,
    MemoryPlan,
    OFFLOADED,
    plan_memory,
    Problem,
    RUN,
    STORE,
    Task,
    Value,
)
from mxlite.memplan.placement.liveness import live_buffers
from mxlite.memplan.remat.evaluate import Evaluator
from tests.memplan.problems import chain, random_problem, residual

sym = mx.sym


def linked(problem, rate=40.0, capacity=None):
    return replace(problem, host=HostLink(rate, rate, capacity))


def drawn(seed, forward=None):
    """A random problem with a link, and random counts for it."""
    draw = random.Random(seed)
    problem = linked(random_problem(seed, forward or 4 + seed % 20), 20.0 + seed % 7 * 100)
    return problem, [draw.choice([-1, -1, 0, 1, 2]) for _ in range(problem.num_forward)]


# -- schedules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_random_schedules_with_copies_are_sound_in_every_order(seed):
    problem, counts = drawn(seed)
    for room in (0, 1500, 1 << 40):
        plan = make_plan(problem, counts, room=room)
        check(plan)
        check(plan, plan.predecessors)
        assert plan.max_live_bytes <= max(make_plan(problem, counts).max_live_bytes, room)
        assert MemoryPlan.from_json(plan.to_json()) == plan


def test_copies_never_need_more_live_bytes_than_without_overlap_unless_there_is_room():
    """However slow they are: then kernels wait. A link that takes no time is one without overlap."""
    for seed in range(12):
        problem, counts = drawn(seed)
        live = {make_plan(linked(problem, rate), counts).max_live_bytes for rate in (1e-3, 1.0, 40.0, 1e15)}
        assert len(live) == 1
        assert make_plan(problem, counts, room=2 * max(live)).max_live_bytes <= 2 * max(live)


def test_enough_random_schedules_have_copies_and_recomputation():
    plans = [make_plan(*drawn(seed)) for seed in range(24)]
    assert sum(p.offloaded > 0 for p in plans) > 18
    assert sum(p.offloaded > 0 and p.recomputed > 0 for p in plans) > 9


def test_a_value_is_copied_out_behind_its_last_reader_and_back_before_its_next():
    problem = linked(chain(4), 1e9)
    plan = make_plan(problem, [OFFLOADED] * problem.num_forward)
    schedule, reads = plan.schedule, plan.schedule.inputs
    for s, kind in enumerate(schedule.kinds):
        if kind == STORE:
            (i,) = reads[s]
            made = next(k for k, row in enumerate(schedule.outputs) if i in row)
            assert made < s
            assert max(k for k, row in enumerate(reads) if i in row) == s
        elif kind == FETCH:
            (j,) = schedule.outputs[s]
            assert min(k for k, row in enumerate(reads) if j in row) > s >= schedule.num_forward
    assert plan.offloaded == schedule.kind.count(STORE) == schedule.kind.count(FETCH) > 0


def test_copies_stand_no_earlier_and_no_later_than_they_have_to_when_the_link_is_fast():
    """Then nobody waits, and the live bytes are those of copies next to their readers."""
    problem = linked(residual(6, 2), 1e12)
    keep, away = (make_plan(problem, [m] * problem.num_forward) for m in (0, OFFLOADED))
    assert away.schedule.waiting_seconds < 1e-6
    assert away.max_live_bytes < 0.35 * keep.max_live_bytes
    slow = make_plan(linked(residual(6, 2), 1e-3), [OFFLOADED] * problem.num_forward)
    assert slow.max_live_bytes <= away.max_live_bytes
    assert slow.schedule.waiting_seconds > 1e6


def test_a_task_that_must_not_run_again_may_be_offloaded():
    problem = linked(chain(4))
    problem = replace(problem, tasks=tuple(replace(t, recomputable=False) for t in problem.tasks))
    assert make_plan(problem, [1] * problem.num_forward).recomputed == 0
    assert make_plan(problem, [OFFLOADED] * problem.num_forward).offloaded > 0


def test_recomputation_reads_what_was_fetched():
    problem = linked(residual(4, 2))
    counts = [OFFLOADED if t.op == "conv" else 1 for t in problem.tasks[: problem.num_forward]]
    plan = make_plan(problem, counts)
    check(plan, plan.predecessors)
    schedule = plan.schedule
    fetched = {row[0] for k, row in zip(schedule.kinds, schedule.outputs) if k == FETCH}
    again = {i for k, row in zip(schedule.copy, schedule.inputs) if k for i in row}
    assert fetched & again


def test_counts_of_nought_and_more_give_the_same_schedule_with_and_without_a_link():
    problem = residual(4, 2)
    for counts in ([0] * problem.num_forward, [1] * problem.num_forward):
        plan, other = make_plan(problem, counts), make_plan(linked(problem), counts)
        assert other.schedule.kind == ()
        assert replace(other, schedule=replace(other.schedule, problem=problem)) == plan
    assert linked(problem).digest != problem.digest


# -- the model of time -----------------------------------------------------------------------------------


def one_trip(seconds, rate):
    """f makes x, g reads it; much later, backward reads it again."""
    values = (Value("d", 64, True), Value("x", 640), Value("y", 64), Value("z", 64), Value("o", 64, True))
    tasks = (
        Task("f", "op", (0,), (1,), seconds=1.0),
        Task("g", "op", (1,), (2,), seconds=seconds),
        Task("h", "op", (2,), (3,), seconds=seconds),
        Task("b", "op", (1, 3), (4,), seconds=1.0),
    )
    return Problem(tasks, values, 2, {"arguments": 128}, host=HostLink(rate, rate))


@pytest.mark.parametrize(
    ("seconds", "rate", "waiting"),
    [
        (100.0, 64.0, 0.0),  # 10 s each way beside 100 s of g (it is still there then) and of h
        (100.0, 6.4, 0.0),  # 100 s each way: just so
        (100.0, 3.2, 200.0),
        (0.0, 64.0, 20.0),
    ],
)
def test_kernels_wait_for_what_they_cannot_hide(seconds, rate, waiting):
    problem = one_trip(seconds, rate)
    schedule = make_schedule(problem, [OFFLOADED, 0], room=1 << 20)
    assert schedule.kinds.count(FETCH) == 1
    assert schedule.waiting_seconds == pytest.approx(waiting)
    assert schedule.extra_seconds == pytest.approx(waiting)
    assert schedule.extra_time == pytest.approx(waiting / problem.step_seconds)


@pytest.mark.parametrize("seed", range(30))
def test_a_faster_link_never_makes_the_same_steps_slower(seed):
    problem, counts = drawn(seed)
    schedule = make_schedule(problem, counts)
    times = [
        replace(schedule, problem=linked(problem, rate)).extra_seconds for rate in (1.0, 10.0, 50.0, 1e3, 1e9)
    ]
    assert times == sorted(times, reverse=True)
    for one_way in (HostLink(1.0, 50.0), HostLink(50.0, 1.0)):
        between = replace(schedule, problem=replace(problem, host=one_way)).extra_seconds
        assert times[2] <= between <= times[0]


@pytest.mark.parametrize("seed", range(20))
def test_waiting_is_what_a_simulation_event_by_event_gives(seed):
    """Each event waits for all events it depends on, written down one by one."""
    problem, counts = drawn(seed)
    schedule, link = make_schedule(problem, counts), problem.host
    end: list[float] = []
    made: dict[int, int] = {}
    busy = 0.0
    for s, kind in enumerate(schedule.kinds):
        v = schedule.value_of[schedule.inputs[s][0]] if kind != RUN else 0
        same = [p for p in range(s) if schedule.kinds[p] == kind]
        before = {*same[-1:], *(made[i] for i in schedule.inputs[s] if i in made)}
        if kind != STORE:
            before |= {p for p in range(s) if schedule.kinds[p] == STORE}
        if kind == FETCH:
            before |= {p for p in range(s) if schedule.kinds[p] == RUN}
            seconds = problem.values[v].nbytes / link.fetch_bytes_per_s
        elif kind == STORE:
            seconds = problem.values[v].nbytes / link.store_bytes_per_s
        else:
            seconds = problem.tasks[schedule.task[s]].seconds
            busy += seconds
        end.append(max((end[p] for p in before), default=0.0) + seconds)
        made.update((o, s) for o in schedule.outputs[s] if o >= 0)
    last = max((e for e, k in zip(end, schedule.kinds) if k == RUN), default=0.0)
    assert schedule.waiting_seconds == pytest.approx(last - busy)


# -- the search ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rate", [6.0, 60.0])
def test_small_problems_are_solved_nearly_as_well_as_by_trying_everything(seed, rate):
    problem = linked(random_problem(seed, 6), rate)
    costs = [Evaluator(problem).one(c) for c in itertools.product((-1, 0, 1), repeat=problem.num_forward)]
    least, most = min(b for b, _ in costs), max(b for b, _ in costs)
    total, best = 0.0, 0.0
    for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        arena = least + int(share * (most - least))
        try:
            plan = plan_memory(problem, problem.fixed_total + arena + 64)
        except MemoryBudgetError:
            pytest.fail(f"a plan of {arena} bytes exists")
        check(plan, plan.predecessors)
        optimum = min(s for b, s in costs if b <= arena)
        assert plan.schedule.extra_seconds <= 1.5 * optimum + 4.0
        total, best = total + plan.schedule.extra_seconds, best + optimum
    assert total <= 1.05 * best + 0.1


def test_a_link_never_makes_plans_slower_and_often_faster():
    problem = residual(4, 2, 64000)
    full = plan_memory(problem).arena_bytes
    gains = []
    for share in (0.9, 0.6):
        budget = problem.fixed_total + int(share * full)
        plain = plan_memory(problem, budget)
        plans = [plan_memory(linked(problem, rate), budget) for rate in (400.0, 6400.0, 64000.0)]
        for plan in plans:
            assert plan.peak_bytes <= budget
            check(plan, plan.predecessors)
        times = [p.schedule.extra_seconds for p in (plain, *plans)]
        assert times == sorted(times, reverse=True)
        gains.append(times[-1] / times[0])
    assert gains == [0.0, 0.0]  # of the fastest link nothing is left to see


def test_both_means_are_mixed_where_the_link_is_slow():
    problem = residual(5, 2, 64000)
    budget = problem.fixed_total + int(0.45 * plan_memory(problem).arena_bytes)
    plan = plan_memory(linked(problem, 1600.0), budget)
    assert plan.offloaded > 0
    assert plan.recomputed > 0
    assert plan.schedule.extra_seconds < 0.9 * plan_memory(problem, budget).schedule.extra_seconds


@pytest.mark.parametrize("capacity", [0, 64_000, 200_000])
def test_the_capacity_of_host_memory_is_kept(capacity):
    problem = linked(residual(4, 2, 64000), 6400.0, capacity)
    full = plan_memory(problem).arena_bytes
    for share in (0.8, 0.65):
        plan = plan_memory(problem, problem.fixed_total + int(share * full))
        assert plan.host_bytes <= capacity
        assert plan.offloaded or capacity == 0


def test_a_larger_budget_is_never_slower():
    problem = linked(residual(5, 2, 6400), 640.0)
    full = plan_memory(problem)
    assert full.schedule.kind == ()
    times = []
    for share in np.linspace(0.3, 1.0, 15):
        try:
            times.append(plan_memory(problem, int(share * full.peak_bytes)).schedule.extra_seconds)
        except MemoryBudgetError as error:
            assert plan_memory(problem, error.least_feasible_bytes).peak_bytes == error.least_feasible_bytes
    assert times == sorted(times, reverse=True)
    assert len(times) > 8


def test_live_bytes_of_the_evaluator_are_those_of_the_plan():
    for seed in range(20):
        problem, counts = drawn(seed)
        nbytes, seconds = Evaluator(problem).one(counts)
        plan = make_plan(problem, counts)
        assert (nbytes, seconds) == (plan.max_live_bytes, plan.schedule.extra_seconds)
        assert nbytes == live_buffers(plan.schedule).max_live_bytes


# -- plans as text and data ------------------------------------------------------------------------------


def test_the_summary_names_host_memory_where_it_may_be_used():
    problem = residual(4, 2)
    assert "host memory" not in make_plan(problem).summary()
    plan = make_plan(linked(problem), [OFFLOADED] * problem.num_forward)
    assert f"({plan.offloaded} arrays copied out and back" in plan.summary()


def test_a_file_of_version_1_is_refused_by_its_number():
    text = make_plan(residual(3, 1)).to_json()
    old = text.replace('"mxlite_memory_plan": 9', '"mxlite_memory_plan": 1')
    assert old != text
    with pytest.raises(FormatError, match="version 9; its version is '1'"):
        MemoryPlan.from_json(old)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"kind": [0, ', '"kind": [3, ', 1),
        lambda text: text.replace('"kind": [0, ', '"kind": [', 1),
        lambda text: text.replace('"host_bytes": ', '"host_bytes": 0, "was": ', 1),
        lambda text: text.replace('"store_bytes_per_s": 40.0', '"store_bytes_per_s": 0', 1),
        lambda text: text.replace('"host_offsets": [0', '"host_offsets": ["x"', 1),
        lambda text: text.replace('"host_offsets": [0', '"host_offsets": [-64', 1),
        lambda text: text.replace('"host_offsets": [0', '"host_offsets": [64', 1),
    ],
)
def test_a_broken_file_is_refused(change):
    problem = linked(residual(3, 2))
    text = make_plan(problem, [OFFLOADED] * problem.num_forward).to_json()
    assert change(text) != text
    with pytest.raises((FormatError, PlanError)):
        MemoryPlan.from_json(change(text))


@pytest.mark.parametrize("rate", [0, -1.0, float("inf"), float("nan"), 1e-300, 1e300, "12e9", True, None])
def test_rates_of_a_link_are_positive(rate):
    with pytest.raises(BindError, match="store_bytes_per_s"):
        HostLink(store_bytes_per_s=rate)
    with pytest.raises(BindError, match="fetch_bytes_per_s"):
        HostLink(fetch_bytes_per_s=rate)
    for capacity in (-1, "4GiB", 1e9, True, -(10**5000)):
        with pytest.raises(BindError, match="capacity"):
            HostLink(capacity=capacity)


# -- bound programs --------------------------------------------------------------------------------------


def convolutional():
    h = sym.Variable("data")
    for i in range(4):
        h = sym.Convolution(h, num_filter=6, kernel=(3, 3), pad=(1, 1), name=f"conv{i}")
        h = sym.Activation(sym.BatchNorm(h, fix_gamma=False, name=f"bn{i}"), act_type="relu")
        h = sym.Dropout(h, p=0.3) if i % 2 else h
    return sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=4, name="fc"), name="softmax")


def recurrent(steps=3, hidden=6):
    x = sym.SliceChannel(sym.Variable("data"), num_outputs=steps, squeeze_axis=True)
    w = [sym.Variable(n) for n in ("wx", "wh")]
    h = c = None
    for t in range(steps):
        z = sym.FullyConnected(x[t], w[0], num_hidden=4 * hidden, no_bias=True, name=f"x{t}")
        if h is not None:
            z = z + sym.FullyConnected(h, w[1], num_hidden=4 * hidden, no_bias=True, name=f"h{t}")
        i, f, o, g = sym.SliceChannel(z, num_outputs=4)
        c = sym.sigmoid(i) * sym.tanh(g) + (0 if c is None else sym.sigmoid(f) * c)
        h = sym.sigmoid(o) * sym.tanh(c)
    return sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=4, name="fc"), name="softmax")


NETS = {
    "convolutional": (convolutional, dict(data=(4, 3, 8, 8), softmax_label=(4,))),
    "recurrent": (recurrent, dict(data=(4, 3, 5), softmax_label=(4,))),
}


@pytest.fixture
def judged(monkeypatch):
    monkeypatch.setenv("MXLITE_CHECK_PLAN", "1")


def two_steps(exe):
    """Gradients, outputs and states after two steps from fixed numbers."""
    draw = np.random.default_rng(0)
    for name, a in exe.arg_dict.items():
        a[:] = np.arange(4) if name.endswith("label") else draw.normal(size=a.shape) * 0.5
    mx.random.seed(5)
    for _ in range(2):
        exe.forward(is_train=True)
        exe.backward()
    arrays = [*exe.grad_arrays, *exe.outputs, *exe.aux_arrays]
    return [a.asnumpy() for a in arrays if a is not None]


def same(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b))


def with_counts(monkeypatch, pattern):
    """Bind with mirror counts that repeat `pattern`, whatever the planner would choose."""

    def plan(steps, budget=None, template=None):
        problem = steps.free
        if problem.host is None:
            return planned(steps, budget, template)
        n = problem.num_forward
        return replace(make_plan(problem, (pattern * n)[:n], strategy=steps.strategy), steps=steps)

    planned = LazySteps.plan
    monkeypatch.setattr(LazySteps, "plan", plan)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("pattern", [[-1], [-1, 0, 1], [1, -1], [-1, -1, 2]])
def test_results_are_those_of_keeping_everything_bit_for_bit(name, pattern, monkeypatch, judged):
    make, shapes = NETS[name]
    wanted = two_steps(make().simple_bind(mx.cpu(), **shapes))
    with_counts(monkeypatch, pattern)
    for bulk, engine in (("1", "threaded"), ("7", "threaded"), ("64", "naive")):
        monkeypatch.setenv("MXLITE_BULK_SIZE", bulk)
        with use_engine(mx.engine.NaiveEngine() if engine == "naive" else mx.engine.ThreadedEngine(4)):
            exe = make().simple_bind(mx.cpu(), offload="auto", **shapes)
            plan = exe.memory_plan
            assert plan.offloaded > 3
            assert same(two_steps(exe), wanted)
            assert exe.measured_bytes == plan.peak_bytes
            assert exe.measured_host_bytes == plan.host_bytes > 0


def test_guard_bytes_stand_around_fetched_arrays_too(monkeypatch, judged):
    make, shapes = NETS["convolutional"]
    wanted = two_steps(make().simple_bind(mx.cpu(), **shapes))
    monkeypatch.setattr(guard, "on", True)
    with_counts(monkeypatch, [-1, 0, 1])
    exe = make().simple_bind(mx.cpu(), offload="auto", **shapes)
    assert same(two_steps(exe), wanted)
    assert exe.memory_plan.offloaded
    assert exe.guard_bytes > 0


@pytest.mark.parametrize("name", NETS)
def test_every_budget_is_kept_and_changes_no_result(name, judged):
    make, shapes = NETS[name]
    net = make()
    link = HostLink(2e9, 2e9)
    full = net.simple_bind(mx.cpu(), **shapes)
    wanted, most = two_steps(full), full.memory_plan.peak_bytes
    with pytest.raises(MemoryBudgetError) as caught:
        net.memory_plan(mx.cpu(), memory_budget=1, offload=link, **shapes)
    least, used = caught.value.least_feasible_bytes, 0
    for share in (0.0, 0.4, 0.9):
        budget = least + int(share * (most - least))
        exe = net.simple_bind(mx.cpu(), memory_budget=budget, offload=link, **shapes)
        used += exe.memory_plan.offloaded
        assert same(two_steps(exe), wanted)
        assert exe.measured_bytes == exe.memory_plan.peak_bytes <= budget
        assert exe.measured_host_bytes == exe.memory_plan.host_bytes
    assert used


def test_without_offload_nothing_changes():
    make, shapes = NETS["convolutional"]
    net = make()
    assert net.memory_plan(mx.cpu(), **shapes) == net.memory_plan(mx.cpu(), offload=None, **shapes)
    exe = net.simple_bind(mx.cpu(), offload="auto", **shapes)
    assert exe.memory_plan.schedule.kind == ()  # no budget, no copies
    two_steps(exe)
    assert exe.measured_host_bytes == 0


def test_bind_reshape_and_module_take_it_too(monkeypatch, judged):
    make, shapes = NETS["convolutional"]
    with_counts(monkeypatch, [-1, 0])
    exe = make().simple_bind(mx.cpu(), offload="1MiB", **shapes)
    assert exe.memory_plan.problem.host == HostLink(capacity=1 << 20)
    again = exe.reshape(data=(2, 3, 8, 8), softmax_label=(2,), allow_up_sizing=True)
    assert again.memory_plan.problem.host == HostLink(capacity=1 << 20)
    bound = make().bind(mx.cpu(), exe.arg_dict, exe.grad_dict, aux_states=exe.aux_dict, offload=1 << 20)
    assert bound.memory_plan.offloaded
    module = mx.mod.Module(make(), context=mx.cpu(), offload="auto")
    module.bind([("data", (4, 3, 8, 8))], [("softmax_label", (4,))])
    assert module.memory_plan.problem.host == HostLink()


@pytest.mark.parametrize(("given", "error"), [("lots", BudgetError), (0, BudgetError), (True, BindError)])
def test_what_offload_cannot_be(given, error):
    make, shapes = NETS["convolutional"]
    with pytest.raises(error):
        make().memory_plan(mx.cpu(), offload=given, **shapes)


def test_host_memory_that_is_not_there_is_an_error_with_a_name(monkeypatch):
    make, shapes = NETS["convolutional"]
    with_counts(monkeypatch, [-1])
    exe = make().simple_bind(mx.cpu(), offload="auto", **shapes)
    exe._arena.host_nbytes = 1 << 60
    with pytest.raises(OutOfMemoryError, match="offload="):
        exe.forward(is_train=True)


def test_steps_that_copy_have_names_for_people(monkeypatch):
    make, shapes = NETS["convolutional"]
    with_counts(monkeypatch, [-1])
    exe = make().simple_bind(mx.cpu(), offload="auto", **shapes)
    two_steps(exe)
    text = exe.debug_str()
    assert text.count("to the host") == text.count("from the host") == exe.memory_plan.offloaded
    facts = exe._train.segments[0].sheet.facts
    assert len(facts) == len(exe.memory_plan.schedule.task)
    assert sum(f.name.endswith("to the host") for f in facts) == exe.memory_plan.offloaded
