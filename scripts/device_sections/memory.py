"""Planned bytes compared with the device memory actually used."""

from __future__ import annotations

import gc

import mxlite as mx
from mxlite.backends import backend_of
from mxlite.core import MemoryBudgetError, OutOfMemoryError

from .checks import Checks
from .nets import bound, networks, steps

PAGE = 2 * 2**20  # bytes; the driver allocates memory in multiples of it


def run(checks: Checks) -> None:
    gpu = mx.gpu(0)
    device = backend_of(gpu).device
    with checks.check("what the driver takes for an arena of so many bytes") as found:
        # Free memory falls in multiples of a page, and `Room` counts bytes.
        for nbytes in (PAGE, PAGE + 512, 32 * PAGE + 512):
            device.pool.trim()
            before = device.memory()[0]
            arena = device.arena(nbytes)
            found[str(nbytes)] = gone = before - device.memory()[0]
            del arena
            assert gone < nbytes + 2 * PAGE, f"{nbytes} bytes take {gone}"
    with checks.check("more than the device has is refused with what is free") as found:
        _, total = device.memory()
        try:
            mx.nd.empty((total * 2,), ctx=gpu, dtype="uint8").wait_to_read()
            raise AssertionError("it was not refused")
        except (OutOfMemoryError, mx.MXLiteError) as error:
            found["message"] = str(error)
            assert "has no room" in str(error), error
        assert (mx.nd.ones((4,), ctx=gpu) * 2).asnumpy().sum() == 8
    with checks.check("a budget that nothing fits is refused with the least that works") as found:
        net, shapes = networks(checks)["residual"]
        try:
            net.simple_bind(gpu, **shapes, memory_budget=1000)
            raise AssertionError("it was not refused")
        except MemoryBudgetError as error:
            found["least"] = error.least_feasible_bytes
    for name, (net, shapes) in networks(checks).items():
        with checks.check(f"{name}: planned, allocated and free bytes") as found:
            checks.need(6)
            gc.collect()
            before, taken = device.memory()[0], device.pool.taken
            executor = bound(net, shapes, gpu)
            plan = executor.memory_plan
            steps(executor, 2)  # modules are loaded, graphs captured
            device.synchronize()
            after = device.memory()[0]
            found["planned"], found["measured"] = plan.peak_bytes, executor.measured_bytes
            found["gone from the device"] = before - after
            found["taken by the pool"] = device.pool.taken - taken
            found["beside the pool: modules, graphs"] = before - after - found["taken by the pool"]
            assert executor.measured_bytes == plan.peak_bytes, found
            steps(executor, 5)
            device.synchronize()
            found["growth over five steps"] = after - device.memory()[0]
            assert found["growth over five steps"] <= (0 if checks.emulated else PAGE), found
            del executor
            gc.collect()
            device.synchronize()
            found["still taken"] = device.pool.taken - taken
            found["arena"] = plan.arena_bytes
            assert found["still taken"] <= found["taken by the pool"] - plan.arena_bytes + PAGE, found
