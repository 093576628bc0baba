"""Kernel calls that fill arrays with one value."""

from __future__ import annotations

import ctypes
from typing import Any

from ..compiler.source import assembled
from ..runtime.device import Device, nothing, Run
from .each import spread

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


SOURCE = assembled("types", "index", _TEXT)


def filled(device: Device, array: Any, element: bytes) -> Run:
    """The call that fills `array` with `element` (1, 2, 4 or 8 bytes). Reads nothing."""
    nbytes = array.size * array.dtype.itemsize
    if nbytes == 0:
        return nothing
    pattern = ctypes.c_uint64(int.from_bytes(element * (8 // len(element)), "little"))
    if device.address(array) % 8 == 0:
        words, tail = divmod(nbytes, 8)
        return spread(device, SOURCE, "fill", max(1, words), array, pattern, ctypes.c_int64(words), tail)
    return spread(device, SOURCE, "fill_bytes", nbytes, array, pattern, ctypes.c_int64(nbytes))


def zeros(device: Device, array: Any) -> Run:
    """The call that fills `array` with 0."""
    return filled(device, array, bytes(1))
