"""Messages between emulated GPUs of one process, each of which is a rank."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite import comm
from mxlite.backends.gpu.ranks.messages import Messages, WINDOW
from mxlite.backends.gpu.runtime.cuda_device import CudaDevice
from mxlite.backends.gpu.runtime.driver import DriverError
from mxlite.backends.gpu.vendor.nccl import Message, Peers
from mxlite.comm import ordered_sum
from mxlite.core import bfloat16
from tests.emulators.emulated_driver import EmulatedDriver
from tests.emulators.emulated_nccl import EmulatedNccl, Mailboxes, NcclError


def gpus(ranks, seed=0):
    """Devices that are ranks of one job."""
    wires, devices, identity = Mailboxes(), [], b""
    for r in range(ranks):
        driver = EmulatedDriver(r, seed=seed + r, late=0.3)
        nccl = EmulatedNccl(driver, r, wires)
        devices.append(CudaDevice(driver, r))
        identity = identity or nccl.get_unique_id()
        devices[r].peers = Peers(nccl, ranks, identity, r)
        wires.drivers.append(driver)
    return devices


def there(device, values):
    array = device.empty(values.nbytes).view(values.dtype).reshape(values.shape)
    device.upload(array, values)
    return array


def back(device, array):
    values = np.empty(array.shape, array.dtype)
    device.download(values, array, device.mark())
    return values


def run_on_all(devices, runs, times=3):
    """Each call once by itself, then captured and replayed, with whatever `before` does in between."""
    graphs = [None] * len(devices)
    for k in range(times):
        for r, (device, run) in enumerate(zip(devices, runs)):
            with device.active():
                if k == 1:
                    graphs[r] = device.capture([run])
                (graphs[r] or run)()
        for device in devices:
            device.synchronize()


def numbers(rank, size, dtype):
    rng = np.random.default_rng([rank, size])
    if dtype == np.uint8:
        return rng.integers(0, 256, size).astype(dtype)
    return (rng.standard_normal(size) * 10.0 ** rng.integers(-3, 3, size)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("ranks, size", [(2, 1), (2, 5000), (3, 1001), (4, 3)])
def test_sums_are_those_of_the_host(monkeypatch, dtype, ranks, size):
    """In place, in windows of several pieces; the second and the third time from a graph."""
    monkeypatch.setattr(ordered_sum, "PIECE", 256)
    devices = gpus(ranks)
    total = numbers(0, size, dtype)
    comm.add_in_order(
        total, [numbers(r, size, dtype) for r in range(1, ranks)],
        np.empty(size, np.float32) if np.dtype(dtype).itemsize == 2 else None,
        np.bitwise_or if dtype == np.uint8 else np.add,
    )  # fmt: skip
    arrays = [there(d, numbers(r, size, dtype)) for r, d in enumerate(devices)]
    runs = []
    for device, array in zip(devices, arrays):
        sums = device.empty(array.nbytes).view(array.dtype)
        nbytes = comm.bucket_workspace([array.shape], array.itemsize, ranks, WINDOW)
        told = Messages(device)
        comm.sum_bucket(told, [array], [sums], device.empty(nbytes))
        runs.append(told.run())
        arrays[device.index] = sums
    run_on_all(devices, runs)
    for device, array in zip(devices, arrays):
        assert back(device, array).tobytes() == total.tobytes(), device
    pieces = -(-size * np.dtype(dtype).itemsize // 256)
    groups = devices[0].peers._nccl.groups
    assert groups == 2 * (1 + -(-pieces // WINDOW.pieces)), "messages left one by one"


def test_parts_are_scattered_and_gathered(monkeypatch):
    monkeypatch.setattr(ordered_sum, "PIECE", 256)
    ranks, size = 3, 2003
    devices, runs, gathered, owns = gpus(ranks), [], [], []
    for r, device in enumerate(devices):
        array, own = there(device, numbers(r, size, np.float32)), comm.shard_length(size, 4, ranks)
        owns.append(there(device, np.full(own, np.nan, np.float32)))
        gathered.append(there(device, np.full(size, np.nan, np.float32)))
        told = Messages(device)
        comm.sum_to_parts(told, array, owns[r], device.empty(comm.sum_workspace(size, 4, ranks, WINDOW)))
        comm.gather_parts(told, owns[r], gathered[r])
        runs.append(told.run())
    run_on_all(devices, runs)
    total = sum((numbers(r, size, np.float32) for r in range(1, ranks)), numbers(0, size, np.float32))
    for r, device in enumerate(devices):
        assert back(device, gathered[r]).tobytes() == total.tobytes()
        mine = np.concatenate([total[s] for s in comm.own_parts(size, 64, ranks, r)])
        own = back(device, owns[r])
        assert own[: len(mine)].tobytes() == mine.tobytes() and not own[len(mine) :].any()


def pair():
    """Two ranks, each with 64 bytes."""
    devices = gpus(2)
    return devices, [there(d, np.zeros(64, np.uint8)) for d in devices]


def exchange(device, array, send, receive, stream=None):
    peer, a = 1 - device.index, array.address
    sends, receives = ([Message(a + at, n, peer) for at, n in listed] for listed in (send, receive))
    with device.active():
        device.peers.exchange(sends, receives, stream or device.stream)


@pytest.mark.parametrize(
    "second, said",
    [
        (([(0, 8)], [(32, 16)]), "sends [(8, 1)], rank 0 receives [(16, 1)]"),
        (([(0, 16), (16, 4)], [(32, 16)]), "rank 1 sends [(16, 1), (4, 1)], rank 0 receives [(16, 1)]"),
        (([(0, 16)], []), "rank 0 sends [(16, 1)], rank 1 receives []"),
    ],
)
def test_messages_that_do_not_match_are_told(second, said):
    """What NCCL would wait for, or take for something else, is a fault of the emulated device."""
    devices, arrays = pair()
    exchange(devices[0], arrays[0], [(0, 16)], [(32, 16)])
    exchange(devices[1], arrays[1], *second)
    with pytest.raises(mx.DeviceError) as caught:
        for device in devices:
            device.synchronize()
    assert "NCCL: " in str(caught.value)
    told = [str(d.driver.fault) for d in devices if d.driver.fault is not None]
    assert any(said in text for text in told), told


def test_a_group_that_the_other_rank_never_makes_ends_the_emulation():
    devices, arrays = pair()
    exchange(devices[0], arrays[0], [(0, 16)], [(32, 16)])
    with pytest.raises(AssertionError, match="streams wait for each other"):
        devices[0].synchronize()
    exchange(devices[1], arrays[1], [(0, 16)], [(32, 16)])  # late is not never
    devices[0].synchronize()


def test_calls_that_nccl_would_punish_are_refused():
    devices, arrays = pair()
    for send, receive, said in (
        ([(0, 2**30)], [], "1073741824 bytes at"),
        ([(0, 8)], [(4, 8)], "are sent or received otherwise"),
        ([], [(0, 8), (7, 8)], "are sent or received otherwise"),
    ):
        with pytest.raises(DriverError, match=said):
            exchange(devices[0], arrays[0], send, receive)
        devices[0].peers._nccl.calls.clear()
    with pytest.raises(DriverError, match="no stream"):
        exchange(devices[0], arrays[0], [(0, 8)], [], stream=12345)
    devices = gpus(2)
    raw, own = devices[0].peers._comm, there(devices[0], np.zeros(64, np.uint8))
    with pytest.raises(NcclError, match="outside of a group"):
        raw.send(own.address, 8, 1, 1, devices[0].compute)
    array = there(devices[1], np.zeros(64, np.uint8))
    devices[0].peers._nccl.groupStart()
    for call, said in (
        ((8, 9, 1), "type 9"),
        ((0, 1, 1), "0 elements"),
        ((8, 1, 0), "a peer 0"),
        ((8, 1, 2), "a peer 2"),
    ):
        with pytest.raises(NcclError, match=said):
            raw.recv(own.address, *call, devices[0].compute)
    raw.destroy()
    with pytest.raises(NcclError, match="was destroyed"):
        raw.send(own.address, 8, 1, 1, devices[0].compute)
    with devices[1].active(), pytest.raises(mx.DeviceError, match="in a capture"):
        devices[1].capture([lambda: exchange(devices[1], array, [(0, 8)], [])])
