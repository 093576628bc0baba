"""Recurrent layers in mixed precision: 16-bit data with the float32 parameters themselves."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.memplan import check
from tests.backends.cpu.fast_kernels import close, only
from tests.cases.sequence import _rnn
from tests.conformance.conformance import Call

pytestmark = pytest.mark.skipif(library() is None or not usable(), reason="oneDNN or llvmlite is not there")

HIDDEN, STEPS, BATCH = 32, 12, 5
WIDE = 128  # then parameters are more than all else


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_kernels_make_what_the_references_make(mode, dtype):
    case = _rnn((STEPS, BATCH, HIDDEN), ops.RnnKeepingGates, mode=mode, state_size=HIDDEN, num_layers=2)
    call = Call.of(case, dtype=dtype)
    kinds = tuple(np.dtype("f") if n == "parameters" else d for n, d in zip(call.names()[0], call.dtypes[0]))
    ins, outs = case.op.infer_type(call.attrs, *kinds)
    assert ins == kinds
    call = Call(call.op, call.attrs, call.shapes, (ins, outs), True)
    rng = np.random.default_rng(0)
    arrays = {
        n: (rng.standard_normal(s) / 8).astype(d)
        for n, s, d in zip(call.names()[0], call.shapes[0], call.dtypes[0])
    }
    found = []
    for which in ("reference", "onednn,compiled"):
        with only(which):
            made, _ = call.execute(call.op, arrays)
            back = call.op.grad_op
            have = {**arrays, **made}
            have |= {f"d_{n}": (x * 0.5).astype(x.dtype) for n, x in made.items()}
            grads, _ = call.execute(back, {n: have.get(n) for n in back.input_names(call.attrs)})
            assert grads["d_parameters"].dtype == np.float32
            made.pop("gates")  # the reference has none
            found.append({**made, **grads})
    close(found[1], found[0], 2e-2)


def network():
    data = mx.sym.var("data")
    parameters, state, cell = (mx.sym.var(n) for n in ("parameters", "state", "cell"))
    out = mx.sym.RNN(data, parameters, state, cell, mode="lstm", state_size=WIDE, num_layers=3, name="lstm")
    return mx.sym.MakeLoss(mx.sym.sum(mx.sym.square(out)))


def test_no_copy_of_parameters_is_made():
    shapes = dict(data=(2, 1, WIDE), state=(3, 1, WIDE), cell=(3, 1, WIDE))
    exe = network().simple_bind(mx.cpu(), amp="bfloat16", optimizer=mx.optimizer.SGD(), **shapes)
    rng = np.random.default_rng(0)
    for x in exe.arg_dict.values():
        x[:] = rng.standard_normal(x.shape) / 4
    before = exe.arg_dict["parameters"].asnumpy()
    exe.step([[0.01, 0.0] for _ in exe.updated])
    mx.nd.waitall()
    check(exe.memory_plan)
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    after = exe.arg_dict["parameters"].asnumpy()
    assert np.isfinite(after).all() and (after != before).mean() > 0.5
    problem = exe.memory_plan.problem
    assert not any(t.op == "Cast" and "parameters" in t.name for t in problem.tasks)
    assert any(t.op == "_rnn_update" for t in problem.tasks)
    most = max(t.workspace for t in problem.tasks)
    assert most < 4 * before.size, "neither weights nor their gradient once more"
    assert all(v.nbytes < 4 * before.size for v in problem.values if not v.fixed)


def stepped(steps=9, batch=4, **how):
    """Parameters after two steps, outputs of both passes forward before, and the plan."""
    shapes = dict(data=(steps, batch, WIDE), state=(3, batch, WIDE), cell=(3, batch, WIDE))
    exe = network().simple_bind(mx.cpu(), amp="bfloat16", optimizer=mx.optimizer.SGD(), **shapes, **how)
    rng = np.random.default_rng(0)
    for x in exe.arg_dict.values():
        x[:] = rng.standard_normal(x.shape) / 16
    outs = [exe.forward(is_train=train)[0].asnumpy() for train in (True, False)]
    for _ in range(2):
        exe.step([[0.01, 0.0] for _ in exe.updated])
    return exe.arg_dict["parameters"].asnumpy(), outs, exe.memory_plan


def test_inference_reads_parameters_as_training_does():
    _, (trained, inferred), plan = stepped()
    np.testing.assert_array_equal(trained, inferred)
    parameters = 4 * 3 * 4 * WIDE * (2 * WIDE + 2)
    assert plan.problem.least_arena < parameters // 2, "neither rounded nor widened again"


def test_a_budget_without_room_for_gates_gives_the_same_numbers():
    free, _, plan = stepped(60, 16)
    with pytest.raises(mx.MemoryBudgetError) as refused:
        stepped(60, 16, memory_budget=1)
    least = refused.value.least_feasible_bytes
    tight, _, small = stepped(60, 16, memory_budget=least)
    assert small.peak_bytes <= least < plan.peak_bytes
    assert "_rnn_wide" in {t.op for t in small.problem.tasks}
    np.testing.assert_allclose(tight, free, rtol=1e-6, atol=1e-8)
