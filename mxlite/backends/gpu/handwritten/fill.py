"""Kernel calls that fill arrays with one value."""

from __future__ import annotations

import ctypes
from typing import Any

from ..compiler.source import KernelSource, shared
from ..runtime.device import Arguments, Device, nothing, pointer, Run

THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 16

_TEXT = """
// `pattern` is the bytes of 8 / size elements; `words` of 8 bytes lie on their size, `tail` bytes follow.
extern "C" __global__ void __launch_bounds__(256) fill(uint64 *out, uint64 pattern, int64 words, int tail) {
    MX_EACH(i, words) out[i] = pattern;
    if (blockIdx.x == 0 && threadIdx.x < tail)
        ((uint8 *)(out + words))[threadIdx.x] = (uint8)(pattern >> 8 * threadIdx.x);
}

extern "C" __global__ void __launch_bounds__(256) fill_bytes(uint8 *out, uint64 pattern, int64 count) {
    MX_EACH(i, count) out[i] = (uint8)(pattern >> 8 * (i & 7));
}
"""


def source() -> KernelSource:
    return KernelSource(shared("types", "index") + _TEXT)


def filled(device: Device, array: Any, element: bytes) -> Run:
    """The call that fills `array` with `element` (1, 2, 4 or 8 bytes). Reads nothing."""
    nbytes = array.size * array.dtype.itemsize
    if nbytes == 0:
        return nothing
    address = device.address(array)
    pattern = ctypes.c_uint64(int.from_bytes(element * (8 // len(element)), "little"))
    if address % 8 == 0:
        words, tail = divmod(nbytes, 8)
        name, count = "fill", words
        values = [pointer(address), pattern, ctypes.c_int64(words), ctypes.c_int(tail)]
    else:
        name, count = "fill_bytes", nbytes
        values = [pointer(address), pattern, ctypes.c_int64(nbytes)]
    blocks = max(1, min(-(-count // THREADS), device.multiprocessors * BLOCKS_PER_MULTIPROCESSOR))
    function = device.function(source(), name)
    return device.launch(function, (blocks, 1, 1), (THREADS, 1, 1), 0, Arguments(values))


def zeros(device: Device, array: Any) -> Run:
    """The call that fills `array` with 0."""
    return filled(device, array, bytes(1))
