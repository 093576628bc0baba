"""NDArrays on GPUs: between devices, when something fails, what memory they take; on emulated drivers."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import traceback

import numpy as np
import pytest

import mxlite as mx
from mxlite import autograd, nd
from mxlite.backends.gpu import drivers_of, gpu_backend
from mxlite.backends.gpu.runtime import registry
from mxlite.backends.gpu.runtime.driver import DriverError
from mxlite.core import DeviceError, OperatorError, OutOfMemoryError
from mxlite.engine import get_engine, use_engine
from tests.emulators.emulated_device import compiler
from tests.emulators.emulated_driver import emulated_gpus, EmulatedDriver
from tests.engine.watchdog import in_time

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.fixture(autouse=True, params=["threaded", "naive"])
def drivers(request):
    with emulated_gpus(late=0.0) as opened, use_engine(request.param):
        yield opened


def same(a, b):
    np.testing.assert_array_equal(a.asnumpy(), b)


# -- devices ---------------------------------------------------------------------------------------------


def test_arrays_go_from_any_device_to_any_other():
    devices = [mx.cpu(0), mx.gpu(0), mx.gpu(1)]
    for start in devices:
        for end in devices:
            a = nd.array([[1, 2], [3, 4]], start)
            a *= 2
            b = a.as_in_context(end)
            assert b.context == end and (b is a) == (start == end)
            c = nd.zeros((2, 2), end, "int32")
            a.copyto(c)
            a[:] = 0  # after it was read
            same(c, [[2, 4], [6, 8]])
            d = nd.zeros((3, 2), end)
            d[:, 1] = nd.array([5, 6, 7], start)
            d[0] = c[0].astype("float32") if start == end else nd.array([8, 9], start)
            assert d.asnumpy()[2].tolist() == [0, 7]


def test_default_device_of_a_thread():
    with mx.gpu(1):
        a, b = nd.ones((2, 3)), mx.random.uniform(shape=(2,))
        with mx.cpu():
            assert nd.zeros(2).context == mx.cpu()
        assert a.context == b.context == (a + 1).context == nd.arange(3).context == mx.gpu(1)
        assert "@gpu(1)>" in repr(a)
        assert nd.eye(3).asnumpy().sum() == 3 and nd.linspace(0, 1, 5).context == mx.gpu(1)


def test_an_operator_on_two_devices_is_refused_by_name():
    a, b = nd.ones(3, mx.gpu(0)), nd.ones(3)
    for x, y in ((a, b), (b, a), (a, nd.ones(3, mx.gpu(1)))):
        with pytest.raises(DeviceError, match=rf"broadcast_add needs .*{x.context.device_type}\(\d\).*'rhs'"):
            x + y
        with pytest.raises(DeviceError, match="one device"), autograd.record():
            x + y
    with pytest.raises(DeviceError, match=r"out is on cpu\(0\)"):
        nd.exp(a, out=b)
    same(nd.ones(3, mx.cpu(1)) + b, [2, 2, 2])  # labels of the same memory


def test_random_numbers_are_those_of_the_same_seed_on_the_host():
    drawn = {}
    for ctx in (mx.cpu(), mx.gpu(0)):
        mx.random.seed(7, ctx=ctx)
        a = mx.random.uniform(shape=(5, 3), ctx=ctx)
        b = mx.random.randint(0, 100, shape=(20,), ctx=ctx)
        drawn[ctx.device_type] = (a.asnumpy(), b.asnumpy(), mx.nd.shuffle(a).asnumpy())
        out = nd.zeros(4, ctx)
        mx.random.uniform(out=out)
        assert out.context == ctx and 0 < out.asnumpy().sum() < 4
    for x, y in zip(drawn["cpu"], drawn["gpu"]):
        np.testing.assert_array_equal(x, y)


def test_files_and_pickles(tmp_path):
    a = nd.arange(6, ctx=mx.gpu(0)).reshape((2, 3))
    nd.save(str(tmp_path / "a.params"), {"a": a, "b": a[1]})
    loaded = nd.load(str(tmp_path / "a.params"))
    assert loaded["a"].context == mx.cpu()
    same(loaded["b"], [3, 4, 5])
    again = pickle.loads(pickle.dumps(a))
    assert again.context == mx.gpu(0)
    same(again, a.asnumpy())


def test_gradients_cross_devices():
    x, w = nd.array([1, 2, 3], mx.gpu(0)), nd.array([4, 5, 6])
    x.attach_grad()
    w.attach_grad()
    with autograd.record():
        y = (x * x).as_in_context(mx.cpu()) * w
        z = (y.as_in_context(mx.gpu(1)) * 2).sum()
    z.backward()
    assert x.grad.context == mx.gpu(0) and w.grad.context == mx.cpu()
    same(x.grad, 2 * 2 * np.array([1, 2, 3]) * [4, 5, 6])
    same(w.grad, 2 * np.array([1, 4, 9]))


def test_gradients_that_cross_devices_can_be_differentiated():
    x = nd.array([1, 2, 3], mx.gpu(0))
    x.attach_grad()
    with autograd.record():
        y = nd.tanh(x).as_in_context(mx.cpu()) + (x * x * x).as_in_context(mx.cpu())
        (g,) = autograd.grad(y, [x], create_graph=True)
        assert g.context == mx.gpu(0)
    g.backward()
    t = np.tanh([1, 2, 3])
    np.testing.assert_allclose(x.grad.asnumpy(), 6 * np.array([1, 2, 3]) - 2 * t * (1 - t * t), rtol=1e-4)


def test_loops_and_custom_operators():
    class Square(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * in_data[0])

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], mx.nd.array(2 * in_data[0].asnumpy()) * out_grad[0])

    @mx.operator.register("square_on_gpu")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Square()

    with mx.gpu(0):
        x = nd.array([1, 2, 3])
        x.attach_grad()
        with autograd.record():
            y = nd.Custom(x, op_type="square_on_gpu")
            out, last = nd.contrib.foreach(lambda row, s: (row + s, row * s), y, nd.ones(1))
            head = out.sum() + last
        head.backward()
        assert y.context == out.context == mx.gpu(0)
        same(y, [1, 4, 9])
        out, _ = nd.contrib.while_loop(lambda i: i < 3, lambda i: (i, i + 1), nd.zeros(1), max_iterations=5)
        assert out.context == mx.gpu(0)
        same(out.reshape(-1), [0, 1, 2, 0, 0])
    out, _ = nd.contrib.while_loop(
        lambda i: i < 3, lambda i: (i, i + 1), nd.zeros(1, mx.gpu(1)), max_iterations=5
    )
    assert out.context == mx.gpu(1)


def test_parts_that_overlap_are_copied_as_numpy_does():
    x = np.arange(24, dtype="f4").reshape(4, 6)
    for target, source in (
        ((slice(1, 4),), (slice(0, 3),)),
        ((slice(0, 3),), (slice(1, 4),)),
        ((slice(None), slice(1, 6)), (slice(None), slice(0, 5))),
        ((slice(None), slice(None, None, -1)), (slice(None),)),
    ):
        a, y = nd.array(x, mx.gpu(0)), x.copy()
        part = a[source]
        a[target] = part
        y[target] = y[source].copy()
        same(a, y)


# -- order -----------------------------------------------------------------------------------------------


def test_an_upload_waits_for_no_kernel_and_a_download_only_for_its_own(drivers):
    a, b = nd.ones(1000, mx.gpu(0)), nd.ones(1000, mx.gpu(0))
    nd.waitall()
    driver, device = drivers[0], gpu_backend(0).device
    a += 1
    for _ in range(20):
        b += 1
    batch = nd.array(np.arange(1000), mx.gpu(0))
    batch.wait_to_read()
    get_engine().wait_all()
    assert len(driver.streams[device.compute].work) >= 40  # kernels and tickets
    same(a, np.full(1000, 2))
    assert len(driver.streams[device.compute].work) >= 38
    same(batch, np.arange(1000))
    same(b, np.full(1000, 21))


def test_copies_have_workers_of_their_own(monkeypatch):
    pushed = []
    engine = get_engine()
    push = engine.push
    monkeypatch.setattr(
        engine,
        "push",
        lambda *a, **k: (pushed.append((k["name"], k["device"], k.get("kind", "compute"))), push(*a, **k))[1],
    )
    a = nd.array([1, 2], mx.gpu(1))
    b = a.as_in_context(mx.cpu())
    c = b.as_in_context(mx.gpu(0)) + 1
    c.copyto(nd.zeros(2, mx.gpu(0)))
    assert [p for p in pushed if p[0] != "full"] == [
        ("array", "gpu1", "copy"),
        ("copyto", "gpu1", "copy"),
        ("copyto", "gpu0", "copy"),
        ("_plus_scalar", "gpu0", "compute"),
        ("copyto", "gpu0", "compute"),
    ]


@in_time(30)
def test_threads_use_a_device_at_once():
    a = nd.zeros(8, mx.gpu(0))

    def add():
        for _ in range(50):
            nd.broadcast_add(a, nd.array(np.ones(8), mx.gpu(0)), out=a)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    same(a, [200] * 8)


# -- failures --------------------------------------------------------------------------------------------


def test_an_error_of_the_driver_names_the_operation_and_poisons_its_result(drivers):
    a = nd.ones(3, mx.gpu(0))
    a.wait_to_read()
    driver = drivers[0]
    launch = driver.launch

    def refuse(*_):
        raise DriverError("no such grid.", name="cudaErrorInvalidConfiguration")

    driver.launch = refuse
    b = nd.exp(a)
    c = b + 1
    with pytest.raises(OperatorError, match=r"exp.*runtime/test_arrays.py:\d+.*no such grid"):
        b.asnumpy()
    with pytest.raises(OperatorError, match="no such grid"):
        c.wait_to_read()
    driver.launch = launch
    b[:] = 5
    same(b + a, [6, 6, 6])


def test_what_an_operation_launched_before_it_failed_is_waited_for(drivers):
    a = nd.zeros(1000, mx.gpu(0))
    nd.waitall()
    backend = gpu_backend(0)

    def fail():
        backend.fill(a.storage, 3)
        raise ValueError("too late")

    get_engine().push(backend.issue(fail, (a.var,)), (), (a.var,), device=backend.lane)
    a[:] = np.full(1000, 5)
    same(a, np.full(1000, 5))
    nd.zeros(1, mx.gpu(0)).wait_to_read()
    same(a, np.full(1000, 5))
    with pytest.raises(OperatorError, match="too late"):
        nd.waitall()


def test_a_fault_comes_out_of_the_wait_and_leaves_other_devices_alone(drivers):
    a, other = nd.ones(3, mx.gpu(0)), nd.ones(3, mx.gpu(1))
    nd.waitall()
    b = a * 2
    get_engine().wait_all()
    drivers[0].fault = DriverError("an illegal address.", name="cudaErrorIllegalAddress", is_lasting=True)
    with pytest.raises(DeviceError, match="illegal address"):
        b.wait_to_read()
    with pytest.raises(DeviceError, match=r"gpu\(0\) cannot be used any more.*illegal address"):
        nd.zeros(3, mx.gpu(0))
    c = nd.array([1, 2, 3]) + 1
    nd.waitall()  # this failure has been raised
    same(c, [2, 3, 4])
    same(other + 1, [2, 2, 2])


def test_wait_for_everything_raises_a_fault_once(drivers):
    nd.ones(3, mx.gpu(0))
    nd.waitall()
    drivers[0].fault = DriverError("an illegal address.", is_lasting=True)
    with pytest.raises(DeviceError, match="illegal address"):
        nd.waitall()
    nd.waitall()


def test_a_missing_device_is_refused():
    with emulated_gpus(count=2):
        assert mx.num_gpus() == mx.context.num_gpus() == 2


# -- memory ----------------------------------------------------------------------------------------------


def test_memory_is_bounded_and_comes_back():
    free, total = mx.gpu_memory_info(0)
    assert free == total == 2**30
    assert mx.set_gpu_memory_limit("16MiB") is None
    a = nd.zeros((2**21,), mx.gpu(0))  # 8 MiB
    with pytest.raises(OutOfMemoryError, match=r"of at most 16777216 it may take \(8388608 in arrays, 0 in"):
        nd.zeros((3 * 2**20,), mx.gpu(0))
    b = nd.zeros((2**21,), mx.gpu(0))
    del b
    nd.waitall()
    gc.collect()
    held = gpu_backend(0).device.pool.held()
    assert (held.arrays, held.idle, held.limit) == (8 * 2**20, 8 * 2**20, 2**24)
    c = nd.zeros((2**20,), mx.gpu(0))  # there is no room but what lies idle
    assert gpu_backend(0).device.pool.taken == 12 * 2**20
    assert mx.set_gpu_memory_limit(None) == 2**24
    same(a[:2] + c[:2], [0, 0])
    with pytest.raises(OutOfMemoryError, match="more than the 1073741824 there are"):
        nd.broadcast_add(nd.zeros((2**14, 1), mx.gpu(0)), nd.zeros((1, 2**15), mx.gpu(0)))


def test_a_limit_from_the_environment(monkeypatch):
    monkeypatch.setenv("MXLITE_GPU_MEMORY_LIMIT", "1MiB")
    with emulated_gpus(), pytest.raises(OutOfMemoryError, match="at most 1048576"):
        nd.zeros((2**20,), mx.gpu(0))


def test_what_is_freed_while_a_graph_is_captured_is_freed_afterwards(drivers):
    device = gpu_backend(0).device
    arena, host, kept = device.arena(4096), device.pinned(64), device.empty(512)
    graph = device.capture([])
    held = [arena, host, graph]
    del arena, host, graph

    def forget():
        held.clear()
        gc.collect()
        assert len(drivers[0].pinned_of) == 1 and len(drivers[0].graphs) == 1

    taken = drivers[0].taken
    last = device.capture([forget])
    assert not drivers[0].pinned_of and len(drivers[0].graphs) == 1
    assert device.pool.held().arenas == 0 and drivers[0].taken == taken - 4096
    last()
    with pytest.raises(DeviceError, match="captured"):
        device.capture([lambda: device.empty(64)])  # also what the pool has
    assert kept.nbytes == 512


# -- processes -------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_of_who_has_counted_gpus_is_told_so_too(monkeypatch):
    """To count them opens CUDA."""
    monkeypatch.setattr(registry, "_was_counted", False)
    for counts in (False, True):
        if counts:
            mx.num_gpus()
        with drivers_of(lambda index: EmulatedDriver(index), 1):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    nd.ones(3, mx.gpu(0)).asnumpy()
                    os.write(writing, b"used")
                except BaseException as error:
                    os.write(writing, str(error).encode())
                finally:
                    os._exit(0)
            os.close(writing)
            with os.fdopen(reading) as pipe:
                told = pipe.read()
            os.waitpid(child, 0)
        assert ("or counted them" in told) == counts and (told == "used") == (not counts)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_told_that_it_cannot_use_the_gpu(drivers):
    a = nd.ones(3, mx.gpu(0)) + 1
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for use in (
                a.asnumpy,
                lambda: a + 1,
                lambda: nd.ones(3, mx.gpu(1)),
                lambda: a.copyto(nd.zeros(3)).asnumpy(),
            ):
                with pytest.raises((DeviceError, OperatorError), match="fork"):
                    use()
            same(nd.ones(3) + 1, [2, 2, 2])
            del a
            gc.collect()
            drivers[0].lock = None  # nobody may ask the driver
            nd.waitall()
            os.write(writing, b"told")
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "told"
    os.waitpid(child, 0)
    same(a, [2, 2, 2])
