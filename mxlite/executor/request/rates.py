"""Rates of fused steps: learning rate, weight decay and further numbers of a rule for each parameter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import ShapeError
from ...core.errors import OpAttributeError
from ...graph import Shape


class Rates:
    """Checker of rates of `shape` (parameters, 2 or 3)."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._known: np.ndarray | None = None  # checked, and not writable

    def checked(self, hyper: Any) -> np.ndarray:
        """float64 rates as an array that does not change. A read-only one is checked once.

        ShapeError, and OpAttributeError for numbers that are not finite.
        """
        if hyper is self._known:
            return self._known
        shape, values = self._shape, np.array(hyper, np.float64)
        if values.shape != shape:
            raise ShapeError(
                f"hyper must be {shape}, learning rate, weight "
                f"decay{' and update count' * (shape[1] > 2)} of each "
                f"of {shape[0]} parameters, but it is {values.shape}."
            )
        if not np.isfinite(values).all():  # nan would make steps skip the update
            raise OpAttributeError(f"hyper must be finite numbers, got {values[~np.isfinite(values)][0]}.")
        if isinstance(hyper, np.ndarray) and hyper.base is None and hyper.dtype == values.dtype:
            if not hyper.flags.writeable:
                self._known = values = hyper
        return values
