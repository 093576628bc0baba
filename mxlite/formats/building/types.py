"""Element types that operators can be given."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.dtype import FLAGS
from .errors import NotSupportedError

DType = np.dtype[Any]

RUNS: frozenset[DType] = frozenset(FLAGS.values())
"""Types that operators can be given."""


def running_type(dtype: DType, what: str) -> DType:
    """`dtype`, if arrays of it can be computed with. Raises NotSupportedError otherwise."""
    if dtype not in RUNS:
        raise NotSupportedError(f"{what} has elements of type {dtype}")
    return dtype


def is_float(dtype: DType) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"
