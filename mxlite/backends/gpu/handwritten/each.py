"""Launches of kernels: grids of blocks of threads, and values as a kernel takes them."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from ..compiler.kinds import wide
from ..compiler.source import assembled, KernelSource, NAMES, typedefs
from ..runtime.device import Arguments, Device, Grid, nothing, pointer, Run

THREADS = 256


Lengths = int | tuple[int, ...]


def launch(device: Device, text: KernelSource, name: str, grid: Lengths, block: Lengths, *values: Any) -> Run:
    """The call of the kernel `name`, with up to three lengths of the grid and of each block.

    Values that are arrays or None become addresses, ints `int`, floats `double`; others are ctypes numbers as
    they are.
    """
    given = Arguments([_argument(device, v) for v in values])
    return device.launch(device.function(text, name), _three(grid), _three(block), 0, given)


def _three(lengths: Lengths) -> Grid:
    x, y, z = (*(lengths if isinstance(lengths, tuple) else (lengths,)), 1, 1)[:3]
    return x, y, z


def _argument(device: Device, value: Any) -> Any:
    if value is None:
        return pointer(0)
    if isinstance(value, int):
        return ctypes.c_int(value)
    if isinstance(value, float):
        return ctypes.c_double(value)
    return pointer(device.address(value)) if hasattr(value, "dtype") else value


def addresses(device: Device, **arrays: Any) -> dict[str, int | None]:
    """Addresses of arrays, for the fields of these names of a structure; None for those that are None."""
    return {name: None if x is None else device.address(x) for name, x in arrays.items()}


def blocks(device: Device, n: int, each: int = 16) -> int:
    """Number of blocks for `n` work items: `each` keep a multiprocessor busy."""
    return max(1, min(-(-n // THREADS), device.multiprocessors * each))


def spread(device: Device, text: KernelSource, name: str, n: int, *values: Any) -> Run:
    """The call of a kernel whose threads go through `n` work items in turn; see `launch` for the values."""
    return launch(device, text, name, blocks(device, n), THREADS, *values) if n else nothing


def each(device: Device, text: KernelSource, name: str, n: int, *values: Any) -> Run:
    """The call of a kernel with a thread for each of `n` work items, as far as possible.

    The kernel's parameters are `int64 n` and then `values`; see `launch`.
    """
    if n == 0:
        return nothing
    return launch(device, text, name, blocks(device, n, 32), THREADS, ctypes.c_int64(n), *values)


class Launches(NamedTuple):
    """Kernels of one source on a device."""

    device: Device
    text: KernelSource

    def each(self, name: str, n: int, *values: Any) -> Run:
        """See the function `each`."""
        return each(self.device, self.text, name, n, *values)


def typed(dtype: str, *files: str) -> KernelSource:
    """Files of cuda/ for arrays of T, with intermediate values of type A."""
    return assembled("types", "index", "math", typedefs(T=NAMES[dtype], A=wide(dtype)), *files)
