"""The GPU. Start reading at `runtime/cuda_device.py` (order of work), then `backend.py`."""

from .runtime.registry import (
    drivers_of as drivers_of,
    gpu_backend as gpu_backend,
    num_gpus as num_gpus,
    opened as opened,
    planning_backend as planning_backend,
)
