"""Recurrent layers' parameters are updated from the gates' gradients, which take the place of the gates."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.fused import tile_sizes
from mxlite.memplan import check
from mxlite.ops.index.embedding import Embedding
from mxlite.ops.nn.dense import FullyConnected
from tests.backends.cpu.fast_kernels import only

LEAST_BYTES = tile_sizes.LEAST_UPDATE
STEPS, BATCH, INPUTS, HIDDEN = 21, 17, 20, 24

pytestmark = pytest.mark.skipif(
    not usable() or library() is None, reason="gates are kept where there is generated code for the steps"
)


@pytest.fixture
def joined(monkeypatch):
    """Programs bound here update parameters of any size in tiles of 32 rows at most, unless told not to."""
    for name in ("UPDATE_BYTES", "DEEP_UPDATE_BYTES"):
        monkeypatch.setattr(tile_sizes, name, 32 * 4 * HIDDEN)

    def use(least_bytes=0):
        monkeypatch.setattr(tile_sizes, "LEAST_UPDATE", least_bytes)

    use()
    return use


def network(mode="lstm", layers=2, states=False, below=0, hidden=HIDDEN, **attrs):
    """`below`: dense layers under the recurrent ones."""
    x = mx.sym.var("data")
    for i in range(below):
        x = mx.sym.FullyConnected(x, num_hidden=4 * HIDDEN, flatten=False, name=f"fc{i}")
        x = mx.sym.Activation(x, act_type="tanh")
    names = ["state", "state_cell"] if mode == "lstm" else ["state"]
    given = {n: mx.sym.var(n) for n in names}
    made = mx.sym.RNN(
        x, mx.sym.var("weights"), mode=mode, num_layers=layers, state_size=hidden,
        state_outputs=states, name="rnn", **given, **attrs,
    )  # fmt: skip
    heads = [mx.sym.mean(mx.sym.square(made[i] - 0.25)) for i in range(len(made.list_outputs()))]
    return mx.sym.MakeLoss(sum(heads[1:], heads[0]))


def bound(net, optimizer=None, **how):
    optimizer = mx.optimizer.SGD(momentum=0.9, wd=0.01) if optimizer is None else optimizer
    return net.simple_bind(mx.cpu(), optimizer=optimizer, data=(STEPS, BATCH, INPUTS), **how)


def trained(net, optimizer=None, **how):
    """Arrays after some steps, and the plan."""
    exe = bound(net, optimizer, **how)
    rng = np.random.default_rng(0)
    for array in exe.arg_dict.values():
        array[:] = rng.standard_normal(array.shape) / 4
    for t in range(3):
        exe.step([[0.5 / (t + 1), 0.01] for _ in exe.updated])
    check(exe.memory_plan)
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    arrays = exe.arg_dict | exe.optimizer_states
    return {n: a.asnumpy() for n, a in arrays.items()}, exe.memory_plan


def operators(plan):
    return [t.op for t in plan.problem.tasks]


NETS = {
    "lstm": {},
    "one layer": {"layers": 1},
    "states are outputs": {"states": True},
    "both directions": {"bidirectional": True},
    "gru": {"mode": "gru"},
    "gru, both directions": {"mode": "gru", "bidirectional": True, "states": True},
}


@pytest.mark.parametrize("amp", [None, "bfloat16"])
@pytest.mark.parametrize("kinds", ["onednn,compiled", "updates by numpy"])
@pytest.mark.parametrize("attrs", NETS.values(), ids=NETS)
def test_numbers_are_those_of_a_whole_gradient_in_fewer_bytes(joined, attrs, kinds, amp, monkeypatch):
    net = network(**attrs)
    if kinds == "updates by numpy":
        from mxlite.backends.cpu.backend import CPU
        from mxlite.backends.fused.rnn_update import RnnGateGradients

        for op in (RnnGateGradients, FullyConnected.grad_op):
            monkeypatch.setitem(CPU.kernels.found, op, ())
    now, plan = trained(net, amp=amp)
    assert "_rnn_update" in operators(plan)
    chosen = {t.op: t.kernel for t in plan.problem.tasks}
    assert ("reference" not in chosen["_rnn_update"]) == (kinds == "onednn,compiled")
    joined(1 << 30)
    before, whole = trained(net, amp=amp)
    assert "_rnn_update" not in operators(whole)
    for name in before:
        np.testing.assert_allclose(now[name], before[name], rtol=2e-4, atol=2e-6, err_msg=name)
    if kinds == "onednn,compiled":
        assert plan.arena_bytes < whole.arena_bytes


@pytest.mark.parametrize("optimizer", [mx.optimizer.Adam(), mx.optimizer.SGD(), mx.optimizer.RMSProp()])
def test_any_step_made_element_by_element_will_do(joined, optimizer):
    now, plan = trained(network(), optimizer)
    assert "_rnn_update" in operators(plan)
    joined(1 << 30)
    before, _ = trained(network(), optimizer)
    for name in before:
        np.testing.assert_allclose(now[name], before[name], rtol=1e-3, atol=3e-5, err_msg=name)


def test_gradients_of_gates_lie_where_gates_lay(joined):
    plan = bound(network()).memory_plan
    task = next(t for t in plan.problem.tasks if t.op == "_rnn_gate_gradients")
    names = {v: plan.problem.values[v].name for v in (*task.inputs, *task.outputs) if v >= 0}
    (pair,) = [(out, into) for out, into in task.in_place if names[out].endswith("d_gates")]
    assert names[pair[1]] == "rnn.gates"
    size = next(v.nbytes for v in plan.problem.values if v.name == "weights")
    assert [v.name for v in plan.problem.values if v.nbytes == size and not v.fixed] == []


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_rows_of_a_table_are_looked_up_again_for_the_update(mode, joined, monkeypatch):
    """The gradients of the gates, which come before, do without what the layers read."""
    for name in ("remat_at_peak", "cheap_remat"):
        module = importlib.import_module(f"mxlite.backends.passes.remat.{name}")
        monkeypatch.setattr(module, "LEAST_BYTES", 0)
        if name == "remat_at_peak":
            monkeypatch.setattr(module, "SHARE", 1e30)
    found = []
    for cheap in (True, False):
        monkeypatch.setattr(Embedding, "cheap", cheap)
        table = mx.sym.Embedding(mx.sym.var("data"), mx.sym.var("table"), input_dim=9, output_dim=HIDDEN)
        layers = mx.sym.RNN(
            table, mx.sym.var("weights"), mx.sym.var("state"),
            *([mx.sym.var("cell")] if mode == "lstm" else []), mode=mode, num_layers=2, state_size=HIDDEN,
        )  # fmt: skip
        net = mx.sym.MakeLoss(mx.sym.mean(mx.sym.square(layers - 0.25)))
        exe = net.simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), data=(STEPS, BATCH))
        rng = np.random.default_rng(0)
        for array in exe.arg_dict.values():
            array[:] = rng.standard_normal(array.shape) / 4
        exe.arg_dict["data"][:] = rng.integers(0, 9, (STEPS, BATCH))
        for _ in range(3):
            exe.step([[0.5, 0.01] for _ in exe.updated])
        check(exe.memory_plan)
        again = [t.name for t in exe.memory_plan.problem.tasks if t.op == "Embedding"]
        assert [n.endswith("_remat") for n in again] == ([False, True] if cheap else [False])
        arrays = exe.arg_dict | exe.optimizer_states
        found.append(({n: a.asnumpy().tobytes() for n, a in arrays.items()}, exe.memory_plan.peak_bytes))
    assert found[0][0] == found[1][0]
    assert found[0][1] < found[1][1]


@pytest.mark.parametrize("mode, hidden", [("lstm", 5), ("gru", 7), ("gru", 1)])
def test_few_hidden_states_have_the_bits_of_a_whole_gradient(joined, mode, hidden):
    """A plan that keeps no gates makes that one; products of few columns are oneDNN's in both."""
    net = network(mode, hidden=hidden, bidirectional=True)
    now, plan = trained(net, amp="bfloat16")
    joined(1 << 30)
    before, whole = trained(net, amp="bfloat16")
    kernels = {t.op: t.kernel for t in plan.problem.tasks}
    assert " rows, " in kernels["_rnn_update"] and "_rnn_update" not in operators(whole)
    for name in before:
        np.testing.assert_array_equal(now[name], before[name], err_msg=name)


def test_every_budget_gives_the_same_bits(joined):
    now, plan = trained(network(below=3))
    with pytest.raises(mx.MemoryBudgetError) as refused:
        bound(network(below=3), memory_budget=1)
    least = refused.value.least_feasible_bytes
    assert least < plan.peak_bytes
    again, under = trained(network(below=3), memory_budget=least)
    assert under.peak_bytes <= least
    assert [n for n in now if now[n].tobytes() != again[n].tobytes()] == []


@pytest.mark.parametrize(
    "attrs, how",
    {
        "dropout between layers": ({"p": 0.5}, {}),
        "lengths": ({"use_sequence_length": True, "sequence_length": mx.sym.var("lengths")}, {}),
        "no gates": ({"mode": "rnn_tanh"}, {}),
        "a norm of all gradients": ({}, {"optimizer": mx.optimizer.LAMB()}),
        "parameters of 16 bits": ({}, {"amp": "bfloat16", "type_dict": {"weights": "bfloat16"}}),
    }.values(),
)
def test_others_keep_the_whole_gradient(joined, attrs, how):
    assert "_rnn_update" not in operators(bound(network(**attrs), **how).memory_plan)


def test_small_parameters_and_reference_kernels_keep_the_whole_gradient(joined):
    with only("reference"):
        assert "_rnn_update" not in operators(bound(network()).memory_plan)
    joined(LEAST_BYTES)
    assert "_rnn_update" not in operators(bound(network()).memory_plan)
