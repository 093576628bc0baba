"""What the GPU backend makes of a graph: forms that it has kernels for, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import Backend, registry
from mxlite.backends.gpu.kernels import table
from mxlite.backends.gpu.passes import GPUTarget, optimize
from mxlite.executor.request.infer import infer
from mxlite.ops.norm.norm_act import NormAct
from tests.backends.passes.pass_lists import optimized, with_gpu_passes
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

DEVICE = EmulatedDevice()
KERNELS = table(DEVICE)
TARGET = GPUTarget.of(KERNELS)


def network():
    """Two convolutions with what lies between and behind them in a residual block, then a classifier."""
    x = mx.sym.Convolution(mx.sym.var("data"), kernel=(3, 3), pad=(1, 1), num_filter=8, name="a")
    y = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name="n"), act_type="relu", name="r")
    y = mx.sym.Convolution(y, kernel=(1, 1), num_filter=8, no_bias=True, name="b")
    y = mx.sym.BatchNorm(y, fix_gamma=False, name="m") + x
    y = mx.sym.Activation(y, act_type="relu", name="s")
    y = mx.sym.Pooling(y, kernel=(2, 2), stride=(2, 2), pool_type="max", name="p")
    return mx.sym.FullyConnected(mx.sym.Flatten(y), num_hidden=3, name="fc")


SHAPE = (4, 3, 6, 8)


def operators(train, target=TARGET):
    graph = infer(network().graph, {"data": SHAPE}, {"data": "float32"})
    return [n.op.op_name for n in optimized(graph, train, optimize(target)).nodes if n.op is not None]


def test_training_has_its_channels_last_and_norms_with_what_follows():
    names = operators(True)
    assert names.count("_convolution_channels_last") == 2 and "Convolution" not in names
    assert names.count("_channels_last") == 1
    assert "_pooling_channels_last" in names
    if NormAct in KERNELS:
        assert names.count("_norm_act") == 2 and "BatchNorm" not in names


def test_inference_folds_norms_into_convolutions():
    """The first convolution has two readers, so its norm stays; the second takes norm, sum and rectifier."""
    names = operators(False)
    assert names.count("_fold_norm") == names.count("_convolution_epilogue") == 1
    assert "BatchNorm" not in names and "Activation" not in names


def test_a_backend_without_kernels_leaves_the_graph_as_it_is():
    graph = infer(network().graph, {"data": SHAPE}, {"data": "float32"})
    left = [n.op.op_name for n in graph.nodes if n.op is not None]
    assert sorted(operators(True, GPUTarget.of({}))) == sorted(left)
    assert "_convolution_channels_last" not in operators(False, GPUTarget.of({}))


def test_maxima_are_taken_before_a_rectifier():
    names = operators(True, GPUTarget.of({}))
    assert names.index("Pooling") < len(names) - 1 - names[::-1].index("Activation")


def test_the_numbers_are_those_of_the_reference(monkeypatch):
    def run(backend):
        monkeypatch.setattr(registry, "_cpu", lambda: backend)
        executor = network().simple_bind(mx.cpu(), data=SHAPE)
        rng = np.random.default_rng(0)
        for name, a in {**executor.arg_dict, **executor.aux_dict}.items():
            positive = name.endswith(("var", "gamma"))
            a[:] = rng.uniform(0.8, 1.2, a.shape) if positive else rng.standard_normal(a.shape) * 0.3
        outs = [o.asnumpy() for o in executor.forward(is_train=True)]
        executor.backward([mx.nd.array(rng.standard_normal(o.shape)) for o in outs])
        found = {n: g.asnumpy() for n, g in executor.grad_dict.items() if g is not None}
        inferred = executor.forward(is_train=False)[0].asnumpy()
        return {**found, "out": outs[0], "inferred": inferred}

    own = with_gpu_passes(TARGET, KERNELS)
    got = run(own)
    launched = len(DEVICE.launched)
    want = run(Backend("cpu", np))
    assert len(DEVICE.launched) == launched > 20
    for name, y in want.items():
        np.testing.assert_allclose(got[name], y, rtol=0, atol=2e-5 * np.abs(y).max(), err_msg=name)
