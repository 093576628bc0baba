"""A row of the CPU's table of kernels: what it chooses, what kinds they are, and when it is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


Rows = Mapping[type[Op], Sequence[KernelRow]]


def kernel_rows(
    kinds: frozenset[str], chosen_by: Mapping[Any, Row], priority: int | None = None, tiles: bool = False
) -> dict[type[Op], list[Any]]:
    """Rows of these kinds, each a KernelRow: for each operator the one that its function chooses by."""
    at = priority if priority is not None else LAST if kinds == LIBRARY else FIRST
    return {op: [KernelRow(choose, kinds, at, tiles)] for op, choose in chosen_by.items()}
