"""The parameters of one or several cells, by name."""

from __future__ import annotations

from typing import Any

from ...symbol import Symbol, Variable


class RNNParams:
    """Variables that are created on first use; two cells with one RNNParams share their weights.

    `prefix` goes before every name.
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._params: dict[str, Symbol] = {}

    def get(self, name: str, **kwargs: Any) -> Symbol:
        """The variable PREFIX + `name`. `kwargs` go to `mx.sym.Variable` where it is new."""
        name = self._prefix + name
        if name not in self._params:
            self._params[name] = Variable(name, **kwargs)
        return self._params[name]

    def adopt(self, other: RNNParams) -> None:
        """Take over the variables of `other`, replacing those of the same names."""
        self._params.update(other._params)
