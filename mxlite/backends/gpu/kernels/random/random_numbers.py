"""Arrays of random numbers equal to the CPU's, bit for bit (normal and exponential ones up to rounding).

Only the seed and the step are read; each element is written once.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .....graph.opdef import Op
from .....ops.random.distributions import OTHER
from .....ops.random.random import RandomExponential, RandomNormal, RandomRandint, RandomUniform
from .....ops.random.random_like import RandomExponentialLike, RandomNormalLike, RandomUniformLike
from ....base import ChosenKernel, connected, Request
from ...compiler.source import KernelSource, NAMES, shared
from ...handwritten.elements import blocks
from ...runtime.device import Arguments, Device, nothing, pointer, Run

THREADS = 256
BITS = {"float32": 24, "float64": 24, "float16": 11, "bfloat16": 8}
WHOLE = ("int8", "uint8", "int32", "int64")
NUMBERS = 2**32  # elements at most: two numbers of a stream each

Call = tuple[str, list[Any], int]
"""A kernel, its last arguments, and the number of elements of a thread."""


@functools.lru_cache(maxsize=16)
def source(dtype: str) -> KernelSource:
    """The kernels for arrays of `dtype`; see cuda/random.cuh."""
    types = f"typedef {NAMES[dtype]} T;\ntypedef {'double' if dtype == 'float64' else 'float'} A;\n"
    types += f"#define BITS {BITS.get(dtype, 32)}\n"
    kind = "random_floats" if dtype in BITS else "random_whole"
    return KernelSource(shared("types", "index", "philox") + types + shared("random", kind))


def _uniform(a: Any, dtype: str) -> Call:
    kind = np.dtype("float32" if dtype == "bfloat16" else dtype).type  # numpy's type for a Python number
    return "uniform", [ctypes.c_double(kind(x)) for x in (a.high - a.low, a.low)], 4


def _normal(a: Any, dtype: str) -> Call:
    return "normal", [ctypes.c_double(a.scale), ctypes.c_double(a.loc)], 2


def _exponential(a: Any, dtype: str) -> Call:
    return "exponential", [ctypes.c_double(a.lam), ctypes.c_uint64(OTHER)], 1


def _randint(a: Any, dtype: str) -> Call:
    span = a.high - a.low
    values = [ctypes.c_uint64(span), ctypes.c_uint64(a.low % 2**64)]
    return ("below", values, 4) if span <= 2**32 else ("below_wide", values, 2)


CALLS: dict[type[Op], Callable[[Any, str], Call]] = {
    RandomUniform: _uniform,
    RandomUniformLike: _uniform,
    RandomNormal: _normal,
    RandomNormalLike: _normal,
    RandomExponential: _exponential,
    RandomExponentialLike: _exponential,
    RandomRandint: _randint,
}


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(r: Request) -> ChosenKernel | None:
        _, (kind, *_) = r.op.infer_type(r.attrs, *r.dtypes)
        dtype, size = str(kind), 1
        for n in r.outputs[0]:
            size *= n
        if dtype not in (*BITS, *WHOLE) or size > NUMBERS:
            return None
        name, last, each = CALLS[r.op](r.attrs, dtype)

        def connect(xp: Any, a: Any, *like: Any, out: Any, rng: Any, work: Any) -> Run:
            if out is None or size == 0:
                return nothing
            values = [pointer(device.address(out)), ctypes.c_int64(size), pointer(device.address(rng.state))]
            values += [ctypes.c_uint32(rng.stream), *last]
            grid = (blocks(device, -(-size // each)), 1, 1)
            function = device.function(source(dtype), name)
            return device.launch(function, grid, (THREADS, 1, 1), 0, Arguments(values))

        return connected(connect, 0, f"cuda random {name}", like=r.op.forward)

    return {op: [row] for op in CALLS}
