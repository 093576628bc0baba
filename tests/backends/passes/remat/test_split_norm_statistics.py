"""Norms whose statistics plans within a budget keep: which do; the same bits; averages move once."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.gpu import passes as gpu
from mxlite.memplan import check
from tests.backends.gpu.gpu_programs import fused_steps, get, GPU, recorded_gpus
from tests.backends.passes.pass_lists import left_out
from tests.backends.passes.remat.test_remat_at_peak import conv, head, norm, relu
from tests.emulators.emulated_device import compiler
from tests.networks.small_networks import fill_by_kind

PASS = importlib.import_module("mxlite.backends.passes.remat.split_norm_statistics")
SGD = mx.optimizer.SGD(momentum=0.9)
SHAPES = dict(data=(2, 3, 6, 5), softmax_label=(2,))
WHOLE = 2**40  # a budget for everything

needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.fixture(autouse=True)
def small(monkeypatch: Any) -> None:
    """Norms of small networks count, and those that one launch could do; none is divided for a chain."""
    left_out(monkeypatch, "norm_chains", "inline_remat", of=gpu)
    monkeypatch.setattr(PASS, "LEAST_COUNT", 8)
    monkeypatch.setattr("mxlite.backends.gpu.handwritten.channels.AT_ONCE_ROUNDS", 0)


def bound(symbol: Any, ctx: Any, budget: int | None, **how: Any) -> Any:
    exe = symbol.simple_bind(ctx, optimizer=SGD, memory_budget=budget, **SHAPES, **how)
    fill_by_kind(exe, 0.2)
    return exe


def operators(symbol: Any, ctx: Any = None, budget: int | None = WHOLE, **how: Any) -> dict[str, str]:
    plan = symbol.memory_plan(ctx or mx.gpu(), optimizer=SGD, memory_budget=budget, **(SHAPES | how))
    return {t.name: t.op for t in plan.problem.tasks}


def trained(exe: Any) -> list[np.ndarray]:
    found = [x for some in fused_steps(exe, 0.1, 1) for x in some]
    return [*found, *(get(x) for x in exe.aux_dict.values())]


def network(blocks: int = 2) -> Any:
    """Norms alone, with a rectifier, with a sum before it and behind it; the first shows its statistics."""
    x = conv(mx.sym.var("data"), "stem")
    x, mean, var = mx.sym.BatchNorm(x, fix_gamma=False, output_mean_var=True, name="stem_bn")
    x = relu(x, "stem_relu")
    for i in range(blocks):
        y = relu(norm(conv(x, f"a{i}", 8), f"a{i}_bn"), f"a{i}_relu")
        x = relu(norm(conv(y, f"b{i}"), f"b{i}_bn") + x, f"b{i}_relu")
        y = mx.sym.tanh(norm(conv(x, f"c{i}", 8), f"c{i}_bn"), name=f"c{i}_tanh")
        x = mx.sym.elemwise_add(relu(norm(conv(y, f"d{i}"), f"d{i}_bn"), f"d{i}_relu"), x, name=f"d{i}_sum")
    return mx.sym.Group([head(x), mean, var])


def least(symbol: Any, ctx: Any, **how: Any) -> int:
    """The least budget."""
    with pytest.raises(mx.MemoryBudgetError) as refused:
        symbol.memory_plan(ctx, optimizer=SGD, memory_budget=1, **SHAPES, **how)
    found: int = refused.value.least_feasible_bytes
    return found


def agree(symbol: Any, ctx: Any, monkeypatch: Any, *budgets: int | None, **how: Any) -> None:
    """Within the least budget, and within others, the bits are those of norms in one; averages move once."""
    with monkeypatch.context() as m:
        m.setattr(PASS, "LEAST_COUNT", 2**40)
        undivided = bound(symbol, ctx, WHOLE, **how)
    want = trained(undivided)
    assert "_norm_statistics" not in {t.op for t in undivided.memory_plan.problem.tasks}
    for budget in (least(symbol, ctx, **how), *budgets):
        exe = bound(symbol, ctx, budget, **how)
        plan = exe.memory_plan
        check(plan)
        tasks = plan.problem.tasks
        assert ("_norm_statistics" in {t.op for t in tasks}) == (budget is not None)
        again = {tasks[t].op for t, k in zip(plan.schedule.task, plan.schedule.copy) if k}
        assert ("_norm_again" in again) == (budget not in budgets) and "_norm_statistics" not in again
        for i, (x, y) in enumerate(zip(trained(exe), want, strict=True)):
            np.testing.assert_array_equal(x, y, err_msg=str(i))
        assert exe.measured_bytes == plan.peak_bytes


@needs_compiler
def test_a_step_on_a_gpu_has_the_bits_of_norms_in_one(monkeypatch):
    with recorded_gpus():
        agree(network(1), GPU, monkeypatch, WHOLE, None)


def test_a_norm_is_divided_within_a_budget_alone():
    within, without = operators(network()), operators(network(), budget=None)
    for name in ("a0_relu", "b0_relu", "c1_bn"):
        assert within[name] == "_norm_again" and within[f"{name}_statistics"] == "_norm_statistics"
        assert without[name] in ("_norm_act_line", "_norm_act", "BatchNorm")
    assert "_norm_statistics" not in without.values()
    # Without gradients nothing runs again.
    plan = network().memory_plan(mx.gpu(), grad_req="null", memory_budget=WHOLE, **SHAPES)
    assert "_norm_statistics" not in {t.op for t in plan.problem.tasks}


def stays(**how: Any) -> Any:
    return head(mx.sym.tanh(mx.sym.BatchNorm(conv(mx.sym.var("data"), "a"), name="bn", **how)))


def test_which_norms_stay_in_one(monkeypatch):
    assert operators(stays())["bn"] == "_norm_again"
    assert operators(stays(use_global_stats=True))["bn"] == "BatchNorm"
    rows = mx.sym.BatchNorm(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=4, name="fc"), name="bn")
    loss = mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(rows)))
    for net, op in ((loss, "_norm_again"), (mx.sym.Group([loss, rows]), "BatchNorm")):  # there in any case
        tasks = net.memory_plan(mx.gpu(), memory_budget=WHOLE, data=(32, 5)).problem.tasks
        assert next(t.op for t in tasks if t.name == "bn") == op
    monkeypatch.setattr(PASS, "LEAST_COUNT", 2 * 6 * 5 + 1)
    assert operators(stays())["bn"] == "BatchNorm"
    assert operators(stays(), data=(3, 3, 6, 5), softmax_label=(3,))["bn"] == "_norm_again"


def test_gpus_say_how_often_norms_read_their_data():
    """Statistics read it, and what is made of them reads it again; so does the gradient."""

    def seconds(budget: int | None) -> dict[str, float]:
        net = head(relu(norm(conv(mx.sym.var("data"), "a"), "bn"), "r"))
        rates = mx.memplan.Device(flops_per_s=1e30, bytes_per_s=2 * 16 * 6 * 5 * 4)
        plan = net.memory_plan(GPU, optimizer=SGD, memory_budget=budget, device=rates, **SHAPES)
        return {t.name: t.seconds for t in plan.problem.tasks}

    assert seconds(None)["r"] == pytest.approx(3, abs=0.2)  # passes over data, data, result
    found = seconds(WHOLE)
    assert found["r_statistics"] == pytest.approx(1, abs=0.2)
    assert found["r"] == pytest.approx(2, abs=0.2)
    assert found["r_backward"] == pytest.approx(5, abs=0.2)  # twice over two, and over what it makes
