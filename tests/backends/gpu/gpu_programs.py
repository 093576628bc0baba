"""Programs on emulated GPUs, for tests: values in and out, a recorder in between, and the same on the CPU."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.gpu import drivers_of
from mxlite.graph.update import HYPER
from tests.backends.gpu.recorder import marked, RecordingDriver
from tests.emulators.emulated_driver import EmulatedDriver

GPU = mx.gpu(0)


@contextmanager
def recorded_gpus(**how):
    """As `emulated_gpus`, with a RecordingDriver around each; yields the dict of those."""
    opened = {}

    def open_driver(index):
        opened[index] = RecordingDriver(EmulatedDriver(index, **how))
        return opened[index]

    with drivers_of(open_driver):
        yield opened
        mx.nd.waitall()


def put(array, values):
    """Values into an NDArray on any device."""
    array.wait_to_write()
    if array.context.device_type == "cpu":
        array.storage[...] = values
    else:
        backend_of(array.context).from_host(array.storage, np.asarray(values), array.var)


def get(array):
    """Values of an NDArray on any device."""
    array.wait_to_read()
    if array.context.device_type == "cpu":
        return array.asnumpy()
    return backend_of(array.context).to_host(array.storage, array.var)


def fill(executor, seed=0, classes=5):
    """The same values for every executor of one symbol, wherever it is."""
    rng = np.random.default_rng(seed)
    for name, array in executor.arg_dict.items():
        if "label" in name:
            put(array, rng.integers(0, classes, array.shape))
        else:
            put(array, rng.standard_normal(array.shape) * 0.3)
    for name, array in executor.aux_dict.items():
        put(array, np.full(array.shape, 1.0 if name.endswith("var") else 0.0))


def bound(net, ctx, shapes, **options):
    """An executor with values; random numbers begin anew."""
    mx.random.seed(3, ctx)
    executor = net.simple_bind(ctx, **shapes, **options)
    fill(executor)
    return executor


def steps(executor, count=3, split=False):
    """Outputs, gradients and auxiliary states after each of so many steps of training."""
    seen = []
    for _ in range(count):
        if split:
            executor.forward(is_train=True)
            executor.backward()
        else:
            executor.forward_backward()
        grads = [g for g in executor.grad_arrays if g is not None]
        seen.append([get(a) for a in (*executor.outputs, *grads, *executor.aux_arrays)])
    return seen


def fused_steps(executor, rate, count=3):
    """Outputs, parameters and states after each of so many fused steps."""
    seen = []
    for k in range(count):
        hyper = np.full(executor._arrays["var", HYPER].shape, 0.0)
        hyper[:, 0] = rate / (1 + k // 2)
        executor.step(hyper)
        arrays = (*executor.outputs, *executor.arg_arrays, *executor.optimizer_states.values())
        seen.append([get(a) for a in arrays])
    return seen


def watch(program, recorder):
    """Let the notes of a program's calls carry the numbers of their steps."""
    for segment in program.passes:
        segment.calls[:] = marked(recorder, segment.calls, segment.first)
        segment.forget()


def close(got, want, tolerance=2e-5):
    """Of all steps of two runs: equal up to a few roundings of the largest number."""
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            scale = float(np.max(np.abs(y), initial=1e-6))
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * scale)


def same(got, want):
    """Of all steps of two runs: equal bit by bit."""
    for a, b in zip(got, want, strict=True):
        for x, y in zip(a, b, strict=True):
            assert np.array_equal(x.view(np.uint8), y.view(np.uint8))


class HollowDriver(EmulatedDriver):
    """An EmulatedDriver whose kernels do nothing and need no compiler: for tests that look at the calls."""

    def load(self, source):
        return source

    def function(self, module, name):
        return self._handle()

    def launch(self, function, grid, block, shared, stream, arguments):
        self._put(stream, "kernel", lambda: None)


@contextmanager
def hollow_gpus(**how):
    """As `recorded_gpus`, where kernels do nothing."""
    opened = {}

    def open_driver(index):
        opened[index] = RecordingDriver(HollowDriver(index, **how))
        return opened[index]

    with drivers_of(open_driver):
        yield opened
        mx.nd.waitall()
