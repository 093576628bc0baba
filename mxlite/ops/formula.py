"""Formulas: functions of small float64 arrays without control flow that depends on values.

They are written for any `xp` that has numpy's functions: numpy and CuPy compute them, and for backends that
generate code, `xp.formula(f, *arrays)` generates it once, however often a formula is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def formula(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of f(xp, *arrays, name=constant), which returns one array."""

    @functools.wraps(f)
    def call(xp: Any, *arrays: Any, **constants: Any) -> Any:
        generate = getattr(xp, "formula", None)
        return f(xp, *arrays, **constants) if generate is None else generate(f, *arrays, **constants)

    return call
