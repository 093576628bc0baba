"""Formulas: functions of small float64 arrays that look at no value by themselves.

They are written for any `xp` that has numpy's functions: numpy and CuPy compute them, and where code is
generated from what they do, `xp.formula(f, *arrays)` has it made once, however often a formula is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def formula(f: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates f(xp, *arrays, name=constant), which gives one array."""

    @functools.wraps(f)
    def call(xp: Any, *arrays: Any, **constants: Any) -> Any:
        made = getattr(xp, "formula", None)
        return f(xp, *arrays, **constants) if made is None else made(f, *arrays, **constants)

    return call
