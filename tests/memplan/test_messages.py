"""Messages among ranks: their places in the order, the waits for them, and what a plan has ranks share."""

from __future__ import annotations

from dataclasses import replace

import pytest

import mxlite as mx
from mxlite.memplan import check, Ranks
from mxlite.memplan.cost.rank_link import RankLink
from mxlite.memplan.order.messages import overlapped, with_message_times
from mxlite.memplan.problem import Problem, Task, Value

LINK = Ranks(2, RankLink(bytes_per_s=1e6, latency_s=0.0))
"""A sum of 1000 bytes over two ranks takes 1 ms."""


def backward(seconds, updates=True):
    """A loss, then for each layer its gradient, of 1000 bytes, and the sum of that; the updates come last."""
    values = [Value("loss", 4)]
    tasks = [Task("loss", "loss", (), (0,), seconds=0.001)]
    token, late = (), []
    for i in range(4):
        g, s = len(values), len(values) + 1
        values += [Value(f"g{i}", 1000), Value(f"sum{i}", 1000), Value(f"token{i}", 4)]
        tasks.append(Task(f"d{i}", "d", (0,), (g,), seconds=seconds))
        sums = dict(exchanges=1000, recomputable=False)
        tasks.append(Task(f"m{i}", "_sum", (g, *token), (s, s + 1), ((s, g),), **sums))
        token = (s + 1,)
        late.append(Task(f"u{i}", "u", (s,), (), update=True, seconds=1e-5))
    return Problem((*tasks, *(late if updates else ())), tuple(values), 1)


def names(problem, order):
    return [problem.tasks[t].name for t in order]


def ordered(problem, order):
    return replace(problem, tasks=tuple(problem.tasks[t] for t in order))


def test_a_message_has_its_place_where_it_ends():
    problem = backward(0.0005)  # two kernels take as long as a message
    order = names(problem, overlapped(problem, LINK))
    assert order == ["loss", "d0", "d1", "d2", "m0", "d3", "m1", "m2", "m3", "u0", "u1", "u2", "u3"]


def test_kernels_wait_for_no_message_that_is_over():
    problem = backward(0.002)
    order = overlapped(problem, LINK)
    assert names(problem, order)[:7] == ["loss", "d0", "d1", "m0", "d2", "m1", "d3"]
    timed = with_message_times(ordered(problem, order), LINK)
    waits = {t.name: t.seconds for t in timed.tasks if t.exchanges}
    assert waits == {
        "m0": 0,
        "m1": 0,
        "m2": 0,
        "m3": pytest.approx(0.001),
    }  # nothing is left to hide the last


def test_without_overlap_kernels_wait_for_each_message():
    timed = with_message_times(backward(0.002), LINK)
    assert [t.seconds for t in timed.tasks if t.exchanges] == pytest.approx([0.001] * 4)


def test_who_reads_a_sum_comes_behind_it():
    problem = backward(0.0001)
    reader = Task("look", "look", (problem.tasks[2].outputs[0],), (), seconds=0.0)
    problem = replace(problem, tasks=(*problem.tasks[:5], reader, *problem.tasks[5:]))
    order = names(problem, overlapped(problem, LINK))
    assert order.index("m0") < order.index("look") < order.index("m1")


def test_an_order_for_messages_stays_when_it_is_made_again():
    problem = backward(0.0005)
    once = ordered(problem, overlapped(problem, LINK))
    again = overlapped(with_message_times(once, LINK), LINK)
    assert again == tuple(range(len(once.tasks)))


@pytest.mark.parametrize(
    "text, rate, latency",
    [("20GB/s", 20e9, 20e-6), ("10Gbit/s", 1.25e9, 20e-6), ("1.5 MB/s, 5us", 1.5e6, 5e-6)],
)
def test_a_link_is_read_from_text(text, rate, latency):
    found = RankLink.of(text)
    assert (found.bytes_per_s, found.latency_s) == pytest.approx((rate, latency))


@pytest.mark.parametrize("wrong", ["fast", "20GB", 3, "0GB/s", "1GB/s,2000000us", "9" * 200])
def test_a_link_that_is_none_is_refused(wrong):
    with pytest.raises(mx.BindError, match=r"link must be a rate|bytes_per_s above 0"):
        RankLink.of(wrong)


def net():
    x = mx.sym.Variable("data")
    for i in range(6):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=256, name=f"fc{i}"), act_type="relu")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def plan(ranks, budget=None):
    shapes = dict(data=(64, 256), softmax_label=(64,))
    found = net().memory_plan(
        mx.cpu(), optimizer=mx.optimizer.Adam(), ranks=ranks, memory_budget=budget, **shapes
    )
    check(found)
    return found


def test_ranks_share_the_states_only_where_a_budget_asks_for_it():
    alone, four = plan(1), plan(4)
    assert four.breakdown["optimizer"] == alone.breakdown["optimizer"]
    tight = plan(4, four.peak_bytes - four.breakdown["optimizer"] // 2)
    assert tight.breakdown["optimizer"] < 0.3 * four.breakdown["optimizer"]
    assert "updates that ranks share" in tight.summary() and "messages to ranks" in four.summary()
    assert plan(Ranks(4, shard="optimizer")).breakdown["optimizer"] == tight.breakdown["optimizer"]
    with pytest.raises(mx.MemoryBudgetError):
        plan(Ranks(4, shard="none"), tight.budget_bytes)


def test_a_refused_budget_names_the_ranks_that_would_do():
    peak = plan(1).peak_bytes
    with pytest.raises(mx.MemoryBudgetError, match=r"\d+ ranks that share the optimizer's states.*: fits"):
        plan(1, int(0.6 * peak))


def test_a_slow_link_is_waited_for_where_bytes_are_short():
    most = plan(Ranks(4, "1GB/s", "none"))
    least = plan(Ranks(4, "1GB/s", "none"), most.peak_bytes - 300_000)
    assert least.problem.instead == "kernels that wait for messages"
    assert least.peak_bytes < most.peak_bytes


def test_what_was_planned_for_ranks_is_not_run_by_one_process():
    with pytest.raises(mx.BindError, match=r"planned for 2 ranks, but this process is one of 1.*launch -n 2"):
        net().simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(), ranks=2, data=(4, 256), softmax_label=(4,))


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": True}, {"count": 2.0}, {"shard": "states"}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(mx.BindError, match=r"ranks must be a number|shard must be one of"):
        Ranks(**wrong)


def test_ranks_share_weights_where_a_budget_asks_for_it():
    states, weights = plan(Ranks(4, shard="optimizer")), plan(Ranks(4, "20GB/s", "weights"))
    assert weights.breakdown["arguments"] < 0.3 * states.breakdown["arguments"]
    assert weights.breakdown["optimizer"] == states.breakdown["optimizer"]
    gathers = [t for t in weights.problem.tasks if t.op == "_gather_over_ranks"]
    assert len(gathers) == 6 and all(t.recomputable and t.phases == 1 and t.seconds > 0 for t in gathers)
    # A budget below what shared states need: weights are gathered, and gathered again.
    budget = int(0.8 * weights.peak_bytes)
    with pytest.raises(mx.MemoryBudgetError):
        plan(Ranks(4, "20GB/s", "auto-optimizer"), budget)
    tight = plan(Ranks(4, "20GB/s"), budget)
    assert tight.problem.instead.startswith("weights shared by the ranks")
    again = [tight.problem.tasks[t].op for t, k in zip(tight.schedule.task, tight.schedule.copy) if k]
    count = again.count("_gather_over_ranks")
    assert count and f"6 are weights that ranks share, {6 + count} times gathered" in tight.summary()
    steps = [tight.problem.tasks[t] for t in tight.schedule.task]
    updated = {t.mutates[0]: s for s, t in enumerate(steps) if t.update}
    reads = [(s, t.inputs[0]) for s, t in enumerate(steps) if t.op == "_gather_over_ranks"]
    assert all(s < updated[v] for s, v in reads), "a weight is gathered behind its update"
    # A budget that both fit: the faster one is taken, which gathers nothing.
    assert not any(
        t.op == "_gather_over_ranks" for t in plan(Ranks(4, "20GB/s"), states.peak_bytes).problem.tasks
    )
