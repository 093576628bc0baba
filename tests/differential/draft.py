"""A network while it is drawn: what there is so far, and how to add to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

import mxlite as mx

from .network import Call, composed, Network, Shape, Value, Variable

MOST_ELEMENTS = 6000
"""Of one value: what motifs refuse to make larger arrays than."""


class Refused(Exception):
    """A motif that does not suit the value it was given; nothing is added to the network."""


class Draft:
    """Variables, calls and values so far. Equal seeds give equal networks.

    `there` are the values that later motifs may read, the newest last. `widths` are the sizes that layers
    and data have in this network: few, so that sizes often coincide. `zero`: whether arrays may be empty;
    `heads`: whether outputs may want gradients from outside.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng((27, seed))
        self.variables: list[Variable] = []
        self.calls: list[Call] = []
        self.there: list[Value] = []
        self.data: set[str] = set()
        self.shapes: dict[Value, Shape] = {}
        self.widths: Sequence[int] = (4,)
        self._count = 0
        self.zero = False
        self.heads = True

    # -- dice -----------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        """True in `share` of all cases."""
        return bool(self.rng.random() < share)

    def one_of(self, options: Sequence[Any]) -> Any:
        """One of them, each as likely."""
        return options[int(self.rng.integers(len(options)))]

    def width(self) -> int:
        """A size for a layer."""
        return int(self.one_of(self.widths))

    # -- adding ----------------------------------------------------------------------------

    def _name(self, stem: str) -> str:
        self._count += 1
        return f"{stem.rsplit('.')[-1].strip('_').lower()}{self._count}"

    def variable(self, shape: Shape, kind: str, stem: str = "w", share: float = 0.15) -> Value:
        """A new variable, or one of this kind and shape that others read already."""
        like = [v for v in self.variables if (v.shape, v.kind) == (shape, kind) and v.name not in self.data]
        if like and self.chance(share) and kind not in ("mean", "var"):
            return Value(self.one_of(like).name)
        made = Variable(self._name(stem), shape, kind)
        self.variables.append(made)
        self.shapes[Value(made.name)] = shape
        return Value(made.name)

    def input(self, shape: Shape, kind: str = "data", stem: str = "data") -> Value:
        """A variable that is data or a label."""
        made = self.variable(shape, kind, stem, share=0)
        self.data.add(made.name)
        return made

    def outputs(self, op: str, *inputs: Value, note: Any = None, **attrs: Any) -> tuple[Value, ...]:
        """A call; all that it gives."""
        call = Call(self._name(op), op, inputs, (), attrs, note or {})
        given = [mx.sym.var(f"x{i}", shape=self.shapes[v]) for i, v in enumerate(inputs)]
        _, shapes, _ = composed(call, given).infer_shape()
        self.calls.append(Call(call.name, op, inputs, tuple(map(tuple, shapes)), attrs, note or {}))
        made = tuple(Value(call.name, i) for i in range(len(shapes)))
        self.shapes.update(zip(made, self.calls[-1].shapes))
        return made

    def call(self, op: str, *inputs: Value, note: Any = None, **attrs: Any) -> Value:
        """A call; the first thing that it gives."""
        return self.outputs(op, *inputs, note=note, **attrs)[0]

    def shape(self, value: Value) -> Shape:
        """The shape of a value."""
        return self.shapes[value]

    def require(self, suits: bool) -> None:
        """Refused, unless it suits."""
        if not suits:
            raise Refused

    def pick(self, suits: Callable[[Shape], bool] = lambda shape: True) -> Value:
        """One of the values there that suit, a new one more likely than an old one; Refused without any."""
        found = [v for v in self.there if suits(self.shapes[v])]
        self.require(bool(found))
        last = len(found) - 1
        return found[last - min(last, int(self.rng.geometric(0.5)) - 1)]

    def attempt(self, motif: Callable[[Draft], Value | None]) -> bool:
        """Whether `motif` has added something; else all is as before."""
        before = len(self.variables), len(self.calls), len(self.there), self._count
        data, shapes = set(self.data), dict(self.shapes)
        try:
            made = motif(self)
            if made is not None:
                self.require(0 < prod(self.shapes[made]) <= MOST_ELEMENTS)
                self.there.append(made)
            return True
        except Refused:
            del self.variables[before[0] :], self.calls[before[1] :], self.there[before[2] :]
            self._count, self.data, self.shapes = before[3], data, shapes
            return False

    def network(self, outputs: Sequence[Value]) -> Network:
        """What has been drawn, with these outputs."""
        made = Network(
            tuple(self.variables), tuple(self.calls), tuple(outputs), frozenset(self.data), self.zero
        )
        return made.pruned()
