"""Arrays of more elements than 32 bits count, in small: what is divided with 32 bits goes in stretches."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import Backend
from mxlite.backends.gpu.handwritten.layout import stretches
from mxlite.backends.gpu.kernels import table
from mxlite.backends.gpu.kernels.index import lookups
from mxlite.backends.gpu.kernels.loss import losses
from tests.backends.gpu.gpu_case import agree
from tests.conformance.case import Case, integers
from tests.conformance.cases import CASES
from tests.emulators.emulated_device import compiler, EmulatedDevice

needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


def small(monkeypatch, module, name, most):
    """A backend whose kernels of `module` have at most so many elements in a launch, and its device."""
    monkeypatch.setattr(module, name, most)
    device = EmulatedDevice()
    return Backend("emulated", np, table(device)), device


def test_stretches():
    assert stretches(10, 4, 2**31) == [(0, 10)]
    assert stretches(10, 4, 17) == [(0, 4), (4, 4), (8, 2)]
    assert stretches(3, 100, 50) == [(0, 1), (1, 1), (2, 1)]
    assert stretches(0, 4, 9) == []


@needs_compiler
@pytest.mark.parametrize(
    "attrs, data, label",
    [
        ({}, (9, 4), (9,)),
        ({"multi_output": True}, (9, 4, 3), (9, 3)),
        ({"preserve_shape": True}, (9, 2, 4), (9, 2)),
    ],
    ids=["classes", "positions", "last axis"],
)
def test_gradients_of_classes(attrs, data, label, monkeypatch):
    case = Case(
        ops.SoftmaxOutput, attrs, [data, label], make={"label": integers(0, 4)}, grad_inputs=("data",)
    )
    backend, device = small(monkeypatch, losses, "MOST", 2 * int(np.prod(data[1:])))
    agree(case, "float32", backend=backend)
    assert sum(name.startswith("class_gradient") for name in device.launched) == -(-data[0] // 2)


@needs_compiler
def test_lookups(monkeypatch):
    backend, device = small(monkeypatch, lookups, "MOST", 10)
    agree(CASES["Embedding"], "float32", backend=backend)  # 8 rows of 3, three at a time
    assert device.launched.count("look_up_4") == 2 * 3  # `agree` runs it twice


def test_a_language_models_logits_of_more_than_32_bits_stay_on_the_gpu():
    tokens, words = 49152, 50304
    data = mx.sym.Variable("data")
    logits = mx.sym.tanh(mx.sym.FullyConnected(data, num_hidden=words, no_bias=True))
    net = mx.sym.SoftmaxOutput(logits, name="softmax")
    plan = net.memory_plan(mx.gpu(0), amp="bfloat16", data=(tokens, 64), softmax_label=(tokens,))
    assert not [t.kernel for t in plan.problem.tasks if t.kernel.startswith("host")]
