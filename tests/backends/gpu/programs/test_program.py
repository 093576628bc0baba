"""Bound programs on emulated GPUs: one graph per step, the plan's bytes, the same bits for every budget."""

from __future__ import annotations

import gc
import re
import threading

import numpy as np
import pytest

import mxlite as mx
from mxlite import models
from mxlite.backends.gpu import gpu_backend
from mxlite.core import OperatorError, OutOfMemoryError
from mxlite.engine import get_engine
from mxlite.executor.plan import remedies
from mxlite.memplan import check, FETCH, HostLink, RUN, STORE
from tests.backends.gpu.gpu_programs import (
    bound,
    close,
    fused_steps,
    get,
    GPU,
    hollow_gpus,
    put,
    recorded_gpus,
    same,
    steps,
    watch,
)
from tests.backends.gpu.recorder import HARMLESS
from tests.emulators.emulated_device import compiler
from tests.emulators.emulated_driver import pieces
from tests.networks.small_networks import mlp, random_network
from tests.tools.test_models import SMALL

sym = mx.sym
needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.fixture(autouse=True)
def judged(monkeypatch):
    """Every plan of this file passes the judge, in the order that streams and events realise."""
    monkeypatch.setenv("MXLITE_CHECK_PLAN", "1")


def residual(blocks=2, dropout=0.3):
    h = sym.Variable("data")
    for b in range(blocks + 1):
        r = sym.Convolution(h, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True, name=f"conv{b}")
        r = sym.BatchNorm(r, fix_gamma=False, name=f"bn{b}")
        r = sym.Activation(r, act_type="relu", name=f"relu{b}")
        h = h + r if b else r
    if dropout:
        h = sym.Flatten(sym.Dropout(h, p=dropout, name="drop"))  # where channels lie last
    return sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=5, name="fc"), name="softmax")


SHAPES = dict(data=(4, 3, 6, 6), softmax_label=(4,))
MLP = dict(data=(4, 8), softmax_label=(4,))


# -- numbers -------------------------------------------------------------------------------------------------


@needs_compiler
def test_steps_give_what_the_cpu_gives(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    want = steps(bound(residual(), mx.cpu(), SHAPES), 4)
    with recorded_gpus():
        for split in (False, True):
            executor = bound(residual(), GPU, SHAPES)
            close(steps(executor, 4, split), want)
            assert executor.measured_bytes == executor.memory_plan.peak_bytes
            put(executor.arg_dict["data"], np.zeros(SHAPES["data"]))
            executor.forward()  # inference: no mask
            infer = get(executor.outputs[0])
    cpu = bound(residual(), mx.cpu(), SHAPES)
    steps(cpu, 4)
    put(cpu.arg_dict["data"], np.zeros(SHAPES["data"]))
    close([[infer]], [[get(cpu.forward()[0])]])


@needs_compiler
def test_a_monitor_sees_what_it_sees_on_the_cpu(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")
    net = residual()

    def shown(ctx):
        seen = []
        executor = bound(net, ctx, SHAPES)
        executor.set_monitor_callback(
            lambda name, array: seen.append((name, array)), pattern="(?!.*mean|.*var)"
        )
        steps(executor, 2)
        executor.forward_backward()  # its results stay
        assert executor.measured_bytes == executor.memory_plan.peak_bytes
        last = seen[-len(seen) // 3 :]
        return [name for name, _ in last], [[get(array) for _, array in last]]

    names, want = shown(mx.cpu())
    with recorded_gpus():
        found, values = shown(GPU)
        assert found == names and "conv1_backward_output1" in names
        close(values, want)


@needs_compiler
@pytest.mark.parametrize("seed", range(3))
def test_every_budget_and_any_number_of_streams_give_the_same_bits(seed):
    """Recomputation, masks drawn again, arrays that wait in host memory: however late, in any order."""
    with recorded_gpus(seed=seed, late=[0.0, 0.2, 0.9][seed]):
        executor = bound(residual(), GPU, SHAPES)
        want = steps(executor)
        plan = executor.memory_plan
        low = plan.problem.lower_bound_bytes
        seen = set()
        quick = HostLink(1e13, 1e13)  # copies cost less than the shortest kernel
        for share, offload, streams in ((0.5, None, 1), (0.5, quick, 2), (0.4, None, 3), (0.5, quick, 1)):
            budget = int(low + share * (plan.peak_bytes - low))
            other = bound(residual(), GPU, SHAPES, memory_budget=budget, offload=offload, streams=streams)
            same(steps(other, split=streams == 2), want)
            found = other.memory_plan
            assert other.measured_bytes == found.peak_bytes <= budget
            assert other.measured_host_bytes == found.host_bytes
            seen |= {kind for kind in (RUN, STORE, FETCH) if kind in found.schedule.kinds}
            seen |= {"again"} if found.recomputed else set()
        assert seen == {RUN, STORE, FETCH, "again"}


@needs_compiler
def test_gradients_add_up_where_that_was_asked_for():
    net = mlp()
    cpu = bound(net, mx.cpu(), MLP, grad_req="add")
    with recorded_gpus():
        gpu = bound(net, GPU, MLP, grad_req="add")
        close(steps(gpu, 4), steps(cpu, 4))


@needs_compiler
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_fused_step_follows_its_rates(name):
    optimizer = mx.optimizer.create(name, **({"momentum": 0.9} if name == "sgd" else {}))
    want = fused_steps(bound(mlp(), mx.cpu(), MLP, optimizer=optimizer), 0.1, 6)
    with recorded_gpus(seed=5) as drivers:
        executor = bound(mlp(), GPU, MLP, optimizer=optimizer)
        close(fused_steps(executor, 0.1, 6), want)
        names = [c.name for c in drivers[0].calls]
        assert names.count("begin_capture") == 1 + bool(executor._train.why_not) * (
            executor._train.graphs - 1
        )


@needs_compiler
def test_two_networks_take_turns_in_one_arena():
    with recorded_gpus(seed=1):
        executor = bound(mlp(), GPU, MLP)
        alone = steps(executor)
        smaller = executor.reshape(data=(2, 8), softmax_label=(2,))
        assert smaller._arena is executor._arena
        for _ in range(3):
            smaller.forward_backward()
            executor.forward_backward()
            got = [get(a) for a in (*executor.outputs, *executor.grad_arrays) if a is not None]
            same([got], alone[-1:])
            executor.forward()


@needs_compiler
def test_who_comes_later_waits_for_the_arena_even_if_he_could_begin():
    """One network's step waits for its batch; it must not come between another's forward and backward."""
    with recorded_gpus():
        executor = bound(mlp(), GPU, MLP)
        want = steps(executor, 3)
        other = executor.reshape(data=(2, 8), softmax_label=(2,))
        other.forward_backward()
        get_engine().wait_all()
        gate = threading.Event()
        get_engine().push(lambda: gate.wait(10), (), (other.arg_dict["data"].var,), name="gate")
        other.forward_backward()
        executor.forward(is_train=True)
        threading.Timer(0.1, gate.set).start()
        gate.wait(10)
        other.outputs[0].wait_to_read()
        executor.backward()
        got = [get(a) for a in (*executor.outputs, *executor.grad_arrays) if a is not None]
        same([got], want[-1:])


@needs_compiler
def test_two_gpus_do_not_know_of_each_other():
    with recorded_gpus(seed=2) as drivers:
        a, b = (bound(mlp(), mx.gpu(i), MLP) for i in range(2))
        for _ in range(3):
            a.forward_backward()
            b.forward_backward()
        same(
            [[get(x) for x in a.grad_arrays if x is not None]],
            [[get(x) for x in b.grad_arrays if x is not None]],
        )
        assert set(drivers) == {0, 1}
        assert not set(drivers[0].live) & set(drivers[1].live)


# -- calls ---------------------------------------------------------------------------------------------------

NETS = ["mlp", "lenet", "resnet18_v2", "resnet20_cifar", "unet", "lstm", "lstm_unrolled", "mobilenet_v1",
        "random 1", "random 3", "random 4", "residual"]  # fmt: skip


def network(name):
    if name == "residual":
        return residual(), SHAPES
    if name.startswith("random"):
        return random_network(int(name.split()[1]))
    net = models.get(name, **SMALL[name])
    return net, models.shapes_of(name, batch=2, **SMALL[name])


def spans_of(program):
    """For each step the bytes that its arrays and its workspace take, as (address, bytes)."""
    plan, lowered = program.plan, program.lowered
    views = program._views(program.arena.block, plan.offsets)
    low = program.arena.block.address
    result = []
    for s, (t, kind) in enumerate(zip(plan.schedule.task, plan.schedule.kinds)):
        arrays = [views[i] for i in (*plan.schedule.inputs[s], *plan.schedule.outputs[s]) if i >= 0]
        task = plan.problem.tasks[t]
        if kind == RUN:
            arrays += [
                program.arrays[lowered.key[v]].storage
                for v in (*task.inputs, *task.mutates)
                if lowered.key[v]
            ]
        found = [
            (x.address if hasattr(x, "address") else x.ctypes.data, x.nbytes) for x in arrays if x is not None
        ]
        if (b := plan.liveness.workspace_of.get(s)) is not None:
            found.append((low + plan.offsets[b], task.workspace))
        if lowered.calls[t].stream >= 0 and program.random is not None:
            found.append((program.random.array.address, 16))
        result.append(found)
    return result


@pytest.mark.parametrize("name", NETS)
def test_every_call_of_a_step_keeps_to_its_arrays_and_comes_in_the_order_of_the_plan(name):
    net, shapes = network(name)
    with hollow_gpus() as drivers:
        executor = bound(net, GPU, shapes, streams=2)
        driver = drivers[0]
        program = executor._training_program()
        whole = program.whole
        watch(program, driver)
        for run in range(3):
            get_engine().wait_all()
            start = len(driver.calls)
            executor.forward_backward()
            get_engine().wait_all()
            calls = driver.calls[start:]
            works = [c for c in calls if c.name in ("launch", "copy", "fill") and c.step >= 0]
            if run == 0:
                eager = works
                assert not driver.graphs
            if run == 1:
                captured = works
        # The same work, whether captured or not; each step has some.
        key = lambda c: (c.step, c.name, c.addresses)  # noqa: E731
        assert sorted(map(key, eager)) == sorted(map(key, captured))
        blocked = set(whole.graph.why_not)
        plan = program.plan
        for s in set(range(len(plan.schedule.task))) - {c.step for c in eager}:
            assert plan.problem.tasks[plan.schedule.task[s]].in_place  # and so there is nothing to be copied
        # Nothing is launched in a replay but graphs, and what stays outside of them.
        assert {c.step for c in works} <= blocked | _short_pieces(whole.graph)
        if not blocked:
            assert [c.name for c in calls if c.name not in ("activate", "record", "restore")] == [
                "launch_graph"
            ]
        assert len(driver.graphs) == whole.graph.graphs
        # Every address lies in an array of its step.
        spans = spans_of(program)
        for c in eager:
            if c.step in blocked:
                continue
            for address, nbytes in c.addresses:
                assert driver.is_live(address, nbytes)
                assert any(
                    low <= address and address + nbytes <= low + size for low, size in spans[c.step]
                ), program.plan.problem.tasks[plan.schedule.task[c.step]].name
        # What was captured is in the plan's order, by the judge's own eyes.
        before = [None] * len(plan.schedule.task)
        for graph in driver.graphs.values():
            steps_of = [n.step for n in graph.nodes if n.step >= 0]
            part = range(min(steps_of), max(steps_of) + 1)
            for s, row in zip(part, graph.order_of_steps(part)):
                before[s] = (*range(part.start), *row)
        for s, row in enumerate(before):
            if row is None:
                before[s] = tuple(range(s))
        check(plan, before)


def _short_pieces(graph):
    """Calls that are alone between two that cannot be captured."""
    return {place for place, run in graph._pieces if run in graph.calls}


def test_nothing_is_allocated_or_waited_for_in_a_capture_or_a_replay():
    with hollow_gpus() as drivers:
        executor = bound(mlp(), GPU, MLP)
        driver = drivers[0]
        executor.forward()
        get_engine().wait_all()
        names = [c.name for c in driver.calls]
        executor.forward()
        executor.forward()
        get_engine().wait_all()
        later = [c.name for c in driver.calls[len(names) :]]
        first, last = later.index("begin_capture"), later.index("end_capture")
        assert set(later[first + 1 : last]) <= HARMLESS - {"launch_graph"}
        behind = [n for n in later[last + 1 :] if n not in ("activate", "record", "restore")]
        assert behind == ["upload_graph", "launch_graph", "launch_graph"]
        assert executor._infer.graphs == 1 and not executor._infer.why_not


def test_random_steps_are_the_cpus_again_behind_a_step_that_failed():
    """Also where it has failed while it was captured, so that the device has counted nothing."""
    h = mx.sym.Dropout(mx.sym.var("data"), p=0.5, name="drop")
    net, outputs = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=5), name="softmax"), []
    for ctx in (mx.cpu(), GPU):
        with recorded_gpus():
            executor = bound(net, ctx, dict(data=(4, 8), softmax_label=(4,)))
            executor.forward_backward()
            get_engine().wait_all()
            if ctx is GPU:
                whole, left = executor._train.whole, [1]
                last, device = whole.calls[-1], executor._backend.device

                def picky(last=last, device=device, left=left):
                    if device.is_capturing and left:
                        left.pop()
                        raise ValueError("not now")
                    last()

                whole.calls[-1] = picky
                whole.forget()
            executor.forward_backward()
            executor.forward_backward()  # on the GPU: captured
            try:
                get_engine().wait_all()
            except OperatorError:
                assert ctx is GPU
            executor.forward_backward()
            outputs.append(get(executor.outputs[0]))
            assert ctx is not GPU or (not left and executor._train.graphs == 1)
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-5)


# -- bytes ---------------------------------------------------------------------------------------------------


def test_hundreds_of_weights_take_hardly_more_of_the_device_than_the_plan_says():
    """Though the driver gives memory in pieces of 2 MiB: those of one kind lie in one block."""
    x = mx.sym.Variable("data")
    for i in range(40):
        x = mx.sym.FullyConnected(x, num_hidden=530, name=f"fc{i}")  # a little more than 1 MiB each
    net = mx.sym.LinearRegressionOutput(x, name="out")
    with hollow_gpus() as drivers:
        put(mx.nd.NDArray.fresh((8,), np.dtype("float32"), GPU), 1)
        free = drivers[0].memory()[0]
        executor = net.simple_bind(
            GPU, data=(2, 530), out_label=(2, 530), optimizer=mx.optimizer.SGD(momentum=0.9)
        )
        mx.nd.waitall()
        executor.step([[0.1, 0.0]] * 80)
        mx.nd.waitall()
        used, peak = free - drivers[0].memory()[0], executor.memory_plan.peak_bytes
        assert peak > 80 * 2**20 and used < peak + 6 * 2**20
        lone = executor.arg_dict["fc7_weight"]
        executor = None
        gc.collect()
        arrays = gpu_backend(0).device.pool.held().arrays
        assert 40 * 2**20 < arrays < 50 * 2**20  # what is left is of the weights alone
        del lone


def test_the_device_loses_the_bytes_of_the_plan_and_gets_them_back():
    with hollow_gpus() as drivers:
        put(mx.nd.NDArray.fresh((8,), np.dtype("float32"), GPU), 1)  # the pool's chunk is there
        free = drivers[0].memory()[0]
        executor = bound(residual(), GPU, dict(data=(16, 3, 64, 64), softmax_label=(16,)))
        mx.nd.waitall()  # arrays on their way there are gone
        gpu_backend(0).device.pool.trim()  # and what kernels that were measured at bind have left
        owned, taken = free - drivers[0].memory()[0], drivers[0].driver.taken
        executor.forward_backward()
        mx.nd.waitall()
        arena = drivers[0].driver.taken - taken
        assert free - drivers[0].memory()[0] - owned == pieces(arena)
        assert arena == executor.memory_plan.arena_bytes == executor._arena.measured_bytes
        assert executor.measured_bytes == executor.memory_plan.peak_bytes
        executor = None
        gc.collect()
        mx.nd.waitall()
        gc.collect()
        assert drivers[0].memory()[0] >= free - owned


LARGE = dict(data=(16, 3, 64, 64), softmax_label=(16,))


@pytest.fixture
def estimates(monkeypatch):
    """What would help is reckoned, not planned, which takes seconds."""
    monkeypatch.setattr(remedies, "WORK", 0)


@pytest.mark.parametrize("budget", [None, "64MiB"])
def test_memory_that_others_take_after_bind_is_missed_with_the_plan_and_what_is_free(budget):
    with hollow_gpus(capacity=256 * 2**20) as drivers:
        executor = bound(residual(), GPU, LARGE, memory_budget=budget)
        drivers[0].driver.elsewhere = drivers[0].memory()[0] - 2**20
        with pytest.raises(OutOfMemoryError) as error:
            executor.forward_backward()
        text = str(error.value)
        assert "gpu(0) has no room for" in text and "activations" in text and "are free on gpu(0)" in text
        assert ("memory_budget=67108864 is more than is free" in text) == (budget is not None)


@pytest.mark.parametrize("budget", [None, "64MiB"])
def test_a_plan_for_which_there_is_no_room_is_refused_at_bind(budget, estimates):
    """Nothing is allocated; the budget that is named does work there."""
    with hollow_gpus(capacity=64 * 2**20) as drivers:
        put(mx.nd.NDArray.fresh((8,), np.dtype("float32"), GPU), 1)
        whole = residual().memory_plan(GPU, memory_budget=budget, **LARGE)
        low = whole.problem.lower_bound_bytes
        drivers[0].driver.elsewhere = drivers[0].memory()[0] - (whole.peak_bytes + low) // 2
        free = drivers[0].memory()
        with pytest.raises(mx.MemoryBudgetError) as refused:
            residual().simple_bind(GPU, memory_budget=budget, **LARGE)
        error, text = refused.value, str(refused.value)
        assert drivers[0].memory() == free and drivers[0].driver.most_taken == drivers[0].driver.taken
        assert f"its plan takes {whole.peak_bytes} bytes" in text and "What would help" in text
        assert f"Free are {free[0]} bytes of {free[1]}" in text and "other processes" in text
        assert f"memory_budget={error.budget_bytes} fits" in text and "activations" in text
        assert low <= error.least_feasible_bytes <= error.budget_bytes < whole.peak_bytes
        executor = bound(residual(), GPU, LARGE, memory_budget=error.budget_bytes)
        executor.forward_backward()
        mx.nd.waitall()


def test_what_is_too_large_in_any_plan_is_refused_with_the_least_and_a_smaller_batch(estimates):
    with hollow_gpus(capacity=4 * 2**20) as drivers:
        with pytest.raises(mx.MemoryBudgetError) as refused:
            residual().simple_bind(GPU, **LARGE)
        assert drivers[0].driver.most_taken == 0
        assert refused.value.least_feasible_bytes > refused.value.budget_bytes
        assert re.search("does work, with(.|\n)*What would help:(.|\n)*batch", str(refused.value))


def test_room_is_what_a_limit_and_idle_memory_leave(estimates):
    with hollow_gpus(capacity=256 * 2**20) as drivers:
        peak = residual().memory_plan(GPU, **LARGE).peak_bytes
        mx.set_gpu_memory_limit(peak // 2)
        with pytest.raises(mx.MemoryBudgetError, match="This process may take"):
            residual().simple_bind(GPU, **LARGE)
        mx.set_gpu_memory_limit(None)
        arrays = [mx.nd.NDArray.fresh((2**20,), np.dtype("float32"), GPU) for _ in range(8)]
        del arrays  # idle now, and given back when it is wanted
        gc.collect()
        drivers[0].driver.elsewhere = drivers[0].memory()[0] - peak + 16 * 2**20
        executor = bound(residual(), GPU, LARGE)
        executor.forward_backward()
        mx.nd.waitall()


def test_a_module_that_is_refused_leaves_those_that_share_its_arena_as_they_were(estimates):
    with hollow_gpus(capacity=256 * 2**20) as drivers:
        module = mx.mod.Module(residual(), context=GPU)
        module.bind([("data", (4, 3, 64, 64))], [("softmax_label", (4,))])
        module.init_params()
        batch = mx.io.DataBatch([mx.nd.ones((4, 3, 64, 64))], [mx.nd.zeros((4,))])
        module.forward_backward(batch)
        mx.nd.waitall()
        drivers[0].driver.elsewhere = drivers[0].memory()[0] - 2**20
        large = mx.io.DataBatch([mx.nd.ones((16, 3, 64, 64))], [mx.nd.zeros((16,))])
        with pytest.raises(mx.MemoryBudgetError, match="no room for this program"):
            module.forward_backward(large)
        module.forward_backward(batch)
        mx.nd.waitall()
