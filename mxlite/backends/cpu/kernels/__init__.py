"""The table of CPU kernels: every module below this package may have `ROWS`, rows for operators.

A row replaces a reference kernel where it is measurably better. Rows of one operator are asked by their
priority, see `kernel_row.py`; gradient operators are listed as `Operator.grad_op`. Which file a row lies in
means nothing.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from ....graph.opdef import Op
from ..kernel_row import KernelRow, Rows


@functools.cache
def table() -> Rows:
    """All rows, by operator."""
    found: dict[type[Op], list[KernelRow]] = {}
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        for op, rows in getattr(importlib.import_module(module.name), "ROWS", {}).items():
            found.setdefault(op, []).extend(rows)
    for op, listed in found.items():
        listed.sort(key=lambda row: row.priority)
        if len({row.priority for row in listed}) < len(listed):
            raise AssertionError(f"Two rows of {op.op_name} have one priority: which is asked first?")
    return found
