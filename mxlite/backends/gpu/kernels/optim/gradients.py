"""Operations on many gradients at once: test for finite values, norms, and reset to 0.

All arrays of one type are one launch (see `weights.py`), which reads each of them once. Sums of squares are
computed in double and split by size alone, so that their bits are the same on every device.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....graph.opdef import DType
from .....ops import all_finite, multi_all_finite, multi_sum_sq, reset_arrays, ScaledUpdate
from ...compiler.kinds import floating, wide
from ...compiler.source import assembled, kernel, KernelSource, NAMES
from ...handwritten.each import launch, THREADS
from ...handwritten.weights import capacity_for, is_packed, launches, PACK, tables, text, Weight
from ...rows import At, row, table, where
from ...runtime.device import Device, InOrder, pointer, Run
from .lamb import chunk_of

_OWN = [
    "const Weight &w = weights.of[own_weight(weights, count)];",
    "int64 begin = (blockIdx.x - w.first) * w.chunk;",
    "int64 end = w.size - begin < w.chunk ? w.size : begin + w.chunk;",
]
_TABLE = ["const __grid_constant__ Weights weights", "int count"]


def _loops(dtype: str, body: str) -> list[str]:
    """`body` for every pack `p` of elements, and for every remaining element as a pack of one."""
    name = NAMES[dtype]
    lines = [f"int64 packs = w.packed ? end / {PACK} : 0;"]
    for pack, first, until in (
        (PACK, f"begin / {PACK}", "packs"),
        (1, f"(w.packed ? packs * {PACK} : begin)", "end"),
    ):
        lines += [
            f"for (int64 at = {first} + threadIdx.x; at < {until}; at += {THREADS}) {{",
            f"    Pack<{name}, {pack}> &p = ((Pack<{name}, {pack}> *)w.at[0])[at];",
            "    #pragma unroll",
            f"    for (int e = 0; e < {pack}; ++e) {{ {body} }}",
            "}",
        ]
    return lines


@functools.lru_cache(maxsize=64)
def finite_source(dtype: str, capacity: int) -> KernelSource:
    """The kernels "set_one", of `out`, and "all_finite", which sets it to 0 if it finds inf or nan."""
    c = wide(dtype)
    # inf - inf and nan - nan are nan
    body = [*_OWN, "bool good = true;"]
    body += _loops(dtype, f"{c} x = to<{c}>(p.at[e]); good = good && x - x == 0;")
    body += ["if (!good) *out = 0;"]
    one = kernel("set_one", ["float *out"], ["*out = 1;"], 1)
    every = kernel("all_finite", [*_TABLE, "float *out"], body, THREADS)
    return assembled("types", "math", "index", text(1, capacity), one, every)


@functools.lru_cache(maxsize=64)
def squares_source(dtype: str, capacity: int) -> KernelSource:
    """The kernels "squares", sums of each block, and "total", the sum of each array, one block for each."""
    body = [*_OWN, "double sum = 0, none = 0;"]
    body += _loops(dtype, "double x = to<double>(p.at[e]); sum += x * x;")
    body += ["block_sums(sum, none);", "if (threadIdx.x == 0) sums[blockIdx.x] = sum;"]
    total = [
        "const Weight &w = weights.of[blockIdx.x];",
        "int64 parts = (w.size + w.chunk - 1) / w.chunk;",
        "double sum = 0, none = 0;",
        f"for (int64 p = threadIdx.x; p < parts; p += {THREADS}) sum += sums[w.first + p];",
        "block_sums(sum, none);",
        "if (threadIdx.x == 0) *(float *)w.at[1] = (float)sum;",
    ]
    parameters = [*_TABLE, "double *sums"]
    kernels = kernel("squares", parameters, body, THREADS), kernel("total", parameters, total, THREADS)
    threads = f"#define THREADS {THREADS}\n"
    return assembled("types", "math", "index", text(2, capacity), threads, "lamb", *kernels)


@functools.lru_cache(maxsize=64)
def zeros_source(nbytes: int, capacity: int) -> KernelSource:
    """The kernel "zeros", for elements of so many bytes."""
    name = {1: "bool", 2: "float16", 4: "float32", 8: "float64"}[nbytes]
    zero = "p.at[e].bits = 0;" if nbytes == 2 else "p.at[e] = 0;"
    body = [*_OWN, *_loops(name, zero)]
    return assembled("types", "math", "index", text(1, capacity), kernel("zeros", _TABLE, body, THREADS))


def _gate_text() -> str:
    """The kernel "scaled_update" of one block; see ops/optim/scaled_update.py."""
    parameters = ["const float *finite", "const double *hyper", "float *scale"]
    parameters += [
        "double *history",
        "double *out",
        "int64 size",
        "int dynamic",
        "double window",
        "double largest",
    ]
    body = [
        "bool good = *finite != 0;",
        f"for (int64 i = threadIdx.x; out && i < size; i += {THREADS}) out[i] = good ? hyper[i] : 0.0 / 0.0;",
        "if (threadIdx.x) return;",
        "double value = scale[0], steps = good ? history[0] + 1 : 0;",
        "if (dynamic && !good) value = value / 2 < 1 ? 1 : value / 2;",
        "else if (dynamic && steps >= window) {",
        "    value = 2 * value > largest ? largest : 2 * value;",
        "    steps = 0;",
        "}",
        "history[0] = steps;",
        "if (good) history[1] += 1;",
        "else history[2] += 1;",
        "scale[0] = (float)value;",
        "scale[1] = (float)(1 / value);",
    ]
    return kernel("scaled_update", parameters, body, THREADS)


GATE = assembled("types", "math", "index", _gate_text())


def _grouped(
    device: Device, arrays: Sequence[Any], chunked: bool, outs: Sequence[int] = ()
) -> dict[DType, list[Weight]]:
    """Arrays by type; `outs` are addresses that belong to each. `chunked`: few partial sums of each."""
    found: dict[DType, list[Weight]] = {}
    for i, x in enumerate(arrays):
        address = device.address(x)
        weight = Weight((address, *outs[i : i + 1]), x.size, is_packed([address], [x.dtype.itemsize]))
        if chunked:
            weight = weight._replace(chunk=chunk_of(x.size))
        found.setdefault(x.dtype, []).append(weight)
    return found


_floating = where(lambda r: floating(*r.dtypes))


@row(_floating, "cuda all_finite")
def _finite(at: At, a: Any, *args: Any, out: Any, work: Any = None) -> Run:
    device, target = at.device, pointer(at.device.address(out))
    runs: list[Run] = []
    for dtype, weights in _grouped(device, args, False).items():
        capacity = capacity_for(1, len(weights), [target])
        source = finite_source(dtype.name, capacity)
        if not runs:
            runs.append(launch(device, source, "set_one", 1, 1, target))
        runs.append(launches(device, source, "all_finite", weights, capacity, target))
    return InOrder(runs)


def _parts(at: At) -> int:
    """Number of partial sums."""
    return sum(-(-n // chunk_of(n)) for n in (int(np.prod(s, dtype=np.int64)) for s in at.r.inputs))


@row(_floating, "cuda multi_sum_sq", lambda at: 8 * _parts(at))
def _squares(at: At, a: Any, *args: Any, out: Any, work: Any) -> Run:
    device, first = at.device, at.device.address(out)
    runs: list[Run] = []
    sums = pointer(device.address(work))
    for dtype, weights in _grouped(device, args, True, [first + 4 * i for i in range(len(args))]).items():
        capacity = capacity_for(2, len(weights), [sums])
        source = squares_source(dtype.name, capacity)
        for weights_of, count, blocks in tables(weights, capacity):
            for name, grid in (("squares", blocks), ("total", count)):
                if grid:
                    runs.append(launch(device, source, name, grid, THREADS, weights_of, count, sums))
    return InOrder(runs)


_any = where(lambda r: True)


@row(_any, "cuda reset_arrays", mutates=True)
def _zeros(at: At, a: Any, *args: Any) -> Run:
    by_size: dict[int, list[Weight]] = {}
    for dtype, weights in _grouped(at.device, args, False).items():
        by_size.setdefault(dtype.itemsize, []).extend(weights)
    runs = []
    for nbytes, weights in by_size.items():
        capacity = capacity_for(1, len(weights))
        runs.append(launches(at.device, zeros_source(nbytes, capacity), "zeros", weights, capacity))
    return InOrder(runs)


@row(_any, "cuda scaled_update", mutates=True)
def _gate(at: At, a: Any, finite: Any, hyper: Any, scale: Any, history: Any, *, out: Any) -> Run:
    numbers = ctypes.c_int64(hyper.size), int(a.dynamic), float(a.window), float(a.largest)
    arrays = finite, hyper, scale, history, out
    return launch(at.device, GATE, "scaled_update", 1, THREADS, *arrays, *numbers)


rows = table(
    (all_finite, _finite, None),
    (multi_all_finite, _finite, None),
    (multi_sum_sq, _squares, None),
    (reset_arrays, _zeros, None),
    (ScaledUpdate, _gate, None),
)
