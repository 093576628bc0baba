"""Which GPUs this process has opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...core.errors import DeviceError
from .driver import Driver

if TYPE_CHECKING:
    from .backend import GPUBackend

_lock = threading.RLock()
_backends: dict[int, GPUBackend] = {}


def _open_with_cupy(index: int) -> Driver:
    from .cupy_driver import CupyDriver

    return CupyDriver(index)


def _count_with_cupy() -> int:
    from .cupy_driver import count

    return count()


_open: Callable[[int], Driver] = _open_with_cupy
_count: Callable[[], int] = _count_with_cupy


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


def gpu_count() -> int:
    """How many GPUs can be opened: 0 where there is none, no driver, or no CuPy. Opens none."""
    try:
        return _count()
    except DeviceError:
        return 0


def why_no_gpu() -> str | None:
    """Why `gpu_count()` is 0, in a sentence; None where it is not."""
    try:
        return None if _count() else "The driver finds no GPU; CUDA_VISIBLE_DEVICES may hide some."
    except DeviceError as error:
        return str(error)


def opened() -> list[GPUBackend]:
    """The backends of all GPUs that were opened."""
    return list(_backends.values())


@contextmanager
def drivers_of(open_driver: Callable[[int], Driver], count: int = 1) -> Iterator[None]:
    """Inside, GPUs are opened by `open_driver`, and said to be `count`: for tests, where there are none."""
    global _open, _count
    before, held = (_open, _count), dict(_backends)
    _open, _count = open_driver, lambda: count
    _backends.clear()
    try:
        yield
    finally:
        _open, _count = before
        _backends.clear()
        _backends.update(held)
