"""Tables of weights updated by one launch: addresses, sizes and rates, passed to the kernel by value.

A network has hundreds of parameters, most of them small, and a launch costs more than the update of one. So
the kernels of optimizers take tables. The table is an argument of the kernel (4 KiB of arguments are possible
everywhere): it needs no memory on the device and no copy, and a captured graph holds it.

Each weight has blocks of its own, `chunk` elements for each: block b works on the last weight whose first
block is not after b. The work of a block depends on sizes alone, never on the device.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..compiler.source import KernelSource
from ..runtime.device import Device, one_after_other, Run
from .each import launch, THREADS

PACK = 4
CHUNK = 2 * THREADS * PACK  # elements of a block, at least
ARGUMENT_BYTES = 4096  # of a launch
MOST_BLOCKS = 2**31 - 1

_FIXED = 10  # 8-byte words of a weight in the table besides its addresses


class Weight(NamedTuple):
    """One weight: addresses of its arrays (0: absent), elements, and rates.

    rates_at: addresses of learning rate, weight decay and count in device memory; if the first is 0, the
    numbers `rates` apply. packed: True if every array is aligned to PACK elements.
    """

    arrays: tuple[int, ...]
    size: int
    packed: bool
    rates_at: tuple[int, int, int] = (0, 0, 0)
    rates: tuple[float, float, float] = (0.0, 0.0, 1.0)
    chunk: int = CHUNK

    @property
    def blocks(self) -> int:
        return -(-self.size // self.chunk)


STRUCT = """
struct Weight {
    void *at[ARRAYS];
    const R *rate_at[3];
    double rate[3];
    int64 size, first, chunk, packed;

    __device__ __forceinline__ double rate_of(int i) const {
        return rate_at[0] ? (double)*rate_at[i] : rate[i];
    }
};

struct Weights { Weight of[CAPACITY]; };

// The weight that this block works on.
__device__ __forceinline__ int own_weight(const Weights &weights, int count) {
    int w = 0;
    #pragma unroll
    for (int step = CAPACITY / 2; step; step /= 2)
        if (w + step < count && weights.of[w + step].first <= blockIdx.x) w += step;
    return w;
}
"""
"""C++ source of the table; it needs ARRAYS, CAPACITY and the type R of rates in memory."""


def text(arrays: int, capacity: int, rates: str = "double") -> str:
    """The definitions that kernels with such a table begin with."""
    names = f"#define ARRAYS {arrays}\n#define CAPACITY {capacity}\ntypedef {rates} R;\n"
    return names + STRUCT


def capacity_for(arrays: int, count: int, more: Sequence[Any] = ()) -> int:
    """Weights of a table: 1, or the largest power of two that fits beside the arguments `more`,
    numbers of 8 bytes or arrays of such. Each capacity has its own source.
    """
    room = ARGUMENT_BYTES - 8 - sum(map(ctypes.sizeof, more))
    most: int = 1 << ((room // (8 * (arrays + _FIXED))).bit_length() - 1)
    return 1 if count == 1 else most


def tables(weights: Sequence[Weight], capacity: int) -> list[tuple[Any, int, int]]:
    """(table, weights in it, blocks) for each launch.

    A weight without elements has no block: of those with an equal first block, the last one owns it.
    """
    result = []
    while weights:
        first, words = 0, b""
        count = 0
        for w in weights[:capacity]:
            if count and first + w.blocks > MOST_BLOCKS:
                break
            words += struct.pack(f"{len(w.arrays) + 3}Q3d4q", *w.arrays, *w.rates_at, *w.rates, w.size, first,
                                 w.chunk, w.packed)  # fmt: skip
            first += w.blocks
            count += 1
        each = len(weights[0].arrays) + _FIXED
        table = (ctypes.c_uint64 * (each * capacity)).from_buffer_copy(
            words.ljust(8 * each * capacity, b"\0")
        )
        result.append((table, count, first))
        weights = weights[count:]
    return result


def launches(
    device: Device, text: KernelSource, name: str, weights: Sequence[Weight], capacity: int, *more: Any
) -> Run:
    """A launch of the kernel on all weights: its arguments are the table, the weights in it, and `more`."""
    runs = [
        launch(device, text, name, blocks, THREADS, table, count, *more)
        for table, count, blocks in tables(weights, capacity)
        if blocks
    ]
    return one_after_other(runs)


def is_packed(addresses: Sequence[int], sizes: Sequence[int]) -> bool:
    """True if arrays of elements of these sizes are all aligned to packs."""
    return all(a % (PACK * n) == 0 for a, n in zip(addresses, sizes))
