"""Tile sizes of a product for one block of threads, and the source of the kernels for it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from ..compiler.kinds import wide
from ..compiler.source import KernelSource, NAMES, shared, typedefs

THREADS = 256
MULTIPROCESSORS = 132
"""Multiprocessors of the GPU that tiles are chosen for. A constant: the order of a sum, and so its last bits,
must not depend on the GPU that runs it."""


@dataclass(frozen=True)
class Tile:
    """`rows` x `columns` results, `steps` of the sum at a time, `high` x `wide` results of a thread.

    `speed` is the share of the arithmetic's peak that a block reaches, roughly: small tiles read more often.
    `tensor`: on tensor cores; then `high` x `wide` are the results of a warp, and `steps` are in bytes.
    """

    rows: int
    columns: int
    steps: int
    high: int
    wide: int
    speed: float
    tensor: bool = False

    def blocks(self, rows: int, columns: int) -> int:
        """Number of tiles that cover so many results."""
        return -(-rows // self.rows) * -(-columns // self.columns)

    def cost(self, blocks: int) -> float:
        """Time of so many tiles, in arbitrary units: rounds in which every multiprocessor has two of them."""
        return max(1.0, blocks / (2 * MULTIPROCESSORS)) * self.rows * self.columns / self.speed


TILES = (
    Tile(128, 128, 8, 8, 8, 1.0),
    Tile(128, 64, 8, 8, 4, 0.85),
    Tile(128, 32, 8, 4, 4, 0.65),
    Tile(64, 64, 16, 4, 4, 0.65),
    Tile(32, 32, 32, 2, 2, 0.35),
)
DOUBLE = TILES[3:]
"""Tiles for numbers of eight bytes, which take twice the registers and twice the shared memory."""


TENSOR = (
    Tile(128, 128, 64, 64, 32, 1.0, True),
    Tile(128, 64, 64, 32, 32, 0.8, True),
    Tile(64, 64, 64, 32, 16, 0.5, True),
)


def blocks(elements: int) -> int:
    """Number of blocks for a thread for each element, as far as possible."""
    return min(-(-elements // THREADS), 16 * MULTIPROCESSORS)


def chosen(dtype: str, rows: int, columns: int, times: int, tensor: bool = False) -> Tile:
    """The tile for `times` products of rows x columns results."""
    tiles = TENSOR if tensor else DOUBLE if dtype == "float64" else TILES
    return min(tiles, key=lambda t: t.cost(times * t.blocks(rows, columns)))


@functools.lru_cache(maxsize=256)
def gather(dtype: str, tile: Tile, along_k: bool, pack: int) -> KernelSource:
    """The kernel "gather": output, or gradient in data."""
    form = _form(tile, along_k, f"{pack}, 1")
    parameters = ("Convolution g", "const T *x", "const T *w", "const T *bias", "const T *addend", "T *y")
    return _source(dtype, tile, "gather", parameters, f"gathered<T, C, {form}>(g, x, w, bias, addend, y);")


@functools.lru_cache(maxsize=256)
def correlate(dtype: str, tile: Tile, along_k: bool, pack: int, columns: int) -> KernelSource:
    """The kernel "correlate": parts of the gradient in the weight; `columns` of y are read at once."""
    form = _form(tile, along_k, f"{pack}, {columns}")
    parameters = ("Convolution g", "const T *x", "const T *y", "C *sums")
    return _source(dtype, tile, "correlate", parameters, f"correlated<T, C, {form}>(g, x, y, sums);")


@functools.lru_cache(maxsize=16)
def packed_weight(dtype: str) -> KernelSource:
    """The kernel "packed_weight": a weight in the layout for tensor cores."""
    wide = "const T *w, T *to, uint32 made, uint32 summed, uint32 taps, int transposed, int64 size"
    call = "packed<T>(w, to, made, summed, taps, transposed, size);"
    text = _head(dtype) + shared("tensor", "convolution_tensor")
    return KernelSource(text + _kernel("packed_weight", (wide,), call, str(THREADS)))


@functools.lru_cache(maxsize=64)
def sums(dtype: str) -> KernelSource:
    """The kernels "added_sums" of parts of a gradient, and "channel_parts" of the bias's."""
    wide = "const C *parts, T *out, int64 size, int slices"
    parts = (
        "const T *y, C *parts, int64 sample, int64 channel, int64 position, int channels, int64 positions, "
        "int64 slice, int lanes, uint32 plane, uint32 plane_m, uint32 plane_s"
    )
    names = ", ".join(p.split()[-1].lstrip("*") for p in parts.split(", "))
    text = (
        _kernel("added_sums", (wide,), "added_up<T, C>(parts, out, size, slices);", str(THREADS)),
        _kernel("channel_parts", (parts,), f"channel_sums<T, C>({names});", str(THREADS)),
    )
    return KernelSource(_head(dtype) + "".join(text), contract=True)


def _form(tile: Tile, along_k: bool, packs: str) -> str:
    """The multiplier, as a C++ type."""
    along = "true" if along_k else "false"
    if tile.tensor:
        return f"TensorWindowed<T, {tile.rows}, {tile.columns}, {tile.high}, {tile.wide}, {along}>"
    numbers = (tile.rows, tile.columns, tile.steps, tile.high, tile.wide)
    return f"Windowed<T, C, {', '.join(map(str, numbers))}, {along}, {packs}>"


def _head(dtype: str) -> str:
    return shared("types", "index", "convolution") + typedefs(T=NAMES[dtype], C=wide(dtype))


def _source(dtype: str, tile: Tile, name: str, parameters: Sequence[str], call: str) -> KernelSource:
    # Two blocks on a multiprocessor: while one waits for memory the other computes. A thread with 64 results
    # has enough work to hide latency, and too few registers left for blocks of 512 threads.
    bounds = str(THREADS) if tile.high * tile.wide == 64 else f"{THREADS}, 2"
    head = _head(dtype) + (shared("tensor", "convolution_tensor") if tile.tensor else "")
    return KernelSource(head + _kernel(name, parameters, call, bounds), contract=True)


def _kernel(name: str, parameters: Sequence[str], call: str, bounds: str) -> str:
    head = f'extern "C" __global__ void __launch_bounds__({bounds}) {name}('
    return f"{head}{', '.join(parameters)}) {{\n    {call}\n}}\n"
