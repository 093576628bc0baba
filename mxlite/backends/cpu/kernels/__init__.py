"""The table of CPU kernels: every module of this package has `ROWS`, rows for operators.

A row replaces a reference kernel where it is measurably better. Rows of one operator are tried in the order
of their modules' names, within a module in the order they are listed; gradient operators are listed as
`Operator.grad_op`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from ....graph.opdef import Op
from ...base import Row


def table() -> Mapping[type[Op], Sequence[Row]]:
    """All rows, by operator."""
    found: dict[type[Op], list[Row]] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        for op, rows in importlib.import_module(f"{__name__}.{module}").ROWS.items():
            found.setdefault(op, []).extend(rows)
    return found


_SIGNS = {
    "onednn": {"bind", "cached", "Primitive", "reorder"},
    "compiled": {"call", "load", "usable"},
}
"""Names that only kernels of a kind use: functions of the packages beside this one."""
_HOMES = {"onednn": "onednn", "compiled": "compiled", "winograd": "compiled"}


def kinds_of(row: Row) -> frozenset[str]:
    """Kinds of a row's kernels, inferred from its code: "onednn", "compiled" or both; else "other"."""
    package = __name__.rpartition(".")[0]
    kinds: set[str] = set()
    seen: set[Any] = set()
    left: list[Any] = [row]
    while left:
        function = left.pop()
        function = inspect.unwrap(function) if callable(function) else function
        if not inspect.isfunction(function) or function in seen:
            continue
        seen.add(function)
        words = list(_words(function.__code__))
        kinds |= {kind for kind in _SIGNS if any(word.startswith(f"{kind} ") for word in words)}
        for name in words:
            used = function.__globals__.get(name)
            if inspect.ismodule(used) and used.__name__.startswith(package):
                left += [f for n, f in vars(used).items() if n in words]
                continue
            home = getattr(used, "__module__", None) or ""
            if not home.startswith(package):
                continue
            kind = _HOMES.get(home.removeprefix(f"{package}.").partition(".")[0], "")
            if name in _SIGNS.get(kind, ()):
                kinds.add(kind)
            else:
                left += vars(used).values() if inspect.isclass(used) else [used]
    return frozenset(kinds or {"other"})


def _words(code: CodeType) -> Iterator[str]:
    """Every name that a function uses and every string in it, nested functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words(constant)
        elif isinstance(constant, str):
            yield constant
