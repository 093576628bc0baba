"""Loss scaling inside of steps on emulated GPUs: one graph decides, replayed without a word of the host."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import Backend, bind_call
from mxlite.backends.gpu.kernels.arithmetic import precision
from tests.backends.gpu.gpu_programs import bound, get, GPU, recorded_gpus
from tests.emulators.emulated_device import compiler, EmulatedDevice
from tests.networks.small_networks import mlp

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

MLP = dict(data=(4, 8), softmax_label=(4,))
HOW = dict(amp="fp16", loss_scale="dynamic")


def held(executor):
    own = {n: executor.arg_dict[n] for n in executor.updated} | executor.optimizer_states
    return {n: get(a).copy() for n, a in own.items()}


def run(ctx):
    """Scales, histories and what is held after good steps, one that overflows, and more good ones."""
    executor = bound(mlp(), ctx, MLP, optimizer=mx.optimizer.SGD(momentum=0.9), **HOW)
    executor.loss_scale = 256.0
    data = get(executor.arg_dict["data"]).copy()
    rates = np.full((len(executor.updated), 2), [0.1, 0.01])
    seen = []
    for bad in (False, True, False, False, True, True, False):
        executor.step(rates, data=data * (1e6 if bad else 1))
        seen.append((executor.loss_scale, executor.scale_history, held(executor)))
    executor.loss_scale = 256.0  # what the host said last, and the device has changed since
    executor.set_scale_history(0)
    executor.step(rates, data=data)
    seen.append((executor.loss_scale, executor.scale_history, held(executor)))
    return executor, seen


def test_a_captured_step_decides_as_the_cpu_does():
    _, want = run(mx.cpu())
    with recorded_gpus():
        executor, got = run(GPU)
        names = {c.kernel.name for c in executor._planned.train.calls}
        outside = executor._train.why_not
        graphs = executor._train.graphs
    assert {"cuda all_finite", "cuda scaled_update", "cuda scaled cast"} <= names
    assert not [n for n in names if "host" in n] and not outside and graphs == 1
    for (scale, history, arrays), (scale_, history_, arrays_) in zip(got, want, strict=True):
        assert (scale, history) == (scale_, history_)
        for name, value in arrays_.items():
            np.testing.assert_allclose(arrays[name], value, rtol=2e-2, atol=2e-3, err_msg=name)
    scales = [scale for scale, *_ in got]
    assert scales == [256, 128, 128, 128, 64, 32, 32, 256]
    for (_, history, arrays), (_, _, before) in zip(got[1:], got):
        changed = any(arrays[n].tobytes() != before[n].tobytes() for n in arrays)
        assert changed == (history[0] > 0)


@pytest.mark.parametrize("enters", [True, False])
def test_the_shores_divide_on_one_side_and_multiply_on_the_other(enters):
    device = EmulatedDevice()
    backend = Backend("emulated", np, precision.rows(device))
    attrs = ops.Shore.Attrs("float16", enters)
    float32, float16 = np.dtype("float32"), np.dtype("float16")
    shapes = ((37,), (2,)), ((37,),)
    kernel = backend.choose(ops.Shore.grad_op, attrs, *shapes, float32, (float32, float32))
    assert kernel.name == "cuda scaled cast"
    d_out, scale = np.arange(37).astype(float16), np.array([8, 1 / 8], float32)
    made = np.full(37, np.nan, float32)
    names = ops.Shore.grad_op.input_names(attrs)
    given = {"d_out": d_out, "scale": scale}
    run = bind_call(
        kernel, np, ops.Shore.grad_op, attrs, [given.get(n) for n in names], [made], shapes=shapes
    )
    run()
    np.testing.assert_array_equal(made, np.arange(37) / 8 if enters else np.arange(37) * 8)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_a_module_on_a_gpu_counts_only_the_updates_that_are_made(name):
    """With rates that do not follow the count, nothing is read until somebody asks."""
    with recorded_gpus() as drivers:
        module = mx.mod.Module(mlp(), context=GPU, fused_update=True, **HOW)
        module.bind([("data", (4, 8))], [("softmax_label", (4,))])
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer=name, optimizer_params={"learning_rate": 0.01})
        rng = np.random.default_rng(0)
        reads = []
        for bad in (False, True, False, True, False):
            x = mx.nd.array(rng.standard_normal((4, 8)) * (1e6 if bad else 1), ctx=GPU)
            batch = mx.io.DataBatch([x], [mx.nd.zeros((4,), ctx=GPU)])
            mx.nd.waitall()
            start = len(drivers[0].calls)
            module.train_step(batch)
            mx.engine.get_engine().rest()
            reads.append([c.name for c in drivers[0].calls[start:]].count("synchronize"))
        assert not any(reads[1:]) if name == "sgd" else all(reads[1:]), reads
        scale = module.loss_scale
        _, made, left_out = module._executor.scale_history
        assert scale == 2.0 ** (16 - left_out)
        assert 2 <= left_out < 5 and module._training.optimizer.num_update == made == 5 - left_out
        assert set(module._training.optimizer._index_update_count.values()) == {made}
