"""What a step on a GPU without a budget makes again: the same bits in fewer bytes, as on the CPU."""

from __future__ import annotations

import importlib
from collections import Counter

import pytest

import mxlite as mx
from mxlite.backends.gpu import passes
from mxlite.memplan import check
from tests.backends.gpu.gpu_programs import fused_steps, get, GPU, recorded_gpus, same
from tests.backends.passes.pass_lists import left_out
from tests.backends.passes.remat.test_remat_at_peak import residual
from tests.emulators.emulated_device import compiler
from tests.networks.small_networks import fill_by_kind

PASS = importlib.import_module("mxlite.backends.passes.remat.remat_at_peak")
SGD = mx.optimizer.SGD(momentum=0.9)
WHOLE = 2**40  # a budget for everything: then nothing is made again beforehand
SHAPES = dict(data=(2, 3, 20, 18), softmax_label=(2,))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Arrays of small networks count, and however long it takes."""
    monkeypatch.setattr(PASS, "LEAST_BYTES", 1024)
    monkeypatch.setattr(passes, "SHARE", 1e30)


def bound(**how):
    exe = residual().simple_bind(GPU, optimizer=SGD, **SHAPES, **how)
    fill_by_kind(exe, 0.2)
    return exe


def rematerialized(exe):
    tasks = exe.memory_plan.problem.tasks
    return {t.name.removesuffix("_remat"): t.kernel for t in tasks if t.name.endswith("_remat")}


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
@pytest.mark.parametrize("amp", [None, "bfloat16"])
def test_norms_and_sums_are_made_again_with_the_same_bits(amp):
    with recorded_gpus():
        light, whole = bound(amp=amp), bound(amp=amp, memory_budget=WHOLE)
        kernels = rematerialized(light)
        again = {n for n, kernel in kernels.items() if kernel == "cuda norm again"}
        assert {"one0_relu", "one1_relu", "one1_relu1"} <= again  # two sums, and a norm alone
        assert "cuda norm again" not in rematerialized(whole).values()
        check(light.memory_plan)
        assert light.memory_plan.peak_bytes < whole.memory_plan.peak_bytes
        same(fused_steps(light, 0.1), fused_steps(whole, 0.1))
        for name, x in light.aux_dict.items():
            assert (get(x) == get(whole.aux_dict[name])).all(), name
        assert light.measured_bytes == light.memory_plan.peak_bytes


def test_a_residual_network_is_planned_to_hold_a_quarter_less(monkeypatch):
    """ResNet-20 on 128 images of CIFAR's size, planned for a GPU that is not here."""
    monkeypatch.undo()
    net, shapes = mx.models.get("resnet20_cifar"), dict(data=(128, 3, 32, 32), softmax_label=(128,))
    light, whole = (
        net.memory_plan(GPU, optimizer=SGD, memory_budget=budget, **shapes) for budget in (None, WHOLE)
    )
    assert light.arena_bytes < 0.75 * whole.arena_bytes
    assert "cuda norm again" in {t.kernel for t in light.problem.tasks}


@pytest.mark.skipif(compiler is None, reason="g++ is not installed")
@pytest.mark.parametrize(
    "optimizer", [SGD, mx.optimizer.Adam(), mx.optimizer.LAMB()], ids=lambda o: type(o).__name__
)
def test_updates_read_gradients_of_16_bits_and_make_the_same_bits(optimizer, monkeypatch):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=24, name="fc1")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.relu(net), num_hidden=5), name="softmax")

    def trained():
        exe = net.simple_bind(GPU, optimizer=optimizer, amp="bfloat16", data=(6, 40), softmax_label=(6,))
        fill_by_kind(exe, 0.2)
        casts = sum(t.op == "_backward_Cast" for t in exe.memory_plan.problem.tasks)
        return casts, exe.memory_plan.arena_bytes, fused_steps(exe, 0.1)

    with recorded_gpus():
        narrow, nbytes, got = trained()
        left_out(monkeypatch, "inline_gradient_casts", of=passes)
        wide, more, want = trained()
    assert (narrow, wide) == (1, 5) and nbytes <= more  # the gradient of data is one that is asked for
    same(got, want)


def test_16_bit_copies_of_weights_are_held_where_there_is_room_for_them():
    """A launch for each costs more than they are worth; on the CPU they are made again in any case."""
    side = 700
    net = mx.sym.Variable("data")
    for i in range(4):
        net = mx.sym.FullyConnected(net, num_hidden=side, no_bias=True, name=f"fc{i}")
    net = mx.sym.LinearRegressionOutput(net, name="out")
    shapes = dict(data=(8, side), out_label=(8, side))
    ask = dict(optimizer=SGD, amp="bfloat16", **shapes)
    found = {}
    for ctx in (GPU, mx.cpu()):
        plan = net.memory_plan(ctx, memory_budget=WHOLE, **ask)
        found[ctx] = plan
        again = [plan.problem.tasks[t].op for t, n in Counter(plan.schedule.task).items() if n > 1]
        assert set(again) == (set() if ctx == GPU else {"Cast"})
    tight = net.memory_plan(GPU, memory_budget=found[GPU].peak_bytes - 2 * side * side * 2, **ask)
    check(tight)
    assert {"Cast"} == {tight.problem.tasks[t].op for t, n in Counter(tight.schedule.task).items() if n > 1}
