"""The sum of arrays of the host, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def add_in_order(first: Any, others: Sequence[Any], wide: Any = None, join: Any = np.add) -> None:
    """Replace `first` by ((first + o0) + o1) + ..., arrays of one shape.

    wide: float32 scratch of that shape for arrays of 16 bits, whose sum is rounded once; else None.
    """
    total = first
    if wide is not None:
        total = wide
        total[...] = first
    with np.errstate(over="ignore", invalid="ignore"):  # gradients may overflow: a loss scale looks
        for other in others:
            join(total, other, out=total)
        if total is not first:
            first[...] = total
