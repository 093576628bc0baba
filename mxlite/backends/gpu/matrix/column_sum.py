"""Column sums of a matrix, such as the gradient of a bias: each number is read once.

A block adds up a slab of rows for 32 columns; if there are several slabs, their sums go to scratch and a
second launch adds them up in order. Slabs depend on the shape alone.
"""

from __future__ import annotations

import functools

from ..compiler.kinds import FLOATS, wide
from ..compiler.source import kernel, KernelSource, NAMES, shared
from ..handwritten.each import launch
from ..runtime.device import Device, InOrder, nothing, pointer, Run

COLUMNS, LANES = 32, 8  # of a block: threads along a row, and rows at a time
SLAB = 512  # rows that a block adds up, at least
MOST_SLABS = 64


def _slabs(rows: int, columns: int) -> int:
    """Number of blocks that share a column."""
    wanted = max(1, 528 // max(1, -(-columns // COLUMNS)))
    return max(1, min(wanted, -(-rows // SLAB), MOST_SLABS))


def workspace(rows: int, columns: int, dtype: str) -> int:
    """Bytes of scratch."""
    slabs = _slabs(rows, columns)
    return slabs * columns * (8 if dtype == "float64" else 4) if slabs > 1 else 0


def fits(rows: int, columns: int, dtype: str) -> bool:
    return dtype in FLOATS and max(rows, columns) < 2**31 - 2**20


@functools.lru_cache(maxsize=32)
def source(given: str, made: str, compute: str) -> KernelSource:
    """The kernel "column_sum" from elements of one C++ type to another."""
    parameters = [f"const {given} *from_", f"{made} *to_", "int rows", "int columns", "int slabs"]
    body = [
        f"__shared__ {compute} sums[{LANES}][{COLUMNS}];",
        f"int column = blockIdx.x * {COLUMNS} + threadIdx.x;",
        "int first = (int64)rows * blockIdx.y / slabs, last = (int64)rows * (blockIdx.y + 1) / slabs;",
        f"{compute} sum = 0;",
        "if (column < columns)",
        f"    for (int row = first + threadIdx.y; row < last; row += {LANES})",
        f"        sum += to<{compute}>(from_[(int64)row * columns + column]);",
        "sums[threadIdx.y][threadIdx.x] = sum;",
        "__syncthreads();",
        "if (threadIdx.y == 0 && column < columns) {",
        f"    for (int i = 1; i < {LANES}; ++i) sum += sums[i][threadIdx.x];",
        f"    to_[(int64)blockIdx.y * columns + column] = from<{made}>(sum);",
        "}",
    ]
    return KernelSource(shared("types") + kernel("column_sum", parameters, body, COLUMNS * LANES))


def launches(rows: int, columns: int) -> int:
    """Number of kernels of a call."""
    return 1 if _slabs(rows, columns) == 1 else 2


def column_sum(device: Device, x: int, rows: int, columns: int, dtype: str, out: int, work: int) -> Run:
    """out[j] = sum over i of x[i, j], for matrices at these addresses; `work` is `workspace(...)` bytes."""
    if not columns:
        return nothing
    slabs = _slabs(rows, columns)
    name, compute = NAMES[dtype], wide(dtype)
    block, blocks = (COLUMNS, LANES), -(-columns // COLUMNS)

    def stage(given: str, made: str, x: int, out: int, rows: int, slabs: int) -> Run:
        values = pointer(x), pointer(out), rows, columns, slabs
        return launch(device, source(given, made, compute), "column_sum", (blocks, slabs), block, *values)

    if slabs == 1:
        return stage(name, name, x, out, rows, 1)
    return InOrder([stage(name, compute, x, work, rows, slabs), stage(compute, name, work, out, slabs, 1)])
