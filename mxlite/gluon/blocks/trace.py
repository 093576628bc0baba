"""A hybrid block as a symbol: its forward pass, run once on variables."""

from __future__ import annotations

from typing import Any

from ...core.errors import ArgumentError
from ...symbol import Group, Symbol, Variable
from .nested import flat, Form, nested


class Trace:
    """The symbol of a block: `inputs` are the names of its arguments that are no parameters.

    `symbol` has the outputs in order, `form` how the block nests them.
    """

    __slots__ = ("form", "inputs", "symbol")

    def __init__(self, symbol: Symbol, inputs: tuple[str, ...], form: Form) -> None:
        self.symbol = symbol
        self.inputs = inputs
        self.form = form


def traced(block: Any, form: Form, count: int) -> Trace:
    """Run `block` on `count` variables that are nested as `form` says.

    One input is called `data`, several `data0`, `data1` and so on. ArgumentError if an output is no symbol.
    """
    names = ("data",) if count == 1 else tuple(f"data{i}" for i in range(count))
    outputs, form = flat(_listed(block.composed(*nested([Variable(n) for n in names], form))))
    for value in outputs:
        if not isinstance(value, Symbol):
            raise ArgumentError(
                f"{type(block).__name__}.hybrid_forward must return symbols when it is given symbols, got "
                f"{type(value).__name__}. Arrays that it makes itself come from F, as F.zeros(...), or are "
                f"constants (params.get_constant)."
            )
    return Trace(Group(outputs), names, form)


def _listed(value: Any) -> Any:
    """The outputs of a block; a symbol of several outputs is a list, as its arrays are."""
    if isinstance(value, Symbol):
        return list(value) if len(value) > 1 else value
    if isinstance(value, (list, tuple)):
        return type(value)(map(_listed, value)) if type(value) in (list, tuple) else list(map(_listed, value))
    return value
