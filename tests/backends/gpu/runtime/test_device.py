"""A GPU as the process uses it: memory, streams, tickets, graphs; on a driver that is as late as can be."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from mxlite.backends.gpu.backend import GPUBackend
from mxlite.backends.gpu.handwritten.dense_casts import CAPACITY, cast_all
from mxlite.backends.gpu.handwritten.elements import convert, fill
from mxlite.backends.gpu.runtime.cuda_device import CudaDevice
from mxlite.backends.gpu.runtime.driver import DriverError
from mxlite.backends.gpu.runtime.memory import CHUNK
from mxlite.core import DeviceError, OutOfMemoryError
from mxlite.core.dtype import as_dtype
from mxlite.engine import Var
from tests.emulators.emulated_device import compiler
from tests.emulators.emulated_driver import EmulatedDriver
from tests.engine.watchdog import in_time

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.fixture
def device():
    return CudaDevice(EmulatedDriver(late=0.0), 0)


def test_what_was_uploaded_comes_back(device):
    backend = GPUBackend.of(device)
    a = backend.array((3, 4), np.dtype("float32"))
    backend.from_host(a, np.arange(4))
    assert np.array_equal(backend.to_host(a), np.broadcast_to(np.arange(4, dtype="f4"), (3, 4)))
    assert np.array_equal(backend.to_host(a[1:3].reshape(2, 2, 2)[1]), [[0, 1], [2, 3]])


def test_a_copy_to_the_host_waits_for_the_last_kernel_that_touched_the_array_and_for_none_after(device):
    backend, var, other = GPUBackend.of(device), Var(), Var()
    a, b = (backend.array((100,), np.dtype("float32")) for _ in range(2))
    backend.issue(fill(device, a, 3), (var,))()
    for _ in range(50):
        backend.issue(fill(device, b, 4), (other,))()
    assert (var.fence, other.fence) == (1, 51)
    assert (backend.to_host(a, var) == 3).all()
    assert device.driver.streams[device.compute].work  # of the others, some are not done
    assert (backend.to_host(b, other) == 4).all()


def test_memory_that_comes_back_is_not_overwritten_before_its_last_kernel(device):
    backend, var = GPUBackend.of(device), Var()
    a = backend.array((1000,), np.dtype("float32"))
    b = backend.array((1000,), np.dtype("float32"))
    backend.from_host(a, np.float32(1))
    backend.issue(convert(device, b, a), (var,))()  # waits on the stream
    address = a.address
    del a
    c = backend.array((1000,), np.dtype("float32"))
    assert c.address == address
    backend.from_host(c, np.float32(2), Var())
    assert (backend.to_host(b, var) == 1).all()


@pytest.mark.parametrize("late", [0.0, 0.5, 1.0])
def test_a_graph_does_what_its_launches_do(late):
    device = CudaDevice(EmulatedDriver(late=late), 0)
    backend = GPUBackend.of(device)
    a, b = (backend.array((10,), np.dtype("float32")) for _ in range(2))
    graph = device.capture([fill(device, a, 5), convert(device, b, a)])
    fill(device, a, 1)()
    fill(device, b, 1)()
    assert (backend.to_host(b) == 1).all()
    graph()
    assert (backend.to_host(b) == 5).all()


def test_an_allocation_in_a_capture_is_refused_and_the_stream_is_usable_afterwards(device):
    with pytest.raises(DeviceError, match="captured"):
        device.capture([lambda: device.arena(4096)])
    a = device.empty(8)
    device.capture([fill(device, a, 7)])()
    assert (GPUBackend.of(device).to_host(a) == 7).all()


def test_captures_without_a_stream_of_their_own_share_one(device):
    a = device.empty(8)
    device.capture([fill(device, a, 1)])
    streams = len(device.driver.streams)
    device.capture([fill(device, a, 2)])()
    assert len(device.driver.streams) == streams
    assert (GPUBackend.of(device).to_host(a) == 2).all()


def test_pinned_memory_is_given_back_when_no_copy_has_it_any_more(device):
    a, pinned = device.empty(64), device.pinned(64)
    pinned[:] = 7
    device.driver.copy(a.address, pinned.ctypes.data, 64, device.uploads)
    del pinned
    assert not device.driver.pinned_of
    assert (GPUBackend.of(device).to_host(a) == 7).all()


def test_no_room_for_pinned_memory_is_the_hosts(device, monkeypatch, recwarn):
    def refuse(nbytes):
        raise DriverError("hostAlloc: out of memory", is_memory=True)

    monkeypatch.setattr(device.driver, "host_malloc", refuse)
    with pytest.raises(OutOfMemoryError, match=r"The host has no room for 4096 bytes more of pinned memory"):
        device.pinned(4096)
    gc.collect()
    assert not recwarn.list  # nothing that was never there is given back


def test_an_arena_takes_just_its_bytes_and_gives_them_back(device):
    free, _ = device.memory()
    arena = device.arena(123456)
    assert device.memory()[0] == free - 2 * 2**20 and device.pool.taken == device.driver.taken == 123456
    del arena
    gc.collect()
    assert device.memory()[0] == free and device.pool.taken == 0


def test_what_lies_idle_goes_back_before_a_program_has_its_arena():
    device = CudaDevice(EmulatedDriver(), 0)
    device.empty(8 * 2**20)  # as kernels that were measured leave it
    gc.collect()
    assert device.pool.taken == 8 * 2**20
    arena = device.arena(123456)
    assert device.pool.taken == arena.nbytes == 123456


def test_no_room_says_what_is_free_and_what_is_held():
    driver = EmulatedDriver(capacity=10 * 2**20)
    device = CudaDevice(driver, 0)
    driver.elsewhere = 2**20
    held = device.empty(4 * 2**20)
    with pytest.raises(
        OutOfMemoryError, match=r"gpu\(0\) has no room for 6291456 bytes more: 5242880 of its"
    ):
        device.empty(6 * 2**20)
    del held
    assert device.empty(6 * 2**20).nbytes == 6 * 2**20  # what lay idle was given back first


def test_room_that_is_free_and_cannot_be_had_is_told_apart(monkeypatch):
    """A driver gives whole pieces in one stretch, so that it may refuse less than it says is free."""
    driver = EmulatedDriver(capacity=10 * 2**20)
    device = CudaDevice(driver, 0)

    def refuse(nbytes):
        raise DriverError("out of memory", is_memory=True)

    monkeypatch.setattr(driver, "malloc", refuse)
    with pytest.raises(OutOfMemoryError, match=r"10485760 of its 10485760 bytes are free.*in one stretch"):
        device.arena(9 * 2**20)
    with pytest.raises(OutOfMemoryError, match=r"Other processes may hold the rest\.$"):
        device.arena(11 * 2**20)


def test_memory_is_freed_when_the_device_is_done_with_it():
    """A free may wait for the device, CUDA says, and need not."""
    driver = EmulatedDriver()
    device, busy = CudaDevice(driver, 0), []
    free = driver.free

    def noted(address):
        busy.append(any(s.work for s in driver.streams.values()))
        free(address)

    driver.free = noted
    for make in (device.arena, device.empty):
        a = make(3 * 2**20)
        GPUBackend.of(device).issue(fill(device, a, 1), ())()
        del a
        gc.collect()
        device.pool.trim()
    assert busy == [False, False]


@in_time(20)
def test_an_arena_may_be_ended_by_the_collector_while_its_thread_marks():
    device = CudaDevice(EmulatedDriver(), 0)
    record, arenas = device.driver.record, [device.arena(3 * 2**20)]
    GPUBackend.of(device).issue(fill(device, arenas[0], 1), ())()
    seen = []

    def collects(event, stream):
        if arenas:
            arenas.clear()  # as a pass over cycles would: it is freed before this call goes on
            seen.append(device.driver.taken)
        record(event, stream)

    device.driver.record = collects
    ticket = device.mark()
    device.wait_for(ticket)
    assert seen == [0] and device.pool.held().arenas == 0


def test_no_room_for_a_kernel_is_no_room():
    device = CudaDevice(EmulatedDriver(), 0)

    def refuse(*_):
        raise DriverError("moduleLoadData: out of memory", name="CUDA_ERROR_OUT_OF_MEMORY", is_memory=True)

    device.driver.load = refuse
    with pytest.raises(OutOfMemoryError, match=r"gpu\(0\) has no room for the kernel 'fill': moduleLoadData"):
        fill(device, device.empty(64), 1)


def test_a_limit_is_kept():
    device = CudaDevice(EmulatedDriver(), 0, limit=4 * 2**20)
    with pytest.raises(OutOfMemoryError, match="of at most 4194304"):
        device.arena(5 * 2**20)
    device.arena(3 * 2**20)


def test_what_is_missing_is_what_blocks_and_an_arena_would_be_refused_for():
    """Chunks of small arrays, what lies idle and a limit included: a byte less, and it is refused."""
    sizes, arena = [600, 2**20, 3 * 2**20, 2**20 - 512, 2**20 - 1024, 7], 5 * 2**20 + 1
    for limit in (None, 19 * 2**20):
        for capacity in range(11 * 2**20, 24 * 2**20, 2**20 + 3000):
            device = CudaDevice(EmulatedDriver(capacity=capacity), 0, limit=limit)
            first = [device.empty(n) for n in (3 * 2**20, 2**20, 700, 2 * 2**20)]
            del first[0], first[-1]  # idle: one fits as it is, one has to be given back
            gc.collect()
            found, held = device.room(sizes, arena), []
            # 3 MiB take two pieces of 2 MiB, and 1 MiB takes one.
            assert (found.total, found.held.taken, found.elsewhere) == (capacity, 8 * 2**20, 2 * 2**20)
            try:
                held += [device.empty(n) for n in sizes]
                held.append(device.arena(arena))
            except OutOfMemoryError:
                assert found.missing > 0
                continue
            assert found.missing == 0
            device.pool.trim()
            taken = device.pool.held().taken
            if limit is not None and limit - taken + CHUNK < device.memory()[0]:
                assert device.room((), limit - taken + 1).missing == 1
            assert device.room((), device.memory()[0] // CHUNK * CHUNK + 1).missing > 0


def test_memory_that_others_have_seen_waits_for_the_end_of_another_threads_capture():
    """CUDA gives up a capture when anybody waits for the whole device meanwhile."""
    device = CudaDevice(EmulatedDriver(), 0)
    begun, over, graphs = threading.Event(), threading.Event(), []
    seen = device.empty(2**20)
    address = seen.address
    device.pool.lend(seen.memory)

    def slow():
        begun.set()
        over.wait(30)

    thread = threading.Thread(target=lambda: graphs.append(device.capture([slow])))
    thread.start()
    begun.wait(30)
    del seen
    gc.collect()
    assert device.empty(2**20).address != address
    over.set()
    thread.join()
    assert graphs
    both = [device.empty(2**20) for _ in range(2)]
    assert address in {a.address for a in both}
    assert not device.pool._abroad


@pytest.mark.parametrize("is_lasting", [False, True])
def test_memory_that_others_have_seen_waits_where_the_device_cannot_be_waited_for(
    device, is_lasting, monkeypatch
):
    """While another library captures, or after a fault: a finalizer has nobody to tell that."""

    def refuse():
        raise DriverError("not now", is_lasting=is_lasting)

    real = device.driver.finish
    monkeypatch.setattr(device.driver, "finish", refuse)
    seen, arena = device.empty(2**20), device.arena(2**20)
    address = seen.address
    device.pool.lend(seen.memory)
    del seen, arena
    gc.collect()
    assert device.pool.held().idle == 0 and (device.fault is not None) == is_lasting
    monkeypatch.setattr(device.driver, "finish", real)
    if not is_lasting:
        assert device.empty(2**20).address == address


def test_after_a_fault_every_use_says_so(device):
    a = device.empty(64)

    def fail():
        device.driver.fault = DriverError("a kernel read from nowhere.", is_lasting=True)

    fail()
    with pytest.raises(DeviceError, match="nowhere"):
        GPUBackend.of(device).to_host(a)
    device.driver.fault = None
    with pytest.raises(DeviceError, match=r"gpu\(0\) cannot be used any more in this process: a kernel read"):
        device.empty(64)


@pytest.mark.parametrize(
    "given", ["float32", "float16", "float64", "int32", "int64", "uint8", "int8", "bool"]
)
def test_elements_are_converted_and_broadcast_as_numpy_does(device, given):
    backend = GPUBackend.of(device)
    values = np.array([[[1], [0], [100]], [[2], [3], [7]]]).astype(given)
    a = backend.array(values.shape, values.dtype)
    backend.from_host(a, values)
    for made in ("float32", "float16", "float64", "int32", "int64", "uint8", "int8", "bool"):
        b = backend.array((2, 2, 3, 5), np.dtype(made))
        backend.assign(b, a)
        want = np.empty(b.shape, made)
        want[...] = values
        assert np.array_equal(backend.to_host(b), want), made


@pytest.mark.parametrize("given, made", [("float32", "bfloat16"), ("bfloat16", "float32"), ("int8", "uint8")])
@pytest.mark.parametrize("sizes", [(1,), (4096,), (4100, 0, 3, 9000), tuple(range(1, 70))])
def test_several_dense_arrays_are_converted_together(device, given, made, sizes):
    """Whole packs or not, and more than one launch takes."""
    backend = GPUBackend.of(device)
    arrays = [(np.arange(n) % 250 / 2).astype(as_dtype(given)) for n in sizes]
    block = device.empty(sum(4 * n + 16 for n in sizes))
    pairs, at = [], 0
    for i, values in enumerate(arrays):
        a = backend.array(values.shape, values.dtype)
        backend.from_host(a, values)
        item = as_dtype(made).itemsize
        at += i % 4 * item  # begins anywhere in a pack
        pairs.append((block[at : at + item * values.size].view(as_dtype(made)), a))
        at += -(-item * values.size // 16) * 16
    run = cast_all(device, pairs)
    assert len(getattr(run, "runs", [run])) == -(-len(sizes) // CAPACITY)
    backend.issue(run, ())()
    for (target, _), values in zip(pairs, arrays):
        assert np.array_equal(backend.to_host(target), values.astype(as_dtype(made)))


def test_only_parts_in_c_order_are_seen(device):
    a = device.empty(240).view("float32").reshape(3, 4, 5)
    assert a[1].shape == (4, 5) and a[1].address == a.address + 80
    assert a[1, 2:4].shape == (2, 5) and a[..., 0:5].shape == (3, 4, 5)
    assert a[2, 3, 4].shape == () and a[2, 3, 4].address == a.address + 59 * 4
    assert a[1:2, 3:4].shape == (1, 1, 5) and a[0:0].size == 0 and a[5:9].shape == (0, 4, 5)
    for key in ((slice(None), 1), (slice(0, 2), slice(0, 2)), slice(None, None, 2), slice(None, None, -1)):
        with pytest.raises(DeviceError):
            a[key]
    with pytest.raises(IndexError):
        a[3]
    with pytest.raises(DeviceError):
        np.asarray(a)
