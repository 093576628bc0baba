"""The device that a rank trains on: the host, a GPU, or an emulated one."""

from __future__ import annotations

from contextlib import contextmanager

import mxlite as mx


@contextmanager
def device_of_this_rank(kind):
    """Inside, every rank has a device of its own, which it yields: "cpu", "gpu" or "emulated"."""
    if kind != "emulated":
        yield mx.cpu() if kind == "cpu" else mx.gpu(mx.dist.local_rank())
        mx.nd.waitall()
        return
    from mxlite.backends.gpu import drivers_of
    from tests.emulators.emulated_driver import EmulatedDriver
    from tests.emulators.emulated_nccl import EmulatedNccl, MPIWires

    wires = MPIWires()

    def open_driver(index):
        driver = EmulatedDriver(index, seed=mx.dist.rank())
        EmulatedNccl(driver, mx.dist.rank(), wires)
        driver.go_on_by_itself()
        return driver

    with drivers_of(open_driver, mx.dist.size()):
        yield mx.gpu(mx.dist.local_rank())
        mx.nd.waitall()
