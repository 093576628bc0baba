"""Random programs of imperative operations, copies and threads, compared with numpy: integers, so exactly."""

from __future__ import annotations

import ctypes
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.backends.gpu.compiler.source import KernelSource
from mxlite.backends.gpu.graphs.graph import Graph, GraphError
from mxlite.backends.gpu.graphs.graph_streams import COMPUTE, order_of
from mxlite.backends.gpu.runtime.device import Arguments
from mxlite.core import DeviceError

from .checks import Checks
from .nets import bound, mlp, same, steps
from .programs import graphs_of

ARRAYS = 6


def run(checks: Checks) -> None:
    with checks.check("what other threads may call while a graph is captured") as found:
        beside_a_capture(found)
    with checks.check("captures that are broken off, and the next ones") as found:
        broken_captures(found)
    count = 0
    with checks.check("random operations, copies and views") as found:
        while (count < 3 if checks.emulated else checks.left > checks.seconds * 0.5) and count < 10_000:
            program(random.Random(count), checks)
            count += 1
            found["programs"] = count
    with checks.check("several threads at once") as found:
        rounds, errors = 0, []

        def work(seed: int) -> None:
            try:
                program(random.Random(seed), checks)
            except BaseException as error:
                errors.append(error)

        while (rounds < 2 if checks.emulated else checks.left > checks.seconds * 0.25) and rounds < 2000:
            threads = [threading.Thread(target=work, args=(1000 * rounds + i,)) for i in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            if errors:
                raise errors[0]
            rounds += 1
            found["rounds of four"] = rounds
    with checks.check("graphs are captured while other threads allocate, copy and wait") as found:
        captured_beside(checks, found)


def beside_a_capture(found: dict[str, Any]) -> None:
    """Make each call during a separate capture, to find out which calls CUDA refuses, or which invalidate the
    capture.
    """
    backend: Any = backend_of(mx.gpu(0))
    device = backend.device
    array = device.empty(1 << 20)
    for name, call in calls_of(backend).items():
        begun, over, made = threading.Event(), threading.Event(), []

        def slow(begun: threading.Event = begun, over: threading.Event = over) -> None:
            device.fill_bytes(array, 7)
            begun.set()
            over.wait(20)
            device.fill_bytes(array, 9)

        def capture(slow: Callable[[], None] = slow, made: list[Any] = made) -> None:
            try:
                made.append(device.capture([slow]))
            except Exception as error:
                made.append(error)

        thread = threading.Thread(target=capture)
        thread.start()
        said = "goes on" if begun.wait(20) else "the capture did not begin"
        try:
            call()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            over.set()
            thread.join()
        if isinstance(made[0], Exception):
            said += f"; the capture: {made[0]}"
        else:
            with device.active():
                made[0]()
            if not (backend.to_host(array) == 9).all():
                said += "; the graph did not do what was captured"
        found[name] = said[:300]
    wrong = [name for name, said in found.items() if said != "goes on"]
    assert not wrong, f"not so: {', '.join(wrong)}"


def calls_of(backend: Any) -> dict[str, Callable[[], object]]:
    """Calls that the engine's threads, finalizers and binding may make at any time, by name."""
    device = backend.device
    values, there = np.arange(1000.0), backend.array((1000,), np.dtype("float64"))
    graph = [device.capture([lambda: device.fill_bytes(there)])]
    event = device.driver.event()

    def active(call: Callable[[], object]) -> Callable[[], None]:
        def inside() -> None:
            with device.active():
                call()

        return inside

    def new_kernel() -> None:
        function = device.function(
            KernelSource('extern "C" __global__ void beside(int *to) { *to = 41; }'), "beside"
        )
        at = Arguments([ctypes.c_void_p(there.address)])
        with device.active():
            device.launch(function, (1, 1, 1), (1, 1, 1), 100 * 1024, at)()

    return {
        "memory taken and given back": active(lambda: device.driver.free(device.driver.malloc(1 << 22))),
        "an arena": lambda: device.arena(1 << 22),
        "pinned memory": lambda: device.pinned(1 << 16),
        "how much is free": device.memory,
        "a copy from the host": lambda: backend.from_host(there, values),
        "a copy to the host": lambda: backend.to_host(there),
        "waits for streams": device.synchronize,
        "a wait for an event": lambda: device.wait_for(device.issued + 1),
        "an event's state": active(lambda: device.driver.has_come(event)),
        "times": lambda: device.time(lambda: device.fill_bytes(there)),
        "a graph launched": active(lambda: graph[0]()),
        "a graph's end": graph.clear,
        "a kernel that is new": new_kernel,
        "arrays": lambda: (mx.nd.ones((37, 53), ctx=mx.gpu(0)) + 1).asnumpy(),
        "a product of a new shape": lambda: mx.nd.dot(
            mx.nd.ones((37, 53), ctx=mx.gpu(0)), mx.nd.ones((53, 41), ctx=mx.gpu(0))
        ).asnumpy(),
        "waits for everything": mx.nd.waitall,
    }


def broken_captures(found: dict[str, Any]) -> None:
    """Provoke invalidated captures and CUDA's errors; steps must go on, and become one graph in the end."""
    backend: Any = backend_of(mx.gpu(0))
    device = backend.device
    array = device.empty(1 << 10)

    def raised() -> None:
        raise ValueError("of a call")

    def refused() -> None:
        device.driver.synchronize(device.stream)

    def ended() -> None:
        said: list[BaseException] = []

        def wait_for_the_device() -> None:
            try:
                with device.active():
                    device.driver.finish()
            except DeviceError as error:
                said.append(error)

        thread = threading.Thread(target=wait_for_the_device)
        thread.start()
        thread.join()
        found["who waited was told"] = str(said)[:200]

    for name, breaks in (("an exception", raised), ("a wait", refused), ("another thread's wait", ended)):
        left = [breaks]

        def call(left: list[Callable[[], None]] = left) -> None:
            device.fill_bytes(array, 3)
            if device.is_capturing and left:
                left.pop()()

        graph = Graph(device, [call, call], order_of([(), (0,)], [COMPUTE] * 2, [1.0] * 2))
        for _ in range(4):  # call by call, invalidated, captured again, replayed
            try:
                with device.active():
                    device.fill_bytes(array)
                    graph()
            except GraphError as error:
                found[name] = repr(error.__cause__)
        assert graph.graphs == 1 and not left, f"{name}: {graph.why_not or 'nothing was captured'}"
        assert (backend.to_host(array) == 3).all(), name


def captured_beside(checks: Checks, found: dict[str, Any]) -> None:
    """Bind, capture and replay programs on one thread, with the same bits, while other threads are busy."""
    net, shapes = mlp()
    want = steps(bound(net, shapes, mx.gpu(0)), 3)
    over, errors = threading.Event(), []

    def work(seed: int) -> None:
        try:
            while not over.is_set():
                program(random.Random(seed), checks)
                seed += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(10_000 * i,)) for i in range(1, 4)]
    for t in threads:
        t.start()
    try:
        for count in range(1, 2 if checks.emulated else 20):
            executor = bound(net, shapes, mx.gpu(0))
            assert same(steps(executor, 3), want), "other bits"
            found |= graphs_of(executor)
            assert found["graphs"] and not found["outside"], "not all of it was captured"
            found["captured"] = count
            if checks.left < 3:
                break
    finally:
        over.set()
        for t in threads:
            t.join()
    if errors:
        raise errors[0]


def program(r: random.Random, checks: Checks) -> None:
    """Run about forty operations on a few arrays, on both devices and between them."""
    n = r.choice([1, 7, 1000, 4096] if checks.small else [1, 1000, 100_003, 1_000_000])
    host = [np.arange(n, dtype=np.float32) % 17 + i for i in range(ARRAYS)]
    devices = [mx.gpu(0) if r.random() < 0.8 else mx.cpu() for _ in range(ARRAYS)]
    there: list[Any] = [mx.nd.array(x, ctx=d) for x, d in zip(host, devices)]
    for _ in range(40):
        i, j, k = (r.randrange(ARRAYS) for _ in range(3))
        kind = r.randrange(7)
        if kind == 0 and devices[j] == devices[k]:
            there[i], devices[i] = there[j] + there[k], devices[j]
            host[i] = host[j] + host[k]
        elif kind == 1:
            there[i] *= 0.5 if np.abs(host[i]).max() > 1000 else 2
            host[i] = host[i] * np.float32(0.5 if np.abs(host[i]).max() > 1000 else 2)
        elif kind == 2:
            there[i][:] = host[j]
            host[i] = host[j].copy()
        elif kind == 3 and i != j:
            there[j].copyto(there[i])
            host[i] = host[j].copy()
        elif kind == 4:
            assert np.array_equal(there[i].asnumpy(), host[i]), (kind, i)
        elif kind == 5:
            low = r.randrange(n)
            there[i][low : low + 5] = 3
            host[i] = host[i].copy()
            host[i][low : low + 5] = 3
        elif kind == 6:
            devices[i] = mx.gpu(0) if r.random() < 0.8 else mx.cpu()
            there[i] = there[j].as_in_context(devices[i]) + 0
            host[i] = host[j].copy()
    for x, y in zip(there, host):
        assert np.array_equal(x.asnumpy(), y)
