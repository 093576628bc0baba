"""Which GPUs this process has opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .driver import Driver

if TYPE_CHECKING:
    from .backend import GPUBackend

_lock = threading.RLock()
_backends: dict[int, GPUBackend] = {}


def _open_with_cupy(index: int) -> Driver:
    from .cupy_driver import CupyDriver

    return CupyDriver(index)


_open: Callable[[int], Driver] = _open_with_cupy


def gpu_backend(index: int) -> GPUBackend:
    """The backend of GPU `index`, opened now or before. Raises DeviceError where that cannot be."""
    found = _backends.get(index)
    if found is None:
        from .backend import GPUBackend
        from .cuda_device import CudaDevice

        with _lock:
            found = _backends.get(index)
            if found is None:
                found = _backends[index] = GPUBackend.of(CudaDevice(_open(index), index))
    return found


def opened() -> list[GPUBackend]:
    """The backends of all GPUs that were opened."""
    return list(_backends.values())


@contextmanager
def drivers_of(open_driver: Callable[[int], Driver]) -> Iterator[None]:
    """Inside, GPUs are opened by `open_driver`: for tests, where there are none."""
    global _open
    before, held = _open, dict(_backends)
    _open = open_driver
    _backends.clear()
    try:
        yield
    finally:
        _open = before
        _backends.clear()
        _backends.update(held)
