"""A network as data: variables and calls of operators, in an order in which they can be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import mxlite as mx

from . import control

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """Output `index` of the call or variable `name`."""

    name: str
    index: int = 0


@dataclass(frozen=True)
class Variable:
    """A free input. `kind` says which numbers it gets, see `values.py`; dtype None: the type of the run."""

    name: str
    shape: Shape
    kind: str
    dtype: str | None = None

    @property
    def is_trained(self) -> bool:
        """Whether it may have a gradient."""
        return self.kind not in ("mean", "var") and self.kind.split()[0] not in WHOLE


WHOLE = ("class", "index", "length", "probability")
"""First words of kinds of labels and indices."""


@dataclass(frozen=True)
class Call:
    """One call of an operator.

    `op` is its name in mx.sym, or that of a function of `control.py`. `shapes` are those of its outputs.
    """

    name: str
    op: str
    inputs: tuple[Value, ...]
    shapes: tuple[Shape, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """Variables and calls, each behind what it reads, and what it gives. `data` names those of the variables
    that are no parameters. zero: whether a size may be 0, which else means unknown.
    """

    variables: tuple[Variable, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Value, ...]
    data: frozenset[str] = frozenset()
    zero: bool = False

    def symbol(self) -> Any:
        """The symbol of all outputs."""
        made: dict[str, Any] = {}
        for v in self.variables:
            made[v.name] = mx.sym.var(v.name, shape=v.shape, **({"dtype": v.dtype} if v.dtype else {}))
        for call in self.calls:
            made[call.name] = composed(call, [_entry(made[v.name], v.index) for v in call.inputs])
        found = [_entry(made[v.name], v.index) for v in self.outputs]
        return found[0] if len(found) == 1 else mx.sym.Group(found)

    def shape_of(self, value: Value) -> Shape:
        """The shape of a value."""
        for v in self.variables:
            if v.name == value.name:
                return v.shape
        return next(c.shapes[value.index] for c in self.calls if c.name == value.name)

    def pruned(self) -> Network:
        """Without what no output depends on."""
        needed = {v.name for v in self.outputs}
        calls = []
        for call in reversed(self.calls):
            if call.name in needed:
                calls.append(call)
                needed |= {v.name for v in call.inputs}
        variables = tuple(v for v in self.variables if v.name in needed)
        return replace(self, variables=variables, calls=tuple(reversed(calls)))


def composed(call: Call, inputs: list[Any]) -> Any:
    """The symbol of a call."""
    attr = {"attr": dict(call.annotations)} if call.annotations else {}
    if call.op in control.FUNCTIONS:
        return control.FUNCTIONS[call.op](*inputs, name=call.name, **call.attrs)
    function = mx.sym
    for part in call.op.split("."):
        function = getattr(function, part)
    return function(*inputs, name=call.name, **call.attrs, **attr)


def _entry(symbol: Any, index: int) -> Any:
    return symbol if len(symbol.list_outputs()) == 1 and index == 0 else symbol[index]
