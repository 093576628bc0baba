"""Check for labels that are no class numbers: a batch is checked when fed, and a warning logged once.

SoftmaxOutput and its kin accept an invalid label like MXNet does, without an error: its row gets a
gradient that pulls to no class. That is seldom meant, and a falling loss does not show it. So arrays that
are fed to arguments which an operator declares as class numbers are checked, until the first error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...graph import Entry, Graph
from ...ops.shape.reshape import Move

_log = logging.getLogger(__name__)
_AT_A_TIME = 1 << 14  # labels, so that temporaries stay small


@dataclass
class ClassNumbers:
    """Valid values of an argument: whole numbers in [0, count), and `ignored` if that is not None.

    `reader` is the node that declares it. `told`: an invalid one was found, and checks have ended.
    """

    name: str
    reader: str
    count: int
    ignored: float | None
    told: bool = False
    _first: Iterator[bool] = field(default_factory=partial(iter, (True,)))  # threads may check at once

    def look(self, labels: Any) -> None:
        """Log a warning with the first invalid label. O(labels), in pieces."""
        flat = labels.reshape(-1)
        for start in range(0, flat.size, _AT_A_TIME):
            part = flat[start : start + _AT_A_TIME]
            right = (part >= 0) & (part < self.count) & (part == np.trunc(part))
            if self.ignored is not None:
                right |= part == self.ignored
            if right.all():
                continue
            place = start + int(np.argmin(right))
            self.told = True
            if next(self._first, False):
                _log.warning(self._said(flat[place], np.unravel_index(place, labels.shape)))
            return

    def _said(self, label: Any, place: tuple[Any, ...]) -> str:
        either = "" if self.ignored is None else f", or {self.ignored:g} to leave a row out"
        remedy = (
            ""
            if self.ignored is not None
            else "; use_ignore=True with ignore_label= leaves a label's rows out"
        )
        where = ", ".join(str(int(p)) for p in place)
        return (
            f"{self.reader} takes class numbers from 0 to {self.count - 1}{either}, but {self.name!r} has "
            f"{float(label):g} at [{where}]. Such a row is trained towards no class{remedy}. "
            f"Said once for each executor."
        )


def class_numbers(graph: Graph) -> Mapping[str, ClassNumbers]:
    """The arguments that operators read as class numbers, by name, also through reshapes. O(nodes)."""
    found: dict[str, ClassNumbers] = {}
    for node in graph.nodes:
        if node.op is None:
            continue
        declared = node.op.class_numbers(node.attrs, tuple(graph.shapes[e] for e in node.inputs))
        for (count, ignored), entry in ((d, _of(node, n)) for n, d in declared.items()):
            while entry.node.op is not None and issubclass(entry.node.op, Move):
                entry = entry.node.inputs[0]
            if entry.node.op is None and entry.node.name not in found:
                reader = f"{node.op.op_name} {node.name!r}"
                found[entry.node.name] = ClassNumbers(entry.node.name, reader, count, ignored)
    return found


def _of(node: Any, name: str) -> Entry:
    entry: Entry = node.inputs[node.op.input_names(node.attrs).index(name)]
    return entry
