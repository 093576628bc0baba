"""Dropout: the same numbers as on the CPU, drawn anew in backward, so that no mask is stored.

It reads and writes each element once; ten rounds of the generator give four numbers. The seed and the step
are read from device memory.
"""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

import numpy as np

from .....graph.opdef import Op
from .....ops.nn.dropout import Dropout, DropoutChannelsLast, numbers
from ....base import ChosenKernel, connected, Request
from ...compiler.source import KernelSource, NAMES, shared
from ...handwritten.elements import blocks
from ...handwritten.move import copied
from ...runtime.device import Arguments, Device, nothing, pointer, Run

THREADS = 256
FLOATS = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
MOST_AXES = 6
NUMBERS = 2**34  # of a stream
RUN = 8  # positions of a thread if channels are last; as in dropout.cuh


@functools.lru_cache(maxsize=32)
def source(dtype: str, pack: int, aligned: bool) -> KernelSource:
    """The kernels "dropout", "dropout_shared" and "dropout_channels_last"; see cuda/dropout.cuh."""
    types = (
        f"typedef {NAMES[dtype]} T;\ntypedef {'double' if dtype == 'float64' else 'float'} A;\n"
        f"#define V {pack}\n#define ALIGNED {int(aligned)}\n"
    )
    return KernelSource(shared("types", "index", "philox") + types + shared("dropout"))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(r: Request) -> ChosenKernel | None:
        shape, dtype = r.inputs[0], str(r.dtype)
        is_last = (r.op.forward_op or r.op) is DropoutChannelsLast
        lengths, strides = numbers(r.attrs, shape, is_last)
        size = int(np.prod(shape, dtype=np.int64))
        if dtype not in FLOATS or len(lengths) > MOST_AXES or size > NUMBERS:
            return None
        p = r.attrs.p
        scale = ctypes.c_float(1 / (1 - p) if p < 1 else 0.0)
        pack = max(4, 16 // FLOATS[dtype])

        def connect(xp: Any, a: Any, x: Any, *, work: Any, rng: Any, train: bool, **made: Any) -> Run:
            (out,) = made.values()
            if out is None or size == 0:
                return nothing
            if p == 0 or not (train or a.mode == "always"):
                return copied(device, x, out)
            addresses = [device.address(v) for v in (x, out)]
            aligned = all(v % (pack * FLOATS[dtype]) == 0 for v in addresses)
            values = [*map(pointer, addresses), ctypes.c_int64(size), pointer(device.address(rng.state))]
            values += [ctypes.c_uint32(rng.stream), ctypes.c_float(p), scale]
            name, threads = "dropout", -(-size // pack)
            if r.attrs.axes:
                name, threads, missing = "dropout_shared", size, MOST_AXES - len(lengths)
                values += [ctypes.c_int64(n) for n in (*(1,) * missing, *lengths, *(0,) * missing, *strides)]
            elif is_last:
                positions = prod(shape[1:-1])
                name, threads = "dropout_channels_last", size // positions * -(-positions // RUN)
                values += [ctypes.c_int64(positions), ctypes.c_int64(shape[-1])]
            function = device.function(source(dtype, pack, aligned), name)
            grid = (blocks(device, threads), 1, 1)
            return device.launch(function, grid, (THREADS, 1, 1), 0, Arguments(values))

        return connected(connect, 0, "cuda dropout", like=r.op.forward)

    return {op: [row] for o in (Dropout, DropoutChannelsLast) for op in (o, o.grad_op) if op is not None}
