"""Dropout: the same numbers as on the CPU, drawn anew in backward, so that no mask is stored.

It reads and writes each element once; ten rounds of the generator give four numbers. The seed and the step
are read from device memory.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

from .....ops.nn.dropout import Dropout, DropoutChannelsLast, numbers
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, wide
from ...compiler.source import assembled, KernelSource, NAMES, typedefs
from ...handwritten.each import spread
from ...handwritten.move import copied
from ...rows import answer, table
from ...runtime.device import Device, Run

MOST_AXES = 6
NUMBERS = 2**34  # of a stream
RUN = 8  # positions of a thread if channels are last; as in dropout.cuh


def source(dtype: str, pack: int, aligned: bool) -> KernelSource:
    """The kernels "dropout", "dropout_shared" and "dropout_channels_last"; see cuda/dropout.cuh."""
    types = typedefs(T=NAMES[dtype], A=wide(dtype)) + f"#define V {pack}\n#define ALIGNED {int(aligned)}\n"
    return assembled("types", "index", "philox", types, "dropout")


def _row(device: Device, r: Request) -> ChosenKernel | None:
    shape, dtype = r.inputs[0], str(r.dtype)
    is_last = (r.op.forward_op or r.op) is DropoutChannelsLast
    lengths, strides = numbers(r.attrs, shape, is_last)
    size = int(np.prod(shape, dtype=np.int64))
    if not floating(r.dtype) or len(lengths) > MOST_AXES or size > NUMBERS:
        return None
    p = r.attrs.p
    scale = ctypes.c_float(1 / (1 - p) if p < 1 else 0.0)
    pack = max(4, 16 // r.dtype.itemsize)

    def connect(a: Any, x: Any, *, work: Any, rng: Any, train: bool, **made: Any) -> Run:
        (out,) = made.values()
        if p == 0 or not (train or a.mode == "always"):
            return copied(device, x, out)
        aligned = all(device.address(v) % (pack * r.dtype.itemsize) == 0 for v in (x, out))
        values = [x, out, ctypes.c_int64(size), rng.state, ctypes.c_uint32(rng.stream)]
        values += [ctypes.c_float(p), scale]
        name, threads = "dropout", -(-size // pack)
        if r.attrs.axes:
            name, threads, missing = "dropout_shared", size, MOST_AXES - len(lengths)
            values += [ctypes.c_int64(n) for n in (*(1,) * missing, *lengths, *(0,) * missing, *strides)]
        elif is_last:
            positions = prod(shape[1:-1])
            name, threads = "dropout_channels_last", size // positions * -(-positions // RUN)
            values += [ctypes.c_int64(positions), ctypes.c_int64(shape[-1])]
        return spread(device, source(dtype, pack, aligned), name, threads, *values)

    return answer(r, connect, 0, "cuda dropout")


rows = table((Dropout, _row, _row), (DropoutChannelsLast, _row, _row))
