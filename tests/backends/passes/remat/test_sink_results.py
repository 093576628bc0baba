"""Chains in two: what only backward reads is made there, where a budget asks for it."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.fused.computation import FusedComputation
from mxlite.backends.passes.remat.sink_results import is_of_use, sink_results
from mxlite.backends.rewrite import Step
from mxlite.graph import Entry
from mxlite.memplan import check, MemoryPlan

pytestmark = pytest.mark.skipif(not usable(), reason="chains are made where there is generated code for them")

CHAINS_IN_TWO = sink_results.instead
STEPS, LAYERS, BATCH, HIDDEN, CLASSES = 8, 2, 32, 32, 10
SIZES = dict(steps=STEPS, layers=LAYERS, hidden=HIDDEN, classes=CLASSES)
SHAPES = mx.models.shapes_of("lstm_unrolled", BATCH, **SIZES)
SGD = mx.optimizer.SGD(momentum=0.9)


SMALL = dict(steps=6, layers=1, hidden=HIDDEN, classes=CLASSES)
SMALL_SHAPES = mx.models.shapes_of("lstm_unrolled", 64, **SMALL)


def network():
    return mx.models.get("lstm_unrolled", **SIZES)


@cache
def plan(budget=None):
    return network().memory_plan(mx.cpu(), optimizer=SGD, memory_budget=budget, **SHAPES)


@cache
def least():
    with pytest.raises(mx.MemoryBudgetError) as found:
        plan(1)
    return found.value.least_feasible_bytes


def of_chains(plan):
    """Names of the chains of the backward pass that are the second part of one."""
    return [t.name for t in plan.problem.tasks if t.op == "_fused_computation" and t.name.endswith("_late")]


def test_an_unrolled_network_within_little_is_faster_where_gates_are_made_in_the_backward_pass():
    free = plan()
    usual, late = plan(2**40).steps
    assert not of_chains(free) and late.instead == CHAINS_IN_TWO and not usual.instead
    found = plan(least())
    assert len(of_chains(found)) == STEPS * LAYERS and CHAINS_IN_TWO in found.how
    alone = found.steps.only(usual)
    with pytest.raises(mx.MemoryBudgetError) as error:
        alone.plan(1)
    without = error.value.least_feasible_bytes
    assert found.peak_bytes < without and found.arena_bytes < 0.3 * free.arena_bytes
    assert plan(without).extra_time < 0.7 * alone.plan(without).extra_time


def test_no_budget_is_slower_than_a_smaller_one_and_both_steps_are_used():
    low, high = least(), plan(2**40).peak_bytes
    found = [plan(low + (high - low) * i // 6) for i in range(7)]
    extra = [p.extra_time for p in found]
    assert extra == sorted(extra, reverse=True) and extra[-1] == 0
    assert {bool(of_chains(p)) for p in found} == {False, True}
    for p in found:
        check(p)


@pytest.mark.parametrize("amp", [None, "bfloat16"])
def test_bits_are_the_same_and_planned_bytes_are_measured(amp):
    net = mx.models.get("lstm_unrolled", **SMALL)
    with pytest.raises(mx.MemoryBudgetError) as error:
        net.memory_plan(mx.cpu(), optimizer=SGD, memory_budget=1, amp=amp, **SMALL_SHAPES)
    low = error.value.least_feasible_bytes
    results = []
    for budget in (None, low):
        how = dict(optimizer=SGD, memory_budget=budget, amp=amp)
        exe = net.simple_bind(mx.cpu(), **how, **SMALL_SHAPES)
        rng = np.random.default_rng(0)
        for name, array in exe.arg_dict.items():
            whole = "label" in name
            array[:] = rng.integers(0, CLASSES, array.shape) if whole else rng.normal(0, 0.3, array.shape)
        for _ in range(3):
            exe.step([[0.1, 0.0] for _ in exe.updated])
        assert exe.measured_bytes == exe.memory_plan.peak_bytes <= (budget or 2**40)
        results.append({n: a.asnumpy() for n, a in exe.arg_dict.items()})
        if budget == low:
            assert of_chains(exe.memory_plan)
    assert [n for n, x in results[0].items() if x.tobytes() != results[1][n].tobytes()] == []


def test_forward_alone_and_a_plan_from_a_file():
    low = least()
    again = MemoryPlan.from_json(plan(low).to_json())
    exe = network().simple_bind(mx.cpu(), plan=again, optimizer=SGD, memory_budget=low, **SHAPES)
    assert of_chains(exe.memory_plan) and exe.memory_plan.extra_time == again.extra_time
    other = network().simple_bind(mx.cpu(), optimizer=SGD, **SHAPES)
    rng = np.random.default_rng(1)
    for name, array in exe.arg_dict.items():
        array[:] = rng.normal(0, 0.3, array.shape)
        other.arg_dict[name][:] = array
    for mode in (False, True):
        got, want = (e.forward(is_train=mode)[0].asnumpy() for e in (exe, other))
        assert got.tobytes() == want.tobytes()


def combined(symbol, **shapes):
    """A step with chains."""
    exe = symbol.simple_bind(mx.cpu(), optimizer=SGD, memory_budget=2**40, **shapes)
    assert not of_chains(exe.memory_plan)
    step = exe._planned.train.step
    return Step.of(step.graph, step.storage, step.num_forward)


def gated(head=lambda gate, new, out: out, **annotations):
    """data -> products x, z;  gate = sigmoid(x), out = gate * tanh(z) -> product; `head`: the outputs."""
    data = mx.sym.var("data")
    with mx.AttrScope(**annotations):
        x, z = (mx.sym.FullyConnected(data, num_hidden=64, name=n) for n in "xz")
        gate, new = mx.sym.sigmoid(x, name="gate"), mx.sym.tanh(z, name="new")
        out = gate * new
    last = mx.sym.FullyConnected(out, num_hidden=8, name="last")
    return head(gate, new, mx.sym.SoftmaxOutput(last, name="softmax"))


def test_what_others_read_stays_in_the_forward_pass():
    step = combined(gated(), data=(64, 64))
    assert is_of_use(step)
    made = sink_results.run(step, None)
    after, count = made.graph, made.num_forward
    chains = [n for n in after.nodes if n.op is FusedComputation]
    first, second = (n for n in chains if "gate" in n.name or "new" in n.name)
    operators = [n for n in after.nodes if n.op is not None]
    assert operators.index(first) < count == step.num_forward <= operators.index(second)
    assert first.num_outputs == 1 and second.num_outputs == 2 and second.after
    assert {first, second} <= {e.node for n in operators for e in n.inputs}
    assert all(e in after.shapes for n in chains for e in (Entry(n, i) for i in range(n.num_outputs)))


@pytest.mark.parametrize("seen", [lambda x: x, mx.sym.sum], ids=["an output", "a reader"])
def test_what_somebody_sees_of_a_chain_is_made_in_the_forward_pass(seen):
    step = combined(gated(lambda gate, new, out: mx.sym.Group([out, seen(new)])), data=(64, 64))
    made = sink_results.run(step, None)
    count, operators = made.num_forward, {n: i for i, n in enumerate(made.operators)}
    assert all(operators[e.node] < count for e in made.graph.outputs[:2])
    (late,) = (n for n in operators if n.name.endswith("_late"))
    assert late.num_outputs == 1 and [e.node.name for e in late.inputs] == ["x"]  # the gate's


def test_the_second_part_reads_what_it_needs():
    """Of both products the one that the hyperbolic tangent is of."""
    step = combined(gated(lambda gate, new, out: mx.sym.Group([out, mx.sym.sum(gate)])), data=(64, 64))
    made = sink_results.run(step, None)
    count, operators = made.num_forward, {n: i for i, n in enumerate(made.operators)}
    for node, i in operators.items():
        assert all(operators[e.node] < i for e in node.inputs if e.node in operators)
    (late,) = (n for n in operators if n.name.endswith("_late"))
    assert [e.node.name for e in late.inputs] == ["z"] and operators[late] >= count
    assert all(operators[e.node] < count for e in made.graph.outputs[:2])


def test_a_stage_that_the_user_marks_stays_whole():
    step = combined(gated(mirror_stage="True"), data=(64, 64))
    assert sink_results.run(step, None) is step and not is_of_use(step)


def test_networks_without_such_chains_have_one_step():
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64, name="one")
    x = mx.sym.FullyConnected(mx.sym.relu(x), num_hidden=8, name="two")
    found = mx.sym.SoftmaxOutput(x, name="softmax").memory_plan(
        mx.cpu(), optimizer=SGD, memory_budget=2**40, data=(64, 64)
    )
    assert len(list(found.steps)) == 1
