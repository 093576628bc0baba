"""The table of CPU kernels: every module below this package may have `ROWS`, rows for operators.

A row replaces a reference kernel where it is measurably better. Rows of one operator are asked by their
priority, see `kernel_row.py`; gradient operators are listed as `Operator.grad_op`. Which file a row lies in
means nothing. Beside `ROWS`, `SERVES` says in which modules those operators are declared: so a module is
imported only when somebody asks for one of them.
"""

from __future__ import annotations

import functools

from ..kernel_row import KernelTable


@functools.cache
def table() -> KernelTable:
    """All rows, by operator."""
    return KernelTable(__name__, __path__)
