"""Registry of the GPUs that this process has opened."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....core import config
from ....core.errors import DeviceError
from ....core.process import forks

if TYPE_CHECKING:
    from ..backend import GPUBackend
    from .driver import Driver

_lock = forks.rlock()
_backends: dict[int, GPUBackend] = {}


def _open_with_cupy(index: int) -> Driver:
    from .cupy_driver import CupyDriver

    return CupyDriver(index)


def _count_with_cupy() -> int:
    try:
        from cupy_backends.cuda.api import runtime

        return int(runtime.getDeviceCount())
    except Exception:  # no CuPy, no driver, no device: all the same here
        return 0


_open: Callable[[int], Driver] = _open_with_cupy
_count: Callable[[], int] = _count_with_cupy
_was_counted = False  # counting opens CUDA, though no GPU
_was_forked = False


def gpu_backend(index: int) -> GPUBackend:
    """The backend of GPU `index`, opened on first use. Raises DeviceError if that fails."""
    found = _backends.get(index)
    if found is None:
        from ..backend import GPUBackend
        from .cuda_device import CudaDevice

        with _lock:
            found = _backends.get(index)
            if found is None:
                if _was_forked:
                    raise DeviceError(
                        f"gpu({index}) cannot be used in this process: it forked from one that had opened a "
                        f"GPU, or counted them, and CUDA does not follow there. Start it with the method "
                        f"'spawn', or fork before that."
                    )
                limit = config.gpu_memory_limit()
                found = _backends[index] = GPUBackend.of(CudaDevice(_open(index), index, limit))
    return found


@functools.cache
def planning_backend() -> GPUBackend:
    """The backend of an absent GPU, for plans."""
    from ..backend import GPUBackend
    from .absent_driver import AbsentDevice

    return GPUBackend.of(AbsentDevice())


def num_gpus() -> int:
    """Number of usable GPUs of this machine; 0 if CuPy or the driver is missing."""
    global _was_counted
    _was_counted = True
    return _count()


def opened() -> list[GPUBackend]:
    """The backends of all GPUs that were opened."""
    return list(_backends.values())


@contextmanager
def drivers_of(open_driver: Callable[[int], Driver], count: int = 0) -> Iterator[None]:
    """Context with `count` GPUs, opened by `open_driver`: for tests on machines without any."""
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


def _after_fork_in_child() -> None:
    global _was_forked
    _was_forked = _was_forked or _was_counted
    for backend in opened():
        _was_forked = True
        backend.device.lose()


forks.in_child(_after_fork_in_child)
