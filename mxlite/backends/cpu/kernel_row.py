"""The CPU's table of kernels, and a row of it: what it chooses, what kinds they are, and when it is asked."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from typing import Any

from ...graph.opdef import Op
from ..base import ChosenKernel, Request, Row

GENERATED = frozenset({"compiled"})
LIBRARY = frozenset({"onednn"})
BOTH = GENERATED | LIBRARY
"""Kinds of kernels, in the words of MXLITE_KERNELS: generated code, oneDNN's primitives, or calls of both."""

FIRST, LATER, LAST = 0, 1, 2
"""Priorities of the rows of one operator, in the order in which they are asked. Generated kernels come first
and oneDNN's last, unless a row says otherwise."""


@dataclass(frozen=True)
class KernelRow:
    """One way to a kernel for an operator. The row with the lowest priority is asked first. `tiles`: it knows
    what the request of a tile may say, see TileView."""

    choose: Row
    kinds: frozenset[str]
    priority: int
    tiles: bool = False

    def __call__(self, request: Request) -> ChosenKernel | None:
        return self.choose(request)


def kernel_rows(
    kinds: frozenset[str], chosen_by: Mapping[Any, Row], priority: int | None = None, tiles: bool = False
) -> dict[type[Op], list[Any]]:
    """Rows of these kinds, each a KernelRow: for each operator the one that its function chooses by."""
    at = priority if priority is not None else LAST if kinds == LIBRARY else FIRST
    return {op: [KernelRow(choose, kinds, at, tiles)] for op, choose in chosen_by.items()}


class KernelTable(Mapping[type[Op], Sequence[KernelRow]]):
    """The rows of all modules below a package, by operator.

    A module is imported when an operator for which it may have rows is first asked for: a program needs the
    kernels of few. Which operators these are is read from the text of its file, where this names the modules
    that declare them, or packages of modules:

        SERVES = ("ops.norm.lrn", "ops.elementwise")

    A module without such a line, or without a text, is imported with the first operator of all. `found` are
    the rows of the operators that were asked for.
    """

    def __init__(self, package: str, path: Iterable[str]) -> None:
        self.found: dict[type[Op], Sequence[KernelRow]] = {}
        self._root = f"{package.partition('.')[0]}."
        self._modules: dict[str, list[str]] = {}  # by what SERVES names
        for module in pkgutil.walk_packages(path, f"{package}."):
            for name in () if module.ispkg else _served(module.name):
                self._modules.setdefault(name, []).append(module.name)

    def __getitem__(self, op: type[Op]) -> Sequence[KernelRow]:
        rows = self.found.get(op)
        if rows is None:
            rows = self.found[op] = self._find(op)
        if not rows:
            raise KeyError(op)
        return rows

    def __iter__(self) -> Iterator[type[Op]]:
        modules = {name for listed in self._modules.values() for name in listed}
        every = dict.fromkeys(op for name in sorted(modules) for op in _rows_of(name))
        return (op for op in every if op in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _find(self, op: type[Op]) -> Sequence[KernelRow]:
        """The rows of an operator, in the order in which they are asked."""
        parts = op.__module__.removeprefix(self._root).split(".")
        names = ("", *accumulate(parts, lambda package, name: f"{package}.{name}"))
        modules = dict.fromkeys(m for name in names for m in self._modules.get(name, ()))
        rows = [row for module in modules for row in _rows_of(module).get(op, ())]
        if len({row.priority for row in rows}) < len(rows):
            raise AssertionError(f"Two rows of {op.op_name} have one priority: which is asked first?")
        return sorted(rows, key=lambda row: row.priority)


def _served(module: str) -> list[str]:
    """The names that `SERVES` has in a module, which is not imported; "", which names all, if it has none."""
    package, _, name = module.rpartition(".")
    try:
        text = (pkgutil.get_data(package, f"{name}.py") or b"").decode()
    except OSError:
        text = ""
    line = re.search(r"^SERVES = \(([^)]*)\)", text, re.MULTILINE)
    return re.findall(r'"([\w.]+)"', line[1]) if line else [""]


def _rows_of(module: str) -> Mapping[type[Op], Sequence[KernelRow]]:
    """The rows of a module."""
    rows: Mapping[type[Op], Sequence[KernelRow]] = getattr(import_module(module), "ROWS", {})
    return rows
