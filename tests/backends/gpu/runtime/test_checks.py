"""Labels and indices out of range on emulated GPUs: the next wait raises what the CPU raises."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.gpu.kernels.index import lookups
from mxlite.backends.gpu.runtime.checks import CHUNK
from mxlite.core import OperatorError
from tests.backends.gpu.gpu_programs import GPU, hollow_gpus, put, recorded_gpus
from tests.emulators.emulated_device import compiler

needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")
sym = mx.sym
CPU = mx.cpu()


def loss():
    scores = sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")
    return sym.MakeLoss(sym.cross_entropy(scores, sym.var("label"), name="loss"))


def message(run):
    with pytest.raises(OperatorError) as caught:
        run()
    assert caught.value.operation
    return str(caught.value).split(" (called at")[0]


def bound(ctx, net, **shapes):
    executor = net.simple_bind(ctx, **shapes)
    for name, array in executor.arg_dict.items():
        put(array, np.zeros(array.shape) if name in ("label", "indices") else np.ones(array.shape))
    return executor


@needs_compiler
@pytest.mark.parametrize("late", [0.0, 0.5])
def test_a_captured_step_tells_of_a_label_that_is_no_class(late):
    """In the words of the CPU, whichever wait comes next, and once; later steps are as good as before."""
    labels = [0, 1, 7, 2, -5, 7]

    def step(executor, values):
        put(executor.arg_dict["label"], values)
        executor.forward_backward()
        executor.outputs[0].asnumpy()

    cpu = bound(CPU, loss(), data=(6, 2), label=(6,))
    want = message(lambda: step(cpu, labels))
    assert "'loss'" in want and want.endswith("got 7.")
    with recorded_gpus(late=late, seed=5) as drivers:
        gpu = bound(GPU, loss(), data=(6, 2), label=(6,))
        for _ in range(3):
            step(gpu, np.zeros(6))
        assert message(lambda: step(gpu, labels)) == want
        step(gpu, np.zeros(6))
        assert np.isfinite(gpu.grad_dict["fc_weight"].asnumpy()).all()
        put(gpu.arg_dict["label"], labels)
        start = len(drivers[0].calls)
        gpu.forward_backward()
        gpu.forward_backward()
        mx.engine.get_engine().rest()
        names = [c.name for c in drivers[0].calls[start:]]
        assert names.count("launch_graph") == 2 and not {"copy", "synchronize"} & set(names)
        assert message(mx.nd.waitall) == want
        mx.nd.waitall()
        assert gpu._train.graphs == 1


@needs_compiler
def test_nll_loss_and_kept_losses_tell_too():
    for attrs in ({}, {"reduction": "none"}):
        net = sym.MakeLoss(sym.nll_loss(sym.var("data"), sym.var("label"), name="nll", **attrs))
        found = []
        for ctx in (CPU, GPU):
            with recorded_gpus():
                executor = bound(ctx, net, data=(3, 4, 2), label=(3, 2))
                put(executor.arg_dict["label"], [[0, 3], [-100, 9], [4, -1]])
                found.append(message(lambda e=executor: e.forward(is_train=True)[0].asnumpy()))
        assert found[0] == found[1]


@needs_compiler
@pytest.mark.parametrize("indices", [[0, 4, 5, 1], [-1, 2, 3, 0], [2, 90, -7, 1]])
def test_take_stays_on_the_device_and_raises(indices):
    rows = sym.take(sym.var("data"), sym.var("indices"), mode="raise", name="rows")
    net = sym.MakeLoss(rows)
    found = []
    for ctx in (CPU, GPU):
        with recorded_gpus(late=0.3):
            executor = bound(ctx, net, data=(5, 3), indices=(4,))
            for _ in range(3):
                executor.forward_backward()
            good = executor.outputs[0].asnumpy()
            put(executor.arg_dict["indices"], indices)
            found.append(message(lambda e=executor: e.forward_backward()[0].asnumpy()))
            put(executor.arg_dict["indices"], [4, 0, 1, 1])
            assert (executor.forward_backward()[0].asnumpy() == good).all()
            if ctx is GPU:
                assert not executor._train.why_not
                kernels = {t.kernel for t in executor.memory_plan.problem.tasks}
                assert "cuda lookup" in kernels and "cuda sorted sums" in kernels
    assert found[0] == found[1]


@needs_compiler
@pytest.mark.parametrize("wrong", [(), (0,), (299,), (70, 290)])
def test_many_indices_are_looked_at_by_many_blocks(wrong, monkeypatch):
    monkeypatch.setattr(lookups, "FEW", 64)
    indices = np.random.default_rng(0).integers(0, 5, 300).astype("int32")
    indices[list(wrong)] = [-3, 9][: len(wrong)]
    found = []
    for ctx in (CPU, GPU):
        with recorded_gpus(late=0.3):
            data, at = mx.nd.ones((5, 2), ctx), mx.nd.array(indices, ctx, dtype="int32")
            updates = mx.nd.ones((300, 2), ctx)
            for op, arrays in ((mx.nd.take, [data, at]), (mx.nd.index_add, [data, at, updates])):
                try:
                    found.append(op(*arrays, mode="raise").asnumpy().tolist())
                except mx.MXLiteError as error:
                    found.append(str(error).split(" (called at")[0])
    assert found[:2] == found[2:]
    assert all(isinstance(x, str) for x in found) == bool(wrong)


@needs_compiler
def test_imperative_calls_raise_at_the_next_wait():
    found = []
    for ctx in (CPU, GPU):
        with recorded_gpus(late=0.5, seed=2):
            data, good = mx.nd.ones((5, 3), ctx), mx.nd.array([1, 4], ctx)
            bad = mx.nd.array([1, 5], ctx)
            result = mx.nd.take(data, bad, mode="raise")
            found.append(message(result.wait_to_read))
            assert (mx.nd.take(data, good, mode="raise").asnumpy() == 1).all()
    assert found[0] == found[1]


@needs_compiler
def test_slots_are_used_again():
    with recorded_gpus():
        data, good = mx.nd.ones((5, 3), GPU), mx.nd.array([1, 4], GPU)
        for _ in range(CHUNK // 64 + 1):
            for _ in range(64):
                mx.nd.take(data, good, mode="raise")
            gc.collect()
            mx.nd.waitall()
            data.asnumpy()
        checks = backend_of(GPU).device.checks
        assert len(checks._chunks) == 1 and len(checks._free) > CHUNK - 70
        mx.nd.waitall()
        mx.nd.take(data, mx.nd.array([9], GPU), mode="raise")
        assert "got 9 to 9" in message(mx.nd.waitall)


@needs_compiler
@pytest.mark.parametrize("seed", range(3))
def test_what_was_told_is_not_told_again_and_what_comes_later_is_not_forgotten(seed):
    with recorded_gpus(late=0.0, seed=seed):
        data, bad = mx.nd.ones((5, 3), GPU), mx.nd.array([1, 5], GPU)
        worse = mx.nd.array([77], GPU)
        mx.nd.waitall()
        first = mx.nd.take(data, bad, mode="raise")
        mx.engine.get_engine().wait_all()
        second = data + 1
        mx.engine.get_engine().wait_all()
        assert "got 1 to 5" in message(first.wait_to_read)
        second.wait_to_read()
        third = data + 1
        mx.engine.get_engine().wait_all()
        mx.nd.take(data, worse, mode="raise")
        mx.engine.get_engine().wait_all()
        gc.collect()
        told = []
        for wait in (third.wait_to_read, mx.nd.waitall, mx.nd.waitall):
            try:
                wait()
            except OperatorError as error:  # of the first wait, too, if the kernel has run by then
                told.append(str(error))
        assert len(told) == 1 and "got 77 to 77" in told[0]


def test_a_device_without_checks_is_not_asked():
    with hollow_gpus() as drivers:
        x = mx.nd.ones((3,), GPU)
        start = len(drivers[0].calls)
        x.wait_to_read()
        mx.nd.waitall()
        assert "copy" not in [c.name for c in drivers[0].calls[start:]]
