"""Casts of many small weights in few launches: the same bits, and bytes that are bounded."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import Backend
from mxlite.backends.gpu.grouping.group_casts import group_casts
from mxlite.backends.gpu.grouping.groups import GROUP_BYTES, SMALL_BYTES
from mxlite.backends.gpu.kernels.arithmetic import casts
from mxlite.backends.rewrite import Pipeline
from mxlite.memplan import check
from tests.emulators.emulated_device import compiler, EmulatedDevice
from tests.networks.grouped_programs import bind_with, network


@pytest.fixture
def backend(monkeypatch):
    """Programs bound here run casts on emulated kernels, in groups."""

    def use(grouped=True, kernels=True):
        device = EmulatedDevice()
        made = Backend("emulated", np, casts.rows(device) if kernels else {})
        if grouped:
            made = dataclasses.replace(made, optimize=lambda: Pipeline((group_casts,)))
        bind_with(monkeypatch, made)
        return device

    return use


def trained(steps=3, **how):
    """An executor after some steps, and all its numbers."""
    optimizer = mx.optimizer.SGD(momentum=0.9)
    exe = network().simple_bind(
        mx.cpu(), data=(4, 6), softmax_label=(4,), optimizer=optimizer, amp="bfloat16", **how
    )
    rng = np.random.default_rng(0)
    for name, a in exe.arg_dict.items():
        a[:] = rng.integers(0, 3, a.shape) if "label" in name else rng.standard_normal(a.shape)
    for _ in range(steps):
        exe.step([[0.1, 0.01]] * len(exe.updated))
    check(exe.memory_plan)
    return exe, {n: a.asnumpy().tobytes() for n, a in (exe.arg_dict | exe.optimizer_states).items()}


def operators(exe):
    return [t.op for t in exe.memory_plan.problem.tasks]


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
def test_a_group_computes_what_single_casts_do(backend):
    device = backend(grouped=False)
    alone, want = trained()
    singles = device.launched.count("casts")
    device = backend()
    together, found = trained()
    assert found == want
    assert operators(together).count("_fused_casts") == 1 and operators(alone).count("Cast") > 12
    assert singles - device.launched.count("casts") >= 3 * 12  # three steps of 13 casts


def test_the_reference_of_a_group_is_that_of_its_members(backend):
    backend(grouped=False, kernels=False)
    _, want = trained()
    backend(kernels=False)
    assert trained()[1] == want


def test_within_a_budget_a_group_may_run_again(backend):
    backend(kernels=False)
    exe, want = trained(steps=3)
    plan = exe.memory_plan
    for budget in range(plan.lower_bound_bytes, plan.peak_bytes, 64):
        try:
            within, found = trained(memory_budget=budget)
        except mx.MemoryBudgetError:
            continue
        assert found == want and within.memory_plan.peak_bytes <= budget
        break
    else:
        raise AssertionError("no budget fits")


def wide_network(side, layers):
    x = mx.sym.Variable("data")
    for i in range(layers):
        x = mx.sym.FullyConnected(x, num_hidden=side, no_bias=True, name=f"fc{i}")
    return mx.sym.LinearRegressionOutput(x, name="out")


def planned(side, layers):
    how = {"data": (2, side), "out_label": (2, side), "optimizer": mx.optimizer.SGD(), "amp": "bfloat16"}
    return wide_network(side, layers).memory_plan(**how)


def test_groups_end_where_they_make_many_bytes(backend):
    side, layers = int((SMALL_BYTES / 2) ** 0.5), 11
    backend(kernels=False)
    tasks = planned(side, layers).problem.tasks
    groups = [t for t in tasks if t.op == "_fused_casts"]
    assert [len(t.outputs) for t in groups] == [4, 4, 4]  # the data, small as it is, is one of them
    assert GROUP_BYTES == 4 * SMALL_BYTES
    assert len({v for t in groups for v in t.outputs}) == layers + 1


def test_large_weights_stay_alone(backend):
    side = int((SMALL_BYTES / 2) ** 0.5) + 8
    backend(kernels=False)
    plan = planned(side, 5)
    assert not any(t.op == "_fused_casts" for t in plan.problem.tasks)
    backend(grouped=False, kernels=False)
    assert planned(side, 5).arena_bytes == plan.arena_bytes


def test_what_is_no_training_step_and_the_users_stages_are_left_alone(backend):
    backend(kernels=False)
    exe = network().simple_bind(mx.cpu(), grad_req="null", data=(4, 6), softmax_label=(4,), amp="bfloat16")
    assert "_fused_casts" not in operators(exe)
    data = mx.sym.Variable("data")
    with mx.AttrScope(mirror_stage="1"):
        marked = [mx.sym.Cast(mx.sym.Variable(f"w{i}"), dtype="float16") for i in range(3)]
    free = [mx.sym.Cast(mx.sym.Variable(f"v{i}"), dtype="float16") for i in range(3)]
    total = mx.sym.add_n(*marked, *free, mx.sym.Cast(data, dtype="float16"))
    exe = mx.sym.MakeLoss(total).simple_bind(mx.cpu(), data=(4, 6))
    assert operators(exe).count("_fused_casts") == 1 and operators(exe).count("Cast") == 3


def test_a_variable_that_the_forward_pass_changes_is_cast_when_it_is_read(backend):
    """The group, in front of what changes it, would have the numbers of before."""
    shown = []
    for grouped in (False, True):
        backend(grouped=grouped, kernels=False)
        a, b, weight, grad, mom = (mx.sym.Variable(n, shape=(6,)) for n in ("a", "b", "w", "g", "m"))
        first, second, last = (mx.sym.BlockGrad(-mx.sym.Cast(x, dtype="float16")) for x in (a, b, mom))
        step = mx.sym.sgd_mom_update(weight, grad, mom, lr=0.5, momentum=0.9)
        loss = mx.sym.MakeLoss(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2))
        exe = mx.sym.Group([first, second, step, last, loss]).simple_bind(mx.cpu(), data=(4, 6))
        for array in (*exe.arg_dict.values(), *exe.aux_dict.values()):
            array[:] = 1.0
        shown.append(exe.forward(is_train=True)[3].asnumpy())
        assert operators(exe).count("_fused_casts") == grouped
    assert shown[0].tolist() == [-(np.float16(0.9) - np.float16(0.5))] * 6
    assert np.array_equal(*shown)
