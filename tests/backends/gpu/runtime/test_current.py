"""Whose device a thread talks to: ours while we call it, and again the caller's when we are done."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.gpu import drivers_of, gpu_backend
from mxlite.engine import use_engine
from tests.backends.gpu.gpu_programs import bound, fused_steps
from tests.backends.gpu.recorder import RecordingDriver
from tests.emulators.emulated_device import compiler
from tests.emulators.emulated_driver import EmulatedDriver, talking, talks_to
from tests.emulators.fake_cupy import fake_cupy

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")

OTHERS = 77  # what a thread of the tests talks to
ANYWHERE = {"activate", "restore", "free", "host_free", "destroy_graph"}
"""Calls that see to it themselves, and finalizers, which may run on any thread."""


class PlacedDriver(RecordingDriver):
    """Refuses what a thread asks of it that talks to another device."""

    def __init__(self, driver):
        super().__init__(driver)
        self.astray = []

    def _note(self, name, stream=0):
        super()._note(name, stream)
        if name not in ANYWHERE and talks_to() != id(self.driver):
            self.astray.append(name)

    def _work(self, name, stream, addresses):
        super()._work(name, stream, addresses)
        if talks_to() != id(self.driver):
            self.astray.append(name)


@pytest.fixture
def drivers():
    """Two GPUs, by number, on a thread that talks to something else."""
    opened = {}

    def open_driver(index):
        opened[index] = PlacedDriver(EmulatedDriver(index))
        return opened[index]

    with drivers_of(open_driver, 2):
        talking.to = OTHERS
        yield opened
        mx.nd.waitall()
        talking.to = 0


def network():
    x = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6), act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.Dropout(x), name="softmax")


def calls():
    """What users call, each by its name."""
    a = mx.nd.array(np.ones((3, 4)), ctx=mx.gpu(0))
    yield "array"
    b = mx.nd.random.uniform(shape=(3, 4), ctx=mx.gpu(1))
    yield "random"
    (a + a.T.T).wait_to_read()
    yield "operators"
    c = b.as_in_context(mx.gpu(0)) + a
    yield "a copy between devices"
    c[1:2] = 3.0
    c[[0, 2]] = 4.0
    assert c[1, 1].asscalar() == 3.0
    yield "parts"
    a.attach_grad()
    with mx.autograd.record():
        y = (a * a).sum()
    y.backward()
    assert a.grad.asnumpy().sum() == 24.0
    yield "gradients"
    mx.gpu_memory_info(1)
    yield "memory"
    for ctx in (mx.gpu(0), mx.gpu(1)):
        executor = bound(
            network(), ctx, {"data": (4, 5), "softmax_label": (4,)}, optimizer=mx.optimizer.SGD()
        )
        yield "bind"
        fused_steps(executor, 0.1)
        yield "steps"
        whole = executor._training_program().whole
        mx.nd.waitall()
        whole.operation((), ()).timed(lambda sheet, first, stamps: None)()
        yield "times"
    a.__dlpack__(stream=-1)
    yield "what others have seen"
    module = mx.mod.Module(network(), context=mx.gpu(1), fused_update=True)
    batches = mx.io.NDArrayIter(np.ones((8, 5)), np.zeros(8), 4)
    module.fit(batches, num_epoch=1, eval_metric="acc")
    module.score(batches, "acc")
    yield "fit"
    del a, b, c, y, executor, module
    yield "what frees memory"
    mx.nd.waitall()
    yield "waitall"


@pytest.mark.parametrize("engine", ["naive", "threaded"])
def test_every_call_leaves_the_thread_where_it_was(drivers, engine):
    with use_engine(engine):
        for what in calls():
            assert talks_to() == OTHERS, what
        mx.nd.waitall()
    for index, driver in drivers.items():
        assert driver.astray == [], f"gpu({index})"
    assert sum(note.name == "launch_graph" for d in drivers.values() for note in d.calls) > 4


def test_a_call_that_fails_goes_back_as_well(drivers):
    with pytest.raises(mx.DeviceError):
        with gpu_backend(0).device.active():
            assert talks_to() == id(drivers[0].driver)
            with gpu_backend(1).device.active():
                assert talks_to() == id(drivers[1].driver)
            assert talks_to() == id(drivers[0].driver)
            raise mx.DeviceError("of a kernel")
    assert talks_to() == OTHERS


@pytest.mark.parametrize("before", [0, None])
def test_cupys_device_is_that_of_the_caller_again(before):
    """A thread that has none yet gets none, nor a context on the first GPU: it is not ours to choose."""
    with fake_cupy(devices=2) as cuda:
        cuda.contexts.clear()
        cuda.current = before
        device = gpu_backend(1).device
        assert cuda.current == before and cuda.contexts == {1}
        device.empty(64)
        device.synchronize()
        assert cuda.current == before and cuda.contexts == {1}
        seen = []

        def on_another_thread():
            with device.active():
                seen.append(cuda.current)
            seen.append(cuda.current)

        thread = threading.Thread(target=on_another_thread)
        thread.start()
        thread.join()
        assert seen == [1, None] and cuda.contexts == {1}
        with device.active():
            start = len(cuda.calls)
            with device.active():
                pass
            assert [name for _, name, _ in cuda.calls[start:]] == ["ctxGetCurrent"]
