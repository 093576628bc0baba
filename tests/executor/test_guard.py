"""MXLITE_GUARD=1: a kernel that writes outside its arrays is caught and named; one that does not runs."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import connected
from mxlite.backends.checks import guard
from mxlite.backends.cpu.backend import CPU
from mxlite.executor.run.guard import Layout
from mxlite.ops import find_op
from tests.networks.small_networks import fill, mlp

sym = mx.sym


@pytest.fixture(autouse=True)
def guarded(monkeypatch):
    monkeypatch.setattr(guard, "on", True)


# -- the fence -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("align", [1, 64, 4096])
def test_a_guarded_block_is_aligned_and_its_fence_stands(nbytes, align):
    memory = guard.guarded(nbytes, align)
    assert memory.nbytes == nbytes and type(memory) is np.ndarray
    assert memory.ctypes.data % align == 0 or not nbytes
    fence = guard.fence_of(memory, "m")
    assert fence.nbytes == nbytes and fence.broken_at() is None
    memory[...] = 7
    assert fence.broken_at() is None


@pytest.mark.parametrize("nbytes", [4, 60, 64, 100])
@pytest.mark.parametrize("at", [-64, -4, -1, 0, 1, 63])
def test_the_first_byte_outside_is_told(nbytes, at):
    """-4 is four bytes before, and from the end counted nbytes + 0 is the first byte behind."""
    memory = guard.guarded(nbytes, 64)
    fence = guard.fence_of(memory.view(np.uint8)[:2].reshape(1, 2), "part of it")
    place = at if at < 0 else nbytes + at
    ctypes.memset(memory.ctypes.data + place, 0, 1)
    assert fence.broken_at() == (place, 1)
    fence.put_up()
    assert fence.broken_at() is None


def test_memory_of_the_users_has_no_fence():
    assert guard.fence_of(np.zeros(3), "x") is None
    assert guard.fence_of(mx.nd.from_numpy(np.zeros(3, "float32")).storage, "x") is None
    assert guard.fence_of(mx.nd.zeros((3,))[1:].storage, "x") is not None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_new_is_nan(dtype):
    array = mx.nd.zeros((3, 2), dtype=dtype)
    array.wait_to_read()
    guard.forget(array.storage)
    assert np.isnan(array.storage.astype("float64")).all()


# -- programs --------------------------------------------------------------------------------------------


def convnet():
    x = sym.Convolution(sym.Variable("data"), kernel=(3, 3), pad=(1, 1), num_filter=6, name="conv")
    x = sym.Activation(sym.BatchNorm(x, fix_gamma=False, name="bn"), act_type="relu", name="relu")
    x = sym.Dropout(
        sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool"), p=0.3, name="drop"
    )
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")


def deep():
    x = sym.Variable("data")
    for i in range(12):
        x = sym.FullyConnected(x, num_hidden=16, name=f"fc{i}")
        x = sym.Activation(x, act_type="tanh", name=f"tanh{i}")
    return sym.SoftmaxOutput(x, name="softmax")


NETS = {"conv": (convnet, {"data": (4, 3, 8, 8)}), "recomputed": (deep, {"data": (64, 16)})}
SHAPES = {"data": (4, 3, 8, 8), "softmax_label": (4,)}


def least(net, **given):
    """The smallest budget that is known to work."""
    with pytest.raises(mx.MemoryBudgetError) as raised:
        net.memory_plan(mx.cpu(), memory_budget=1, **given)
    return raised.value.least_feasible_bytes


def trained(which):
    net, shapes = NETS[which]
    net, sgd = net(), mx.optimizer.SGD(momentum=0.9)
    mx.random.seed(3)
    budget = least(net, optimizer=sgd, **shapes) if which == "recomputed" else None
    exe = net.simple_bind(mx.cpu(), optimizer=sgd, memory_budget=budget, **shapes)
    assert (exe.memory_plan.recomputed > 0) == (which == "recomputed")
    fill(exe)
    hyper = np.tile([0.1, 1e-3], (len(exe.updated), 1))
    for _ in range(3):
        exe.step(hyper)
        exe.forward()
    return exe, [a.asnumpy() for a in (*exe.arg_arrays, *exe.aux_arrays, *exe.outputs)]


@pytest.mark.parametrize("which", NETS)
@pytest.mark.parametrize("engine", ["naive", "threaded"])
def test_a_clean_net_computes_the_same_and_plans_the_same(monkeypatch, engine, which):
    with mx.engine.use_engine(engine):
        monkeypatch.setattr(guard, "on", False)
        exe, wanted = trained(which)
        assert exe.guard_bytes == 0
        monkeypatch.setattr(guard, "on", True)
        again, got = trained(which)
    for a, b in zip(wanted, got):
        np.testing.assert_array_equal(a, b)
    assert again.memory_plan == exe.memory_plan
    assert again.measured_bytes == exe.measured_bytes == exe.memory_plan.peak_bytes
    assert again.guard_bytes > exe.memory_plan.arena_bytes, "and what the guards take stands apart"


def test_buffers_of_the_layout_have_room_around_them_wherever_they_meet():
    plan = convnet().memory_plan(mx.cpu(), **SHAPES)
    layout, ranges = Layout.of(plan), plan.liveness.ranges
    assert plan.arena_bytes < layout.nbytes
    for b, (r, low) in enumerate(zip(ranges, layout.offsets)):
        assert low % 64 == 0 and low >= guard.WIDTH
        assert low + r.nbytes + guard.WIDTH <= layout.nbytes
        for q, other in zip(ranges[:b], layout.offsets):
            if r.start < q.stop and q.start < r.stop:
                gap = max(low - (other + q.nbytes), other - (low + r.nbytes))
                assert gap >= 2 * guard.WIDTH, "each has its own"


def floats_at(array, index):
    """Element `index` of `array`, also where it has none."""
    return (ctypes.c_float * 1).from_address(array.ctypes.data + 4 * index)


@pytest.fixture
def spoil(monkeypatch):
    """`spoil(operator, harm)`; the table of kernels is as before afterwards."""

    def use(name, harm):
        op = find_op(name)

        def row(r):
            def connect(xp, a, data, *, out, work):
                def run():
                    op.forward(xp, a, data, out=out)
                    harm(data, out, work)

                return run

            return connected(connect, 100, "spoilt")

        monkeypatch.setitem(vars(CPU), "kernels", {**CPU.kernels, op: [row]})

    return use


def chain():
    """exp's input and output are buffers of the arena."""
    x = sym.tanh(sym.Variable("x"), name="before")
    return sym.sin(sym.exp(x, name="guilty"), name="after")


OUTSIDE = {
    "behind the output": (
        lambda data, out, work: floats_at(out, out.size),
        "buffer of 'before', 'guilty'",
        "at byte 40",
    ),
    "before the output": (
        lambda data, out, work: floats_at(out, -1),
        "buffer of 'before', 'guilty'",
        "4 bytes before",
    ),
    "in the padding": (
        lambda data, out, work: floats_at(out, out.size + 3),
        "buffer of 'before', 'guilty'",
        "at byte 52",
    ),
    "behind the work": (lambda data, out, work: floats_at(work, 25), "workspace of 'guilty'", "at byte 100"),
    "before the input": (lambda data, out, work: floats_at(data, -2), "", "8 bytes before"),
}


@pytest.mark.parametrize("where", OUTSIDE)
@pytest.mark.parametrize("engine", ["naive", "threaded"])
def test_one_float_outside_is_caught_and_named(spoil, where, engine):
    place, buffer, offset = OUTSIDE[where]

    def harm(*arrays):
        place(*arrays)[0] = 1.5

    spoil("exp", harm)
    exe = chain().bind(mx.cpu(), {"x": mx.nd.ones((10,))})
    with mx.engine.use_engine(engine):
        exe.forward()
        with pytest.raises(mx.OperatorError) as raised:
            exe.outputs[0].asnumpy()
        mx.nd.waitall()
    text = str(raised.value)
    assert raised.value.operation == "guilty"
    assert "'guilty' [spoilt] wrote outside its arrays" in text and buffer in text and offset in text, text
    assert Path(__file__).name in text, "and who asked for it"


def test_arrays_outside_the_arena_are_guarded_too(spoil):
    """An output that the user sees, and the gradient."""
    spoil("exp", lambda data, out, work: floats_at(out, out.size).__setitem__(0, 2.0))
    exe = sym.exp(sym.Variable("x"), name="guilty").simple_bind(mx.cpu(), x=(10,))
    exe.forward()
    with pytest.raises(mx.OperatorError, match=r"'guilty' \[spoilt\] .* output 0, 40 bytes.* at byte 40"):
        exe.outputs[0].asnumpy()


def test_the_next_step_is_judged_by_itself(spoil):
    harmful = [True]

    def harm(data, out, work):
        if harmful:
            floats_at(out, -1)[0] = 0.0

    spoil("exp", harm)
    exe = chain().bind(mx.cpu(), {"x": mx.nd.ones((10,))})
    exe.forward()
    with pytest.raises(mx.OperatorError, match="guilty"):
        exe.outputs[0].asnumpy()
    harmful.clear()
    exe.forward()
    np.testing.assert_allclose(exe.outputs[0].asnumpy(), np.sin(np.exp(np.tanh(1.0))), rtol=1e-6)


def test_what_a_kernel_leaves_unwritten_is_nan(monkeypatch):
    found = []

    def row(r):
        def connect(xp, a, data, *, out):
            def run():
                found.append(out.copy())
                out[:5], out[6:] = 1, 1

            return run

        return connected(connect, 0, "forgetful")

    monkeypatch.setitem(vars(CPU), "kernels", {**CPU.kernels, find_op("exp"): [row]})
    exe = sym.exp(sym.Variable("x")).simple_bind(mx.cpu(), x=(10,))
    for _ in range(2):
        out = exe.forward()[0].asnumpy()
        assert np.isnan(out[5]) and (np.delete(out, 5) == 1).all()
    assert np.isnan(found).all()


def test_the_variable_turns_it_on():
    """In a process of its own: it is read when mxlite is imported."""
    code = (
        "import mxlite as mx; x = mx.sym.Variable('x'); "
        "e = mx.sym.exp(mx.sym.tanh(x)).simple_bind(mx.cpu(), x=(9,)); "
        "e.forward()[0].asnumpy(); print(e.guard_bytes > 0, e.measured_bytes == e.memory_plan.peak_bytes)"
    )
    root = Path(__file__).resolve().parents[2]
    for value, says in (("1", "True True"), ("0", "False True"), ("", "False True")):
        env = {**os.environ, "MXLITE_GUARD": value, "PYTHONPATH": str(root)}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120
        )
        assert done.stdout.strip() == says, done.stderr
    env["MXLITE_GUARD"] = "yes"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and "MXLITE_GUARD must be a whole number, got 'yes'" in done.stderr


def test_a_module_trains_under_guard():
    x = np.random.default_rng(0).standard_normal((20, 7)).astype("float32")
    data = mx.io.NDArrayIter(x, np.arange(20) % 3, batch_size=5)
    module = mx.mod.Module(mlp(), context=mx.cpu())
    module.fit(data, num_epoch=2, optimizer="sgd")
    assert np.isfinite(module.get_outputs()[0].asnumpy()).all()
