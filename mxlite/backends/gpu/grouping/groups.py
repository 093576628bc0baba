"""Groups of nodes of one kind, in the order given, bounded by size: a group's results live together."""

from __future__ import annotations

from collections.abc import Hashable

from ....graph import Node

SMALL_BYTES = 256 * 1024  # of what joins a group: at 4 TB/s its memory traffic takes less than a launch
GROUP_BYTES = 1024 * 1024  # of all in a group


class Groups:
    """Groups under construction: at most one of a kind is open; it grows until it has GROUP_BYTES."""

    def __init__(self) -> None:
        self._all: list[list[Node]] = []
        self._open: dict[Hashable, tuple[list[Node], int]] = {}  # kind -> the open group, its bytes

    def add(self, node: Node, kind: Hashable, nbytes: int) -> None:
        group, total = self._open.get(kind, ([], 0))
        if not group or total + nbytes > GROUP_BYTES:
            group, total = [], 0
            self._all.append(group)
        group.append(node)
        self._open[kind] = group, total + nbytes

    def joined(self) -> list[list[Node]]:
        """The groups of more than one node, in the order in which they began."""
        return [g for g in self._all if len(g) > 1]
