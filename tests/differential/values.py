"""Numbers for variables, by what these are for; of no other than their name, their kind and a seed."""

from __future__ import annotations

from math import prod, sqrt
from zlib import crc32

import numpy as np

from .network import Variable, WHOLE
from .setting import Setting

ULP = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Between 1 and the next number."""


def values(variable: Variable, seed: int) -> np.ndarray:
    """float64, of the variable's shape.

    data             normal
    weight           normal, divided by the root of the numbers that one of the result is a sum of
    small            normal / 4, as for biases
    gamma, var       0.5 to 1.5
    mean             normal / 4
    factor           0.5 to 1.5 of either sign
    class K, index K whole, [0, K); "class K from L" is [L, K)
    length T         whole, [1, T]
    probability      rows that add up to 1
    """
    rng = np.random.default_rng((crc32(variable.name.encode()), seed))
    shape = variable.shape
    kind, *limits = variable.kind.split()
    if kind in ("class", "index"):
        least = int(limits[2]) if len(limits) > 1 else 0
        return rng.integers(least, int(limits[0]), shape).astype(np.float64)
    if kind == "length":
        return rng.integers(1, int(limits[0]) + 1, shape).astype(np.float64)
    if kind == "probability":
        drawn = rng.uniform(0.1, 1.0, shape)
        return drawn / drawn.sum(-1, keepdims=True)
    if kind in ("gamma", "var"):
        return rng.uniform(0.5, 1.5, shape)
    if kind == "factor":
        return rng.uniform(0.5, 1.5, shape) * rng.choice([-1.0, 1.0], shape)
    drawn = rng.standard_normal(shape)
    if kind == "weight":
        return drawn / sqrt(max(1, prod(shape[1:])))
    return drawn * {"data": 1.0, "small": 0.25, "mean": 0.25}[kind]


def shaken(numbers: np.ndarray, variable: Variable, setting: Setting) -> np.ndarray:
    """`numbers` of a variable an ulp up or down, in the type of a setting, by its `shake`; whole ones as they
    are.
    """
    if variable.kind.split()[0] in WHOLE:
        return numbers
    rng = np.random.default_rng((crc32(variable.name.encode()), setting.shake, 1))
    ulp = ULP[setting.amp or setting.dtype]
    return numbers * (1 + ulp * rng.choice([-1.0, 1.0], numbers.shape))
