"""An emulated GPU for each rank of a job."""

from __future__ import annotations

from contextlib import contextmanager

import mxlite as mx
from mxlite.backends.gpu import drivers_of
from tests.emulators.emulated_driver import EmulatedDriver
from tests.emulators.emulated_nccl import EmulatedNccl, MPIWires


@contextmanager
def gpu_of_this_rank(place=None, version=22803):
    """Inside, every rank has a GPU of its own, which it yields; NCCL is of this version, None for none."""
    wires = MPIWires()

    def open_driver(index):
        driver = EmulatedDriver(index, seed=mx.dist.rank())
        if version is not None:
            EmulatedNccl(driver, mx.dist.rank(), wires, version)
        if place is not None:
            driver.place = lambda: place
        driver.go_on_by_itself()
        return driver

    with drivers_of(open_driver, mx.dist.size()):
        yield mx.gpu(mx.dist.local_rank())
        mx.nd.waitall()
