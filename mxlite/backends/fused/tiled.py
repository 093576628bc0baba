"""Tile fusion: operators that run on a tile of their arrays at a time, one after the other.

An array that one operator computes only for the next need not be stored as a whole. A region is a nest of
loops over tiles with calls of operators in it:

    for samples [a, b)      d = d_out[a:b] @ weight                     a tile, in the same bytes each time
                            d, g = gradients of a norm(d, data[a:b])    g: a part of a sum
                            out[a:b] = d + more[a:b]                    may overwrite `more`
    d_gamma = sum of all g

    for rows [a, b)         gradient = d_out[:, a:b].T @ data
                            weight[a:b], state[a:b] = step(weight[a:b], gradient, state[a:b])

For every loop an array is sliced along one of its axes, or it is whole in every tile. A result that is whole
in a loop is accumulated over its tiles. `passes/tiling` selects the operators to be fused; no user and no
file ever sees the result. Its kernel is composed of the backend's kernels for tiles, see `tile_program.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from ...graph.ir import Node, Shape
from ...graph.opdef import DType, Op, Shapes
from ..base import Backend, ChosenKernel, Composite, connected, Request, Run
from ..call import flops_of, in_turn
from .computation import ComputationAttrs
from .tile_binding import tile_calls
from .tile_program import cut, donors, reference_kernels, TileProgram, tuned_kernels

Axes = tuple[int | None, ...]
"""For each loop of a region, outermost first, the axis along which an array is sliced; None: it is whole."""


@dataclass(frozen=True)
class TileLoop:
    """A loop over `count` elements of an axis, `each` of them in a tile, except the last. `unit`: their name.

    `lengths`: where kernels share a tile among threads, those that it may have; the first is taken that is
    `least` or more, and `of_thread` or more for each thread. `bounds` are those of each tile,
    where tiles run in another order or the last is not the smaller one.
    """

    count: int
    each: int
    unit: str = "sample"
    lengths: tuple[int, ...] = ()
    least: int = 1
    of_thread: int = 0
    bounds: tuple[tuple[int, int], ...] = ()

    def wanted(self, threads: int) -> int:
        """Least length of a tile for so many threads."""
        return max(self.least, self.of_thread * threads)

    def fitted(self, threads: int) -> TileLoop:
        """The loop for kernels of so many threads."""
        if not self.lengths:
            return self
        found = next((n for n in self.lengths if n >= self.wanted(threads)), self.lengths[-1])
        return replace(self, each=found)

    @property
    def tiles(self) -> list[slice]:
        """The elements of each tile."""
        if self.bounds:
            return [slice(*b) for b in self.bounds]
        return [slice(i, min(i + self.each, self.count)) for i in range(0, self.count, self.each)]

    @property
    def num_tiles(self) -> int:
        return len(self.bounds) or -(-self.count // self.each)

    @property
    def sizes(self) -> list[int]:
        """The one or two lengths of tiles. A batch that no memory holds has too many tiles to list."""
        if self.bounds:
            return list(dict.fromkeys(stop - start for start, stop in self.bounds))
        return [n for n in (min(self.each, self.count), self.count % self.each) if n]


@dataclass(frozen=True)
class TileArray:
    """An array of a region. `sums`: True if each tile computes a part of it, and all are added up at the end,
    which rounds less than one addition after the other where there are many tiles.

    `shape` is the one that calls see; `given` that of the graph's array if it is another. `strides`: elements
    between neighbours along each axis, of an array that is itself a part of another.
    """

    shape: Shape
    dtype: DType
    axes: Axes = (0,)
    sums: bool = False
    given: Shape | None = None
    strides: Shape | None = None

    @property
    def outside(self) -> Shape:
        """The shape of the graph's array."""
        return self.shape if self.given is None else self.given


@dataclass(frozen=True)
class TileCall:
    """A call of an operator in a region: `inputs` and `outputs` are numbers of arrays, -1 if absent.

    `shapes` and `dtypes` are those of the forward call as a whole (dtypes of its inputs), `axes` those of its
    inputs and outputs. `level` is the number of loops around the call. An output that is an input of the
    region is added to in all tiles; in the first of them, what it held before is multiplied by `keeps`.
    """

    op: type[Op]
    attrs: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: tuple[Shapes, Shapes]
    dtypes: tuple[DType, ...]
    axes: tuple[tuple[Axes, ...], tuple[Axes, ...]]
    level: int = 1
    keeps: float = 1.0

    @property
    def named(self) -> dict[str, int]:
        """The present arrays, by name."""
        names = (*self.op.input_names(self.attrs), *self.op.output_names(self.attrs))
        return {n: i for n, i in zip(names, (*self.inputs, *self.outputs)) if i >= 0}

    @property
    def wanted(self) -> list[str]:
        """The present outputs."""
        return [n for n, i in zip(self.op.output_names(self.attrs), self.outputs) if i >= 0]

    def of(self, lengths: Sequence[int]) -> tuple[Shapes, Shapes]:
        """`shapes` on a tile of these lengths, one for each loop around the call."""
        ins, outs = (
            tuple(cut(s, axes, lengths) for s, axes in zip(shapes, of_all))
            for shapes, of_all in zip(self.shapes, self.axes)
        )
        return ins, outs

    def attrs_of(self, shapes: tuple[Shapes, Shapes]) -> Any:
        """The attributes of a call on a tile: a layer has fewer units or filters there."""
        forward, a = self.op.forward_op or self.op, self.attrs
        if isinstance(a, ComputationAttrs):
            return a.on_tiles(*shapes)
        sides = zip((forward.input_names(a), forward.output_names(a)), shapes)
        rows = next(
            (s[0] for names, side in sides for n, s in zip(names, side) if n in ("weight", "d_weight")), 0
        )
        changed = {n: rows for n in ("num_hidden", "num_filter") if rows and getattr(a, n, rows) != rows}
        return replace(a, **changed) if changed else a

    @property
    def flops(self) -> float:
        """Operations of all its calls."""
        return flops_of(self.op, self.attrs, self.shapes, self.wanted)


@dataclass(frozen=True)
class TileAttrs:
    """`arrays`: the inputs first, then the results of `calls` in their order. `made`: those that are outputs.
    `any_width`: products of few columns run on the same kernels as others, so that bits are the same.
    """

    arrays: tuple[TileArray, ...]
    num_inputs: int
    calls: tuple[TileCall, ...]
    made: tuple[int, ...]
    loops: tuple[TileLoop, ...]
    any_width: bool = False

    @property
    def operators(self) -> tuple[type[Op], ...]:
        """The operators of its calls."""
        return tuple(c.op for c in self.calls)

    def without_others(self, calls: tuple[TileCall, ...], made: tuple[int, ...]) -> TileAttrs:
        """The region of some of its calls, with the arrays of these alone."""
        used = sorted({i for c in calls for i in (*c.inputs, *c.outputs) if i >= 0})
        number = {-1: -1} | {i: k for k, i in enumerate(used)}
        renumbered = tuple(
            replace(c, inputs=tuple(number[i] for i in c.inputs), outputs=tuple(number[i] for i in c.outputs))
            for c in calls
        )
        arrays, count = tuple(self.arrays[i] for i in used), sum(i < self.num_inputs for i in used)
        made = tuple(number[i] for i in made)
        return replace(self, arrays=arrays, num_inputs=count, calls=renumbered, made=made)


class Tiled(Composite):
    """Calls of operators on a tile of their arrays at a time.

    args: arrays that are sliced or whole  ->  outs: results of the calls that are read outside. An output may
    overwrite an input that is sliced alike, if no operator after the one that computes it reads that
    input, and if that operator allows it.
    """

    op_name = "_tiled"
    variadic = "args"
    variadic_outputs = "outs"
    Attrs = TileAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(a.num_inputs))

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return len(a.made)

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        return _in_place(a)

    @classmethod
    def timed_as(cls, a: Any) -> Any:
        return replace(a, calls=tuple(replace(c, attrs=c.op.timed_as(c.attrs)) for c in a.calls))

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, tuple(a.arrays[i].outside for i in a.made)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, tuple(a.arrays[i].dtype for i in a.made)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return int(sum(c.flops for c in a.calls))

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return TileProgram(a, reference_kernels).nbytes

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, outs: Any, work: Any) -> None:
        for run in tile_calls(TileProgram(a, reference_kernels), xp, args, outs, work):
            run()

    @classmethod
    def compose(cls, backend: Backend, request: Request) -> ChosenKernel:
        a = replace(request.attrs, loops=tuple(x.fitted(backend.threads()) for x in request.attrs.loops))
        program = TileProgram(a, partial(tuned_kernels, backend))

        def connect(xp: Any, a: Any, *args: Any, outs: Any, work: Any) -> Run:
            return in_turn(tile_calls(program, xp, args, outs, work))

        return connected(
            connect,
            program.nbytes,
            program.name,
            like=cls.forward,
            mutates=bool(cls.mutated(request.attrs)),
            in_place=program.in_place,
        )


class TiledGradient(Tiled):
    """The same for gradient operators, which are not recomputed."""

    op_name = "_tiled_gradient"
    recomputable = False


class TiledUpdate(Tiled):
    """The same with an optimizer's step: weight and states are updated tile by tile."""

    op_name = "_tiled_update"
    recomputable = False

    @classmethod
    def mutated(cls, a: Any) -> tuple[str, ...]:
        return _mutated(a)

    @classmethod
    def preview(cls, node: Node) -> Node:
        a, wanted, calls = node.attrs, {node.attrs.made[0]}, list[TileCall]()
        for call in reversed(a.calls):
            if wanted.intersection(call.outputs):
                wanted.update(i for i in call.inputs if i >= 0)
                calls.append(call)
        made = a.without_others(tuple(reversed(calls)), a.made[:1])
        inputs = tuple(e for i, e in enumerate(node.inputs) if i in wanted)
        return replace(node, op=TiledGradient, attrs=made, inputs=inputs)


@lru_cache(maxsize=1024)
def _mutated(a: TileAttrs) -> tuple[str, ...]:
    changed = {c.named[n] for c in a.calls for n in c.op.mutated(c.attrs)}.union(
        *(c.outputs for c in a.calls)
    )
    return tuple(f"arg{i}" for i in range(a.num_inputs) if i in changed)


@lru_cache(maxsize=1024)
def _in_place(a: TileAttrs) -> Mapping[str, tuple[str, ...]]:
    """The inputs that each output may overwrite, as far as the operators allow."""
    return donors(a, [c.op.in_place_options(c.attrs) for c in a.calls])
