"""The table of CPU kernels: every module of this package has `ROWS`, rows for operators.

A row replaces a reference kernel where it is measurably better. Rows of one operator are asked in the order
of their modules' names, within a module in the order they are listed; gradient operators are listed as
`Operator.grad_op`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence

from ....graph.opdef import Op
from ...base import Row


def table() -> Mapping[type[Op], Sequence[Row]]:
    """All rows, by operator."""
    found: dict[type[Op], list[Row]] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        for op, rows in importlib.import_module(f"{__name__}.{module}").ROWS.items():
            found.setdefault(op, []).extend(rows)
    return found


def kind_of(row: Row) -> str:
    """What a row's kernels are of: "onednn" or "compiled", or "numpy", told by what its module imports."""
    used = {getattr(x, "__module__", None) or "" for x in getattr(row, "__globals__", {}).values()}
    package = __name__.rpartition(".")[0]
    for kind in ("compiled", "onednn"):
        if any(name.startswith(f"{package}.{kind}") for name in used):
            return kind
    return "numpy"
