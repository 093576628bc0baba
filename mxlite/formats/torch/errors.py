"""The error that lists everything in a module that cannot be imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..building import NotSupportedError

MOST_LISTED = 40


class Place(NamedTuple):
    """The place in a module that a node of an exported program comes from."""

    node: str
    target: str
    module: str  # path in the module, as in its state_dict; "" for the module itself
    line: str  # file:line of the innermost line that is not PyTorch's own; "" if it is not known
    origin: str = ""  # the node that it was decomposed from, or itself

    def __str__(self) -> str:
        return f"{self.node} = {self.target} in {self.module or 'the module itself'}{self.at}"

    @property
    def at(self) -> str:
        return f", {self.line}" if self.line else ""


class UnsupportedModuleError(NotSupportedError):
    """Nodes of a module that mxlite cannot run: `places`, each with the reason why."""

    def __init__(self, module: str, places: Sequence[tuple[Place, str]]) -> None:
        self.places = list(places)
        count = f"{len(places)} node{'s' if len(places) > 1 else ''}"
        lines = [f"  {place}: {why}" for place, why in self.places[:MOST_LISTED]]
        if len(places) > MOST_LISTED:
            lines.append(f"  and {len(places) - MOST_LISTED} more")
        listed = "\n".join(lines)
        super().__init__(
            f"{module} cannot be imported: mxlite has no way to run {count} of it.\n{listed}\n"
            f"mx.formats.torch.register(target) adds a converter for an operator."
        )
