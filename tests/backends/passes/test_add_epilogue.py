"""Norms that take along a leaky rectifier and the sum behind it: which do; the same bits in fewer bytes."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.gpu import passes
from mxlite.memplan import check
from tests.backends.gpu.gpu_programs import fused_steps, get, GPU, recorded_gpus, same
from tests.backends.passes.pass_lists import left_out
from tests.emulators.emulated_device import compiler
from tests.networks.small_networks import fill_by_kind

PASS = importlib.import_module("mxlite.backends.passes.remat.remat_at_peak")
SGD = mx.optimizer.SGD(momentum=0.9)
SHAPES = dict(data=(2, 3, 8, 6), softmax_label=(2,))
WHOLE = 2**40  # a budget for everything


needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def part(data, name, filters=8, size=1):
    """Convolution, norm and leaky rectifier, as `mx.models`' resnet1001_memonger has them."""
    data = mx.sym.Convolution(
        data, kernel=(size, size), pad=(size // 2,) * 2, num_filter=filters, name=f"{name}_conv"
    )
    return mx.sym.LeakyReLU(mx.sym.BatchNorm(data, name=f"{name}_bn"), name=f"{name}_leaky")


def head(x):
    x = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")


def residual(blocks=3):
    x = part(mx.sym.var("data"), "stem", size=3)
    for i in range(blocks):
        y = part(part(x, f"a{i}", filters=4, size=3), f"b{i}")
        x = mx.sym.elemwise_add(y, x, name=f"sum{i}")
    return head(x)


def operators(symbol, ctx=GPU):
    tasks = symbol.memory_plan(ctx, optimizer=SGD, memory_budget=WHOLE, **SHAPES).problem.tasks
    return {t.name: t.op for t in tasks}


def test_a_norm_takes_its_rectifier_and_the_sum_where_a_gpu_is_planned_for():
    found = operators(residual(2))
    assert found["a0_leaky"] == "_norm_act" and found["sum0"] == found["sum1"] == "_norm_act"
    assert "BatchNorm" not in found.values() and "LeakyReLU" not in found.values()
    assert "_norm_act" not in operators(residual(1), mx.cpu()).values()


def kept_apart():
    x = mx.sym.var("data")
    y = part(x, "a", filters=3)
    return {
        "the norm has another reader": head((y + x) * y),
        "the norm is added to itself": head(y + y),
        "the sum stretches it": head(
            mx.sym.broadcast_add(part(mx.sym.sum(x, axis=0, keepdims=True), "a", 3), x)
        ),
        "a product": head(y * x),
    }


@pytest.mark.parametrize("how", kept_apart())
def test_a_sum_stays_alone_where(how):
    found = operators(kept_apart()[how])
    assert all(name.endswith("_leaky") for name, op in found.items() if op == "_norm_act")


def test_of_two_norms_the_first_takes_the_other():
    x = mx.sym.var("data")
    found = operators(head(mx.sym.elemwise_add(part(x, "a"), part(x, "b"), name="both")))
    assert found["both"] == "_norm_act" and list(found.values()).count("_norm_act") == 2


def bound(**how):
    exe = residual().simple_bind(GPU, optimizer=SGD, **SHAPES, **how)
    fill_by_kind(exe, 0.2)
    return exe


@needs_compiler
def test_inference_normalizes_by_the_moving_averages():
    x = mx.sym.var("data")
    y = mx.sym.LeakyReLU(mx.sym.BatchNorm(x, fix_gamma=False, name="bn"), slope=0.1, name="leaky")
    net = mx.sym.elemwise_add(x, y, name="both")
    results = []
    for ctx in (mx.cpu(), GPU):
        with recorded_gpus():
            exe = net.simple_bind(ctx, data=(2, 3, 6, 5))
            fill_by_kind(exe, 0.2)
            results.append(get(exe.forward(is_train=False)[0]))
            kernels = [t.kernel for t in exe._planned.infer.problem.tasks]
    assert "cuda norm, rectifier, sum" in kernels
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


@needs_compiler
def test_in_16_bits_what_is_made_again_has_the_same_bits(monkeypatch):
    monkeypatch.setattr(PASS, "LEAST_BYTES", 512)
    monkeypatch.setattr(passes, "SHARE", 1e30)
    with recorded_gpus():
        whole, light = (bound(amp="bfloat16", memory_budget=budget) for budget in (WHOLE, None))
        assert "_norm_again" in {t.op for t in light.memory_plan.problem.tasks}
        same(fused_steps(light, 0.1, 2), fused_steps(whole, 0.1, 2))


@needs_compiler
def test_steps_have_the_bits_of_operators_apart_in_any_budget(monkeypatch):
    monkeypatch.setattr(PASS, "LEAST_BYTES", 1024)  # arrays of small networks count
    monkeypatch.setattr(passes, "SHARE", 1e30)
    with recorded_gpus():
        whole, light = bound(memory_budget=WHOLE), bound()
        plan = whole.memory_plan
        tight = bound(memory_budget=(plan.peak_bytes + plan.lower_bound_bytes) // 2)
        rematerialized = {t.name: t.op for t in light.memory_plan.problem.tasks if t.name.endswith("_remat")}
        assert "_norm_again" in rematerialized.values() and tight.memory_plan.extra_time > 0
        left_out(monkeypatch, "norm_act", of=passes)
        apart = bound(memory_budget=WHOLE)
        assert "BatchNorm" in {t.op for t in apart.memory_plan.problem.tasks}
        assert light.memory_plan.peak_bytes < plan.peak_bytes < apart.memory_plan.peak_bytes
        want = fused_steps(apart, 0.1, 2)
        for exe in (whole, light, tight):
            check(exe.memory_plan)
            same(fused_steps(exe, 0.1, 2), want)
            for name, x in exe.aux_dict.items():
                assert (get(x) == get(apart.aux_dict[name])).all(), name
            assert exe.measured_bytes == exe.memory_plan.peak_bytes
