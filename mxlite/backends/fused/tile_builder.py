"""A region of tiles under construction: its arrays and calls, see `tiled.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...graph.opdef import Op
from .tiled import TileArray, TileAttrs, TileCall, TileLoop


class Part(NamedTuple):
    """An array of a region under construction: a number among its inputs or among its results."""

    is_input: bool
    number: int


class TileBuilder:
    """Collects the inputs, calls and results of a region.

    builder = TileBuilder((TileLoop(rows, each, "row"),))
    wide, data = builder.add(TileArray(shape, float32, (0,))), builder.add(TileArray(…, (None,)))
    narrow = builder.call(Cast, attrs, {"data": wide}, {"out": TileArray(shape, dtype, (0,))})["out"]
    …
    attrs = builder.attrs([out])
    """

    def __init__(self, loops: Sequence[TileLoop], any_width: bool = False) -> None:
        self.loops, self.any_width = tuple(loops), any_width
        self.inputs: list[TileArray] = []
        self.results: list[TileArray] = []
        self.calls: list[tuple[TileCall, dict[str, Part], dict[str, Part]]] = []

    def add(self, array: TileArray) -> Part:
        """Add an input."""
        self.inputs.append(array)
        return Part(True, len(self.inputs) - 1)

    def call(
        self,
        op: type[Op],
        attrs: Any,
        reads: Mapping[str, Part],
        makes: Mapping[str, TileArray | Part],
        level: int | None = None,
        absent: Mapping[str, TileArray] = {},
        keeps: float = 1.0,
    ) -> dict[str, Part]:
        """Add a call of an operator; returns its results by name.

        `reads` and `makes` are its arrays by name, `level` the number of loops around it, all unless given.
        The shapes of the forward call follow: an array has that of its gradient; `absent` are others that the
        forward call has. A result may be that of an earlier call outside its loops, to which it adds, or an
        input of the region, whose old content is multiplied by `keeps` first. What is whole in a loop that
        slices an input is added up over the tiles: it must be a sum over that axis, and a bias, which is
        none, is left to an earlier call.
        """
        results = {}
        for name, array in makes.items():
            if isinstance(array, Part):
                results[name] = array
                continue
            results[name] = Part(False, len(self.results))
            self.results.append(array)
        arrays = {**absent, **{n: self.array(part) for n, part in (*reads.items(), *results.items())}}
        ins, outs = self._forward(op, attrs, arrays)
        first = next(arrays[n].dtype for n in op.input_names(attrs) if n in arrays)
        names = (op.forward_op or op).input_names(attrs)
        dtypes = tuple(arrays[n].dtype if n in arrays else first for n in names)
        shapes = tuple(x.shape for x in ins), tuple(x.shape for x in outs)
        axes = tuple(x.axes for x in ins), tuple(x.axes for x in outs)
        depth = len(self.loops) if level is None else level
        made = TileCall(op, attrs, (), (), shapes, dtypes, axes, depth, keeps)
        self.calls.append((made, dict(reads), results))
        return results

    def array(self, part: Part) -> TileArray:
        """The array that a part stands for."""
        return (self.inputs if part.is_input else self.results)[part.number]

    @staticmethod
    def _forward(
        op: type[Op], a: Any, arrays: Mapping[str, TileArray]
    ) -> tuple[list[TileArray], list[TileArray]]:
        forward = op.forward_op or op
        ins, outs = forward.input_names(a), forward.output_names(a)
        return (
            [arrays.get(n) or arrays[f"d_{n}"] for n in ins],
            [arrays.get(n) or arrays[f"d_{n}"] for n in outs if n in arrays or f"d_{n}" in arrays],
        )

    def attrs(self, made: Sequence[Part]) -> TileAttrs:
        """The attributes of the node whose outputs are `made`."""
        count = len(self.inputs)

        def number(part: Part | None) -> int:
            return -1 if part is None else part.number if part.is_input else count + part.number

        calls = []
        for c, reads, makes in self.calls:
            ins = tuple(number(reads.get(n)) for n in c.op.input_names(c.attrs))
            outs = tuple(number(makes.get(n)) for n in c.op.output_names(c.attrs))
            calls.append(replace(c, inputs=ins, outputs=outs))
        arrays = (*self.inputs, *self.results)
        return TileAttrs(arrays, count, tuple(calls), tuple(map(number, made)), self.loops, self.any_width)


def add_update(
    builder: TileBuilder,
    op: type[Op],
    attrs: Any,
    reads: Sequence[Part],
    gradient: Part,
    level: int | None = None,
) -> None:
    """Add an optimizer's step on a tile: `reads` are weight, states and hyper."""
    weight, grad, *others = op.input_names(attrs)
    builder.call(op, attrs, {**dict(zip((weight, *others), reads, strict=True)), grad: gradient}, {}, level)
