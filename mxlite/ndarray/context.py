"""mx.context: devices, and the memory of GPUs."""

from __future__ import annotations

from ..backends.gpu import gpu_backend, num_gpus as num_gpus
from ..core import (
    Context as Context,
    cpu as cpu,
    cpu_pinned as cpu_pinned,
    current_context as current_context,
    gpu as gpu,
    parse_bytes,
)


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """(free, total) bytes of a GPU, whoever uses them. Raises DeviceError where there is none."""
    return gpu_backend(device_id).device.memory()


def set_gpu_memory_limit(nbytes: int | str | None, device_id: int = 0) -> int | None:
    """Let this process take at most `nbytes` (a number or "8GiB") of a GPU, for arrays and programs together.

    None: all there is. Unused memory beyond the limit is given back. Returns the previous limit, which is
    MXLITE_GPU_MEMORY_LIMIT at first.
    """
    pool = gpu_backend(device_id).device.pool
    before = pool.limit
    pool.limit = None if nbytes is None else parse_bytes(nbytes)
    return before
