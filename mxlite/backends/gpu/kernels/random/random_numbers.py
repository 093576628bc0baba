"""Arrays of random numbers equal to the CPU's, bit for bit (normal and exponential ones up to rounding).

Only the seed and the step are read; each element is written once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from .....graph.opdef import Op
from .....ops import find_op
from .....ops.random.distributions import OTHER
from .....ops.random.random import (
    RandomNormal,
    RandomNormalLike,
    RandomRandint,
    RandomUniform,
    RandomUniformLike,
)
from ....base import ChosenKernel, Request
from ...compiler.kinds import wide
from ...compiler.source import assembled, KernelSource, NAMES, typedefs
from ...handwritten.each import spread
from ...rows import answer, table
from ...runtime.device import Device, Run

BITS = {"float32": 24, "float64": 24, "float16": 11, "bfloat16": 8}
WHOLE = ("int8", "uint8", "int32", "int64")
NUMBERS = 2**32  # elements at most: two numbers of a stream each

Call = tuple[str, list[Any], int]
"""A kernel, its last arguments, and the number of elements of a thread."""


def source(dtype: str) -> KernelSource:
    """The kernels for arrays of `dtype`; see cuda/random.cuh."""
    types = typedefs(T=NAMES[dtype], A=wide(dtype)) + f"#define BITS {BITS.get(dtype, 32)}\n"
    kind = "random_floats" if dtype in BITS else "random_whole"
    return assembled("types", "index", "philox", types, "random", kind)


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
    find_op("_random_exponential"): _exponential,
    find_op("_random_exponential_like"): _exponential,
    RandomRandint: _randint,
}


def _row(device: Device, r: Request) -> ChosenKernel | None:
    _, (kind, *_) = r.op.infer_type(r.attrs, *r.dtypes)
    dtype, size = str(kind), prod(r.outputs[0])
    if dtype not in (*BITS, *WHOLE) or size > NUMBERS:
        return None
    name, last, each = CALLS[r.op](r.attrs, dtype)

    def connect(a: Any, *like: Any, out: Any, rng: Any, work: Any) -> Run:
        state = ctypes.c_int64(size), rng.state, ctypes.c_uint32(rng.stream)
        return spread(device, source(dtype), name, -(-size // each), out, *state, *last)

    return answer(r, connect, 0, f"cuda random {name}")


rows = table(*((op, _row, None) for op in CALLS))
