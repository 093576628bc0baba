"""Programs on a threaded engine: who waits for whom, what poison does, random streams, bytes."""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import pytest

import mxlite as mx
from mxlite.engine import get_engine, use_engine
from mxlite.executor.run.program import bridged
from mxlite.ndarray import random as nd_random
from tests.networks.small_networks import fill, mlp

sym = mx.sym


@pytest.fixture(autouse=True)
def judged(monkeypatch):
    """Every plan of this file passes the judge, in the order the engine enforces."""
    monkeypatch.setenv("MXLITE_CHECK_PLAN", "1")


@pytest.fixture
def single_steps(monkeypatch):
    """One step in each segment, and workers enough to run whatever may run."""
    monkeypatch.setenv("MXLITE_BULK_SIZE", "1")


def branches(count=3):
    """Branches that share nothing but the arena and the data."""
    x = sym.Variable("x")
    return sym.Group([sym.square(sym.tanh(sym.exp(x * (i + 1)))) for i in range(count)])


def meeting():
    """Nodes that wait for nobody, with bytes of their own, and one that reads them all."""
    x = sym.Variable("x")
    return sym.exp(x) * sym.tanh(x) * sym.sigmoid(x)


# -- taking turns in the arena ---------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["forward", "backward"])
def test_who_takes_over_the_arena_waits_for_every_step_of_its_former_user(single_steps, after):
    """Hold up one step at a time; meanwhile no step of the next program may touch the bytes."""
    exe = branches().simple_bind(mx.cpu(), x=(8,))
    other = meeting().bind(mx.cpu(), {"x": mx.nd.ones((8,))}, shared_exec=exe)
    assert other._arena is exe._arena
    heads = [mx.nd.ones((8,))] * 3
    exe.forward(is_train=True)
    exe.backward(heads)
    other.forward()
    mx.nd.waitall()
    train = exe._train
    part = train.segments[: train.num_forward] if after == "forward" else train.segments[train.num_forward :]
    touched = []
    for segment in other._infer.segments:
        segment.calls.insert(0, lambda: touched.append(1))
    for segment in part:
        gate = threading.Event()
        segment.calls.insert(0, lambda gate=gate: gate.wait(10))
        try:
            exe.forward(is_train=True)
            if after == "backward":
                exe.backward(heads)
            touched.clear()
            other.forward()
            threading.Event().wait(0.02)
            assert not touched, f"{segment.names} was still to run"
        finally:
            gate.set()
            mx.nd.waitall()
            del segment.calls[0]
        assert len(touched) == len(other._infer.segments)


class Interrupted:
    """An engine whose push is interrupted at the `count`th, as by Ctrl-C while it waits for room."""

    def __init__(self, engine, count):
        self.engine, self.left = engine, count

    def push(self, *args, **keywords):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self.engine.push(*args, **keywords)


@pytest.mark.parametrize("part", ["forward", "backward", "step"])
def test_who_comes_after_an_interrupt_waits_for_all_that_was_pushed(single_steps, monkeypatch, part):
    """Hold up the last step that was pushed: no step of the next program touches the bytes meanwhile."""
    exe = branches().simple_bind(mx.cpu(), x=(8,))
    other = meeting().bind(mx.cpu(), {"x": mx.nd.ones((8,))}, shared_exec=exe)
    heads = [mx.nd.ones((8,))] * 3
    exe.forward(is_train=True)
    exe.backward(heads)
    other.forward()
    want = [a.asnumpy() for a in (*exe.outputs, exe.grad_arrays[0])]
    program, touched = exe._train, []
    for segment in other._infer.segments:
        segment.calls.insert(0, lambda: touched.append(1))
    pushed = {
        "forward": program.segments[: program.num_forward],
        "backward": program.segments[program.num_forward :],
        "step": program.segments,
    }[part]
    for held, segment in enumerate(pushed[:-1]):
        if part == "backward":
            exe.forward(is_train=True)
        mx.nd.waitall()
        gate = threading.Event()
        segment.calls.insert(0, lambda gate=gate: gate.wait(10))
        engine = Interrupted(get_engine(), held + 1)
        try:
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr("mxlite.executor.run.program.get_engine", lambda engine=engine: engine)
                getattr(program, f"push_{part}")()
            with pytest.raises(mx.MXLiteError, match="right before"):
                exe.backward(heads)  # half of it is gone
            touched.clear()
            other.forward()
            threading.Event().wait(0.005)
            assert not touched, f"{segment.names} was still to run"
        finally:
            gate.set()
            mx.nd.waitall()
            del segment.calls[0]
        exe.forward(is_train=True)
        exe.backward(heads)
        for a, w in zip((*exe.outputs, exe.grad_arrays[0]), want):
            np.testing.assert_array_equal(a.asnumpy(), w)


def test_after_an_interrupt_constants_are_computed_anew(monkeypatch):
    """They are known by their parameters' writes; those of a pass that was not pushed do not count."""
    net = sym.FullyConnected(sym.Variable("x"), sym.square(sym.Variable("w")), num_hidden=2, no_bias=True)
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=(1, 3))
    exe.arg_dict["x"][:] = 1
    exe.forward()
    assert exe._infer.num_constant
    exe.arg_dict["w"][:] = 1
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        engine = Interrupted(get_engine(), 0)
        patched.setattr("mxlite.executor.run.program.get_engine", lambda: engine)
        exe.forward()
    np.testing.assert_array_equal(exe.forward()[0].asnumpy(), [[3, 3]])


def test_the_hyper_parameters_of_the_next_step_wait_for_this_one():
    """`step` may be called again while the last one still runs: each runs with its own rates."""
    net = mlp()
    shapes = dict(data=(2, 3))
    found = []
    for wait in (True, False):
        exe = net.simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(), **shapes)
        fill(exe)
        exe.step(np.tile([0.0, 0.0], (4, 1)))
        mx.nd.waitall()
        exe._train.segments[-1].calls.insert(0, lambda: threading.Event().wait(0.03))
        for rate in (0.5, 0.0, 0.25):
            exe.step(np.tile([rate, 0.0], (4, 1)))
            if wait:
                mx.nd.waitall()
        found.append({n: exe.arg_dict[n].asnumpy() for n in exe.updated})
    assert all(np.array_equal(found[0][n], found[1][n]) for n in found[0])


def test_the_next_random_step_waits_for_this_one():
    """A held-up forward pass draws with its own step number, although the next was pushed already."""
    results = []
    for hold in (False, True):
        mx.random.seed(3)
        exe = sym.Dropout(sym.Variable("x"), p=0.5).simple_bind(mx.cpu(), grad_req="null", x=(64,))
        exe.arg_dict["x"][:] = 1
        exe.forward(is_train=True)
        mx.nd.waitall()
        if hold:
            exe._train.segments[0].calls.insert(0, lambda: threading.Event().wait(0.05))
        exe.forward(is_train=True)
        first = exe.outputs[0].copy()
        exe.forward(is_train=True)
        results.append((first.asnumpy(), exe.outputs[0].asnumpy()))
    assert np.array_equal(results[0][0], results[1][0])
    assert np.array_equal(results[0][1], results[1][1])


# -- failures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bulk", ["1", "64"])
@pytest.mark.parametrize("is_backward", [False, True])
def test_after_a_failure_anywhere_the_next_step_is_whole_again(bulk, is_backward, monkeypatch):
    """Poison of a failed step stays in that step: the arena and the segments' own tags are clean again."""
    monkeypatch.setenv("MXLITE_BULK_SIZE", bulk)
    x = sym.Variable("x")
    y = sym.exp(x, name="y")
    exe = sym.Group([y, sym.square(y), sym.tanh(x)]).simple_bind(mx.cpu(), x=(4,))
    heads = [mx.nd.ones((4,))] * 3

    def step():
        exe.forward(is_train=True, x=np.ones(4, "float32"))
        exe.backward(heads)
        result = [o.asnumpy() for o in exe.outputs] + [exe.grad_dict["x"].asnumpy()]
        mx.nd.waitall()
        return result

    wanted = step()
    program = exe._train
    part = program.segments[program.num_forward :] if is_backward else program.segments[: program.num_forward]
    for segment in part:
        for at in range(len(segment.calls)):
            healthy = segment.calls[at]
            segment.calls[at] = lambda: 1 / 0
            name = segment.names[at]
            with pytest.raises(mx.OperatorError, match=f"{name!r} failed with ZeroDivisionError") as caught:
                step()
            assert caught.value.operation == name
            segment.calls[at] = healthy
            with contextlib.suppress(mx.OperatorError):  # the same failure, at what else it poisoned
                mx.nd.waitall()
            assert all(np.array_equal(a, b) for a, b in zip(step(), wanted)), name


@pytest.mark.parametrize("engine", ["naive", "threaded"])
def test_kernels_may_divide_by_zero_without_a_warning(engine):
    with use_engine(engine):
        exe = sym.log(sym.Variable("x")).simple_bind(mx.cpu(), x=(2,))
        assert exe.forward(x=np.array([0, -1], "float32"))[0].asnumpy().tolist()[0] == -np.inf
        exe.forward(is_train=True)
        exe.backward(mx.nd.ones((2,)))
        assert exe.grad_dict["x"].asnumpy()[0] == np.inf


# -- training and inference are two programs -------------------------------------------------------------


def test_inference_uses_running_statistics_and_drops_nothing():
    net = sym.Dropout(sym.BatchNorm(sym.Variable("data"), eps=1e-8, fix_gamma=False, name="bn"), p=0.5)
    exe = net.simple_bind(mx.cpu(), data=(6, 2))
    exe.arg_dict["bn_gamma"][:] = 3
    exe.aux_dict["bn_moving_mean"][:] = np.array([1, 2], "float32")
    exe.aux_dict["bn_moving_var"][:] = 4
    x = np.random.default_rng(0).standard_normal((6, 2)).astype("float32")
    for _ in range(2):
        out = exe.forward(is_train=False, data=x)[0].asnumpy()
        np.testing.assert_allclose(out, (x - [1, 2]) / 2 * 3, rtol=1e-5)
    assert exe.aux_dict["bn_moving_mean"].asnumpy().tolist() == [1, 2]


def test_the_arena_is_large_enough_for_both_and_counts_once():
    exe = mlp().simple_bind(mx.cpu(), data=(4, 3))
    train, infer = exe._planned.train_plan, exe._planned.infer_plan
    assert train.problem.least_arena == infer.placed_bytes
    assert exe._arena.nbytes == train.arena_bytes >= max(train.placed_bytes, infer.placed_bytes)
    exe.forward()
    exe.forward(is_train=True)
    exe.backward()
    mx.nd.waitall()
    assert exe.measured_bytes == exe.memory_plan.peak_bytes


def arrays_of(call):
    """The numpy arrays that a call of a bound program works on."""
    if isinstance(call, tuple):  # several calls
        return [x for c in call for x in arrays_of(c)]
    found, stack = [], [*call.args, *call.keywords.values(), getattr(call, "keep", ())]
    while stack:
        x = stack.pop()
        if isinstance(x, np.ndarray):
            found.append(x)
        elif isinstance(x, (tuple, list)):
            stack += x
        elif isinstance(x, dict):
            stack += x.values()
    return found


@pytest.mark.parametrize("kernels", ["reference", "onednn"])
def test_every_array_of_every_call_lies_in_the_arena_or_belongs_to_the_executor(kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    """Scratch too: nothing is allocated besides what the plan counts."""
    net = sym.SoftmaxOutput(
        sym.FullyConnected(
            sym.Convolution(sym.Variable("data"), kernel=(3, 3), num_filter=4), num_hidden=5, name="fc"
        ),
        name="softmax",
    )
    exe = net.simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), data=(2, 3, 8, 8))
    exe.forward()
    program = exe._training_program()
    owned = [a.storage for a in exe._arrays.values()]
    scratch = 0
    for one in (program, exe._infer):
        tasks = one.plan.problem.tasks
        assert [n for s in one.segments for n in s.names] == [tasks[t].name for t in one.plan.schedule.task]
        for call in (c for s in one.segments for c in s.calls):
            for array in arrays_of(call):
                if array.size:
                    mine = np.shares_memory(array, exe._arena.block)
                    assert mine or any(np.shares_memory(array, o) for o in owned)
            work = getattr(call, "keywords", {}).get("work")
            if work is not None and work.size:
                scratch += 1
                assert np.shares_memory(work, exe._arena.block)
    if os.environ["MXLITE_KERNELS"] == "reference":
        assert scratch > 2


# -- random numbers --------------------------------------------------------------------------------------


def test_two_dropouts_of_one_step_draw_apart():
    x = sym.Variable("x")
    exe = sym.Group([sym.Dropout(x, p=0.5), sym.Dropout(x, p=0.5)]).simple_bind(mx.cpu(), x=(256,))
    a, b = exe.forward(is_train=True, x=np.ones(256, "float32"))
    assert not np.array_equal(a.asnumpy(), b.asnumpy())


@pytest.mark.parametrize("mirrored", [False, True])
def test_backward_of_dropout_meets_the_mask_of_its_forward(mirrored):
    x = sym.Variable("x")
    with mx.AttrScope(force_mirroring=str(mirrored)):
        h = sym.Dropout(x, p=0.5, name="drop1")
        h = sym.Dropout(sym.exp(h), p=0.5, name="drop2")
    exe = sym.Group([h, sym.tanh(h)]).simple_bind(mx.cpu(), x=(256,))
    assert (exe.memory_plan.recomputed > 0) == mirrored
    for _ in range(2):
        out = exe.forward(is_train=True, x=np.zeros(256, "float32"))[0]
        exe.backward([mx.nd.ones((256,)), mx.nd.zeros((256,))])
        kept = out.asnumpy() > 0  # exp(0) = 1 or exp(0 * 2) = 1: only the second mask shows
        grad = exe.grad_dict["x"].asnumpy()
        assert (grad[~kept] == 0).all()
        assert set(grad[kept].tolist()) == {0.0, 4.0}


def test_a_training_step_takes_one_step_of_the_random_generator_and_inference_none():
    mx.random.seed(9)
    exe = sym.Dropout(sym.Variable("x"), p=0.5).simple_bind(mx.cpu(), x=(4,))
    seed, before = nd_random.get_state()
    for n in range(1, 4):
        exe.forward(is_train=True)
        exe.forward(is_train=False)
        assert nd_random.get_state() == (seed, before + n)
    mlp().simple_bind(mx.cpu(), data=(2, 3)).forward(is_train=True)
    assert nd_random.get_state() == (seed, before + 3)


# -- what a plan is told ---------------------------------------------------------------------------------


def test_marks_of_the_user_reach_the_planner():
    h = sym.Variable("data")
    for i in range(4):
        with mx.AttrScope(mirror_stage="True" if i == 1 else "False", force_mirroring=str(i == 2)):
            h = sym.Activation(
                sym.FullyConnected(h, num_hidden=8, name=f"fc{i}"), act_type="tanh", name=f"act{i}"
            )
    plan = sym.MakeLoss(h).memory_plan(mx.cpu(), data=(4, 8))
    assert {t.name for t in plan.problem.tasks if t.stage} == {"fc1", "act1"}
    assert {t.name for t in plan.problem.tasks if t.mirror} == {"fc2", "act2"}
    again = {plan.problem.tasks[t].name for t, k in zip(plan.schedule.task, plan.schedule.copy) if k}
    assert again
    assert again <= {"fc2", "act2"}


def test_an_operator_that_only_moves_memory_is_reckoned_by_its_bytes():
    plan = mlp().memory_plan(mx.cpu(), data=(64, 3))
    relu = next(t for t in plan.problem.tasks if t.name == "relu1")
    assert relu.seconds == pytest.approx(2 * 64 * 16 * 4 / 600e9)


def test_each_update_follows_its_gradient_at_once():
    h = sym.Variable("data")
    for i in range(6):
        h = sym.FullyConnected(h, num_hidden=64, no_bias=True, name=f"fc{i}")
    net = sym.MakeLoss(h)
    plan = net.memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(), data=(2, 64))
    order = [plan.problem.tasks[t].name for t in plan.schedule.task]
    for i in range(6):
        # Behind its gradient, and behind whoever still reads the old weight.
        own = [s for s, name in enumerate(order) if name.startswith(f"fc{i}_backward")]
        assert order.index(f"fc{i}_weight_update") == max(own) + 1
    assert plan.breakdown["gradients"] == 0
    assert plan.arena_bytes < 3 * 64 * 64 * 4  # a gradient and the update's scratch, not six gradients


def test_updates_of_one_weight_used_twice_wait_for_both_uses():
    """The sum is complete, and the second backward has read the old weight, before it changes."""
    w, x = sym.Variable("w"), sym.Variable("x")
    h = sym.FullyConnected(sym.FullyConnected(x, w, num_hidden=4, no_bias=True, name="one"), w, num_hidden=4,
                           no_bias=True, name="two")  # fmt: skip
    net = sym.MakeLoss(h)
    rng = np.random.default_rng(0)
    start, data = (rng.standard_normal((n, 4)).astype("float32") for n in (4, 3))
    fused = net.simple_bind(mx.cpu(), optimizer=mx.optimizer.SGD(), x=(3, 4))
    fused.arg_dict["w"][:] = start
    fused.step([[0.5, 0]], x=data)
    s, d = start.astype("float64"), data.astype("float64")
    ones = np.ones((3, 4))
    grad = ones.T @ (d @ s.T) + (ones @ s).T @ d
    np.testing.assert_allclose(fused.arg_dict["w"].asnumpy(), s - 0.5 * grad, rtol=1e-4, atol=1e-5)


def test_states_of_the_optimizer_cost_the_engine_one_var():
    """In a ResNet-1001 they were more than a quarter of the Vars of a step."""
    net = mx.sym.Variable("data")
    for n in range(3):
        net = mx.sym.FullyConnected(net, num_hidden=4, name=f"fc{n}")
    net = mx.sym.MakeLoss(mx.sym.sum(net))
    executor = net.simple_bind(mx.cpu(), optimizer=mx.optimizer.Adam(), data=(2, 4))
    states = executor.optimizer_states
    assert len(states) >= 12 and len({array.var for array in states.values()}) == 1
    assert all(not array.asnumpy().any() for array in states.values())
    weights = [executor.arg_dict[f"fc{n}_weight"] for n in range(3)]
    assert len({array.var for array in weights}) == 3


def reached(before, left_out=()):
    """Who comes surely before whom, if those of `left_out` do not run."""
    found = []
    for row in before:
        seen = {p for p in row if p not in left_out}
        found.append(seen.union(*(found[p] for p in seen)))
    return found


def test_an_order_through_segments_that_are_left_out_holds_without_them():
    """Two previews behind one another, and random orders with any of their segments left out."""
    assert bridged([(), (0,), (1,), (2,)], {1, 2})[3] == (2, 1, 0)
    rng = np.random.default_rng(0)
    for _ in range(200):
        count = int(rng.integers(2, 12))
        before = [tuple(np.flatnonzero(rng.random(i) < 0.3).tolist()) for i in range(count)]
        left_out = set(np.flatnonzero(rng.random(count) < 0.4).tolist())
        whole, rest = reached(before), reached(bridged(before, left_out), left_out)
        for segment in set(range(count)) - left_out:
            assert rest[segment] == whole[segment] - left_out
