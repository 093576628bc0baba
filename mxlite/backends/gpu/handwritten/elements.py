"""Writes to arrays: fills with one value, and casts of elements from one type to another."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from ..compiler.source import assembled, kernel, KernelSource, NAMES
from ..runtime.device import Device, nothing, Run
from .dense_casts import cast_all, conversion, is_dense
from .each import spread, THREADS

MOST_AXES = 8
_WORDS = {1: "uint8", 2: "unsigned short", 4: "uint32", 8: "uint64"}


def fill(device: Device, target: Any, value: float) -> Run:
    """Set every element of `target` to `value`, converted as numpy does."""
    if not target.size:
        return nothing
    with np.errstate(all="ignore"):
        element = np.full(1, value).astype(target.dtype)
    bits = int.from_bytes(element.tobytes(), "little")
    width = target.dtype.itemsize
    values = ctypes.c_uint64(bits), ctypes.c_int64(target.size)
    return spread(device, _fill_source(width), "fill", target.size, target, *values)


@functools.cache
def _fill_source(width: int) -> KernelSource:
    word = _WORDS[width]
    body = [f"MX_EACH(at, size) out[at] = ({word})bits;"]
    parameters = [f"{word} *out", "uint64 bits", "int64 size"]
    return assembled("types", "index", kernel("fill", parameters, body, THREADS))


def convert(device: Device, target: Any, source: Any) -> Run:
    """Write elements of `source`, broadcast and cast, to `target`. Reads and writes each element once.

    Either may be strided. Floats are converted to integers as in C, by truncation; values out of range are as
    the device converts them.
    """
    if not target.size:
        return nothing
    if is_dense(target, source):
        return cast_all(device, [(target, source)])
    lengths, to, steps = _steps(target, source)
    text, made = _convert_source(str(source.dtype)), list(NAMES).index(str(target.dtype))
    numbers = map(ctypes.c_int64, (target.size, *lengths, *to, *steps))
    return spread(device, text, "convert", target.size, source, target, made, *numbers)


def _steps(target: Any, source: Any) -> tuple[list[int], list[int], list[int]]:
    """MOST_AXES lengths, and the strides of target and source along them, in elements; axes are merged."""
    new = target.ndim - source.ndim
    padded = (1,) * new + tuple(source.shape)
    if new < 0 or any(n not in (1, m) for n, m in zip(padded, target.shape)):
        raise ValueError(f"could not broadcast input array from shape {source.shape} into {target.shape}")
    given = (0,) * new + tuple(s // source.dtype.itemsize for s in source.strides)
    lengths: list[int] = []
    to: list[int] = []
    steps: list[int] = []
    for m, n, t, s in zip(target.shape, padded, target.strides, given):
        there, step = t // target.dtype.itemsize, s if n == m else 0
        if m == 1:
            continue
        if lengths and steps[-1] == step * m and to[-1] == there * m:
            lengths[-1] *= m
            to[-1], steps[-1] = there, step
        else:
            lengths.append(m)
            to.append(there)
            steps.append(step)
    if len(lengths) > MOST_AXES:
        raise ValueError(
            f"a copy over {len(lengths)} axes that cannot be joined; at most {MOST_AXES} are known"
        )
    rest = MOST_AXES - len(lengths)
    return [1] * rest + lengths, [0] * rest + to, [0] * rest + steps


@functools.cache
def _convert_source(given: str) -> KernelSource:
    """The kernel "convert" from one dtype to the one of NAMES whose number is `made`."""
    parameters = [f"const {NAMES[given]} *in", "void *out", "int made", "int64 size"]
    parameters += [f"int64 {name}{i}" for name in "nts" for i in range(MOST_AXES)]
    body = ["MX_EACH(at, size) {", "    int64 rest = at, from_ = 0, to_ = 0;"]
    for i in reversed(range(MOST_AXES)):
        body.append(
            f"    if (n{i} > 1) {{ int64 k = rest % n{i}; rest /= n{i}; from_ += k * s{i}; "
            f"to_ += k * t{i}; }}"
        )
    body.append("    switch (made) {")
    for number, made in enumerate(NAMES):
        element = conversion(given, made, "in[from_]")
        body.append(f"    case {number}: (({NAMES[made]} *)out)[to_] = {element}; break;")
    body += ["    }", "}"]
    return assembled("types", "index", kernel("convert", parameters, body, THREADS))
