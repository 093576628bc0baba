"""Sparse gradient arrays of a user, beside the dense ones that a program writes."""

from __future__ import annotations

from collections.abc import Mapping

from ...ndarray import NDArray


class SparseGradients:
    """`sparse` are the sparse arrays among `grads`, by name; `dense` those that the program writes.

    After a backward pass the sparse arrays get the nonzero elements of the dense ones, which waits for the
    pass. Before one the copy is in the other direction where `requests` say "add".
    """

    def __init__(self, grads: Mapping[str, NDArray], requests: Mapping[str, str]) -> None:
        asked = {n: g for n, g in grads.items() if requests[n] != "null"}
        self.sparse = {n: g for n, g in asked.items() if g.stype != "default"}
        self.dense = {n: g.plain() for n, g in self.sparse.items()}
        self._added = [n for n in self.sparse if requests[n] == "add"]

    def before(self) -> None:
        """Let the program add to what the sparse arrays hold now."""
        for name in self._added:
            self.sparse[name].copyto(self.dense[name])

    def after(self) -> None:
        """Copy the program's results to the sparse arrays."""
        for name, grad in self.sparse.items():
            self.dense[name].copyto(grad)
