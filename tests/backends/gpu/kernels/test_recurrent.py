"""Recurrent layers on the GPU's kernels, run on the CPU: near what the reference computes, in every mode."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends import Backend
from mxlite.backends.gpu.kernels.nn import recurrent
from tests.backends.gpu.gpu_programs import fill, fused_steps, get, GPU, recorded_gpus
from tests.conformance.case import Case
from tests.conformance.conformance import Call, kernels_of, stages
from tests.emulators.emulated_device import compiler, EmulatedDevice

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

DEVICE = EmulatedDevice()
BACKEND = Backend("emulated", np, recurrent.rows(DEVICE))


def call_of(shape, dtype, **attrs):
    """The operator with inputs of these sizes, and its arrays."""
    attrs = {"state_size": 3, "num_layers": 1, "state_outputs": True, **attrs}
    a = ops.RNN.Attrs(**attrs)
    shapes = ops.RNN.infer_shape(a, shape, *[None] * (len(ops.RNN.input_names(a)) - 1))[0]
    lengths = {"sequence_length": lambda rng, s: rng.integers(1, shape[0] + 1, s)}
    make = lengths if a.use_sequence_length else {}
    case = Case(ops.RNN, attrs, shapes, dtype=dtype, make=make, train=a.p > 0)
    return Call.of(case), case.inputs()


@pytest.mark.parametrize(
    "attrs",
    [
        {"mode": "lstm"},
        {"mode": "gru", "bidirectional": True, "use_sequence_length": True},
        {"mode": "lstm", "num_layers": 2, "use_sequence_length": True, "projection_size": 2},
        {"mode": "lstm", "lstm_state_clip_min": -0.2, "lstm_state_clip_max": 0.1},
        {"mode": "rnn_tanh", "bidirectional": True},
        {"mode": "gru", "dtype": "float64"},
        {"mode": "lstm", "dtype": "bfloat16"},
        {"mode": "gru", "num_layers": 3, "p": 0.5},
        {"mode": "lstm", "num_layers": 2, "bidirectional": True, "p": 0.3, "dtype": "float64"},
    ],
    ids=lambda a: " ".join(map(str, a.values())),
)
def test_forward_and_backward(attrs):
    dtype = attrs.pop("dtype", "float32")
    call, arrays = call_of((3, 2, 4), dtype, **attrs)
    for op, inputs in stages(call, arrays):
        want, _ = call.execute(op, inputs)
        with kernels_of(BACKEND):
            got, _ = call.execute(op, inputs)
        for name, value in want.items():
            a, b = (np.asarray(x[name], np.float64) for x in (got, want))
            tolerance = {"float64": 1e-12, "float32": 2e-5}.get(str(value.dtype), 3e-2)
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=name)


def test_a_step_is_a_product_and_a_launch():
    """And two copies: of the new state, and into the result."""
    counts = []
    for steps in (4, 5):
        call, arrays = call_of((steps, 300, 4), "float32", mode="lstm", state_outputs=False)
        with kernels_of(BACKEND):
            run, _ = call.bind(ops.RNN, dict(zip(call.names()[0], arrays)), _outs(call), 0)
        counts.append(len(run.runs))
    # every step is a stretch of its own for so many samples, with its input's product and two biases
    assert counts[1] - counts[0] <= 9


def _outs(call):
    layout = call.layout()
    return {n: np.zeros(*layout[n]) for n in call.names()[1]}


def test_in_mixed_precision_no_copy_of_parameters_is_made():
    """A step beside the same on the CPU, and its plan."""
    data, parameters, state, cell = (mx.sym.var(n) for n in ("data", "parameters", "state", "cell"))
    out = mx.sym.RNN(data, parameters, state, cell, mode="lstm", state_size=32, num_layers=2, name="lstm")
    net = mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(out)))
    shapes = dict(data=(5, 2, 32), state=(2, 2, 32), cell=(2, 2, 32))
    found = []
    with recorded_gpus():
        for ctx in (mx.cpu(), GPU):
            exe = net.simple_bind(ctx, amp="bfloat16", optimizer=mx.optimizer.SGD(), **shapes)
            fill(exe)
            before = get(exe.arg_dict["parameters"])
            fused_steps(exe, 0.01, 2)
            found.append(get(exe.arg_dict["parameters"]))
        tasks = exe.memory_plan.problem.tasks
        assert {"_rnn_wide", "_backward__rnn_wide"} <= {t.op for t in tasks}
        assert not any(t.op == "Cast" and "parameters" in t.name for t in tasks)
        copies = 4 * before.size  # bytes of one
        assert exe.memory_plan.arena_bytes < 2 * copies, "the gradient, and no copy"
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
    moved = np.abs(found[0] - before).max()
    assert moved > 1e-3
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=0.05 * moved)
