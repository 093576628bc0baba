"""The registry of backends: which one serves a device. It stands above them, and none of them knows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ..core import Context, DeviceError
from .base import Backend


def backend_of(context: Context) -> Backend:
    """The backend that serves a device. Raises DeviceError when there is none."""
    if not isinstance(context, Context):
        raise DeviceError(f"A device is a Context such as mx.cpu() or mx.gpu(0), got {context!r}.")
    return _cpu() if context.device_type != "gpu" else _gpu()(context.device_id)


def planning_backend() -> Backend:
    """The backend of a GPU that is not here, for plans."""
    from .gpu import planning_backend as absent

    return absent()


@cache
def _cpu() -> Backend:
    from .cpu.backend import CPU  # when first asked for: its table takes a while to import

    return CPU


@cache
def _gpu() -> Callable[[int], Backend]:
    from .gpu import gpu_backend

    return gpu_backend
