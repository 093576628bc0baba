"""Launches of kernels with one thread for each work item."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ..compiler.source import KernelSource, NAMES, shared
from ..runtime.device import Arguments, Device, nothing, pointer, Run

THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 32


def each(device: Device, text: KernelSource, name: str, n: int, *values: Any) -> Run:
    """The call of the kernel `name` for `n` work items.

    The kernel's parameters are `int64 n` and then `values`: arrays and None are addresses, ints `int`, floats
    `double`, the rest ctypes numbers as they are.
    """
    if n == 0:
        return nothing
    blocks = min(-(-n // THREADS), device.multiprocessors * BLOCKS_PER_MULTIPROCESSOR)
    given = Arguments([ctypes.c_int64(n), *(_argument(device, v) for v in values)])
    return device.launch(device.function(text, name), (blocks, 1, 1), (THREADS, 1, 1), 0, given)


def _argument(device: Device, value: Any) -> Any:
    if value is None:
        return pointer(0)
    if isinstance(value, int):
        return ctypes.c_int(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    return pointer(device.address(value)) if hasattr(value, "dtype") else value


@functools.lru_cache(maxsize=256)
def typed(dtype: str, *files: str) -> KernelSource:
    """Files of cuda/ for arrays of T, with intermediate values of type A."""
    types = f"typedef {NAMES[dtype]} T;\ntypedef {'double' if dtype == 'float64' else 'float'} A;\n"
    return KernelSource(shared("types", "index", "math") + types + shared(*files))
