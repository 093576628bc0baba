"""Cell: a symbol that a user's recursion calls for one node at a time, and mxlite runs for many at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.dtype import as_dtype
from ..core.errors import ArgumentError, DefinitionError, StateError, UnknownNameError
from ..core.wanted import wanted
from ..graph import Shape
from ..graph.opdef import DType
from ..symbol import Symbol
from .cut import Cut

Kind = tuple[Shape, DType]


class Cell:
    """A symbol whose inputs and outputs have a row for each node; all other variables are parameters.

        sizes = {"hl": 256, "cl": 256, "hr": 256, "cr": 256}
        join = mx.dynamic.Cell("join", mx.sym.Group([h, c]), states=sizes)
        h, c = join(*left, *right)

    states: inputs that are results of cells, by name, with the shape of a row, or (shape, type).  data:
    inputs that are values of the user's, such as the number of a word: their shapes are () mostly. A call
    takes the states and then the data, in the order in which they are named here, and gives a handle for each
    output. Inside of a network's function it records the call; nothing is computed there.
    """

    def __init__(
        self,
        name: str,
        symbol: Symbol,
        states: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        self.name: str = wanted("Cell: name", name, "text", str)
        self.symbol: Symbol = wanted("Cell: symbol", symbol, "a Symbol", Symbol)
        self.states = _kinds(f"Cell {name!r}: states", states)
        self.data = _kinds(f"Cell {name!r}: data", data)
        inputs = {**self.states, **self.data}
        missing = [n for n in inputs if n not in symbol.list_arguments()]
        if missing or len(inputs) != len(self.states) + len(self.data):
            double = sorted(self.states.keys() & self.data.keys())
            what = (
                f"{missing[0]!r} is no variable of the symbol" if missing else f"{double[0]!r} is named twice"
            )
            raise UnknownNameError(f"Cell {name!r}: {what}, which has {symbol.list_arguments()}.")
        if not inputs:
            raise DefinitionError(f"Cell {name!r} has no inputs, so its rows cannot be told.")
        self.cut = Cut(name, symbol.graph, self.states, self.data)
        self.outputs: list[Kind] = [(self.cut.row(e), self.cut.dtype(e)) for e in self.cut.outputs]
        self.record: Callable[..., Any] = self._refuse

    def __call__(self, *operands: Any) -> Any:
        """Handles of the results for one node: one, or a tuple of as many as the symbol has outputs."""
        return self.record(*operands)

    def __repr__(self) -> str:
        return f"<Cell {self.name!r} of {', '.join((*self.states, *self.data))}>"

    def _refuse(self, *operands: Any) -> Any:
        raise StateError(f"Cell {self.name!r} is called outside of the function of an mx.dynamic.Network.")


def _kinds(what: str, given: Mapping[str, Any] | None) -> dict[str, Kind]:
    """Shapes and types by name."""
    found: dict[str, Kind] = {}
    for name, kind in wanted(what, given or {}, "a dict of names and shapes", Mapping).items():
        shape, dtype = kind, "float32"
        if isinstance(kind, tuple) and len(kind) == 2 and isinstance(kind[1], str):
            shape, dtype = kind
        try:
            found[name] = ((shape,) if isinstance(shape, int) else tuple(map(int, shape))), as_dtype(dtype)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"{what}: {name!r} must be a shape, or a shape and a type, got {kind!r}."
            ) from None
    return found


def said(kind: Kind) -> str:
    """A kind of row in words of an error."""
    return f"{kind[0]} {kind[1].name}"
