"""Operators that update the parameters of recurrent layers without storing their gradient as a whole.

In backward, recurrent layers need an array for the gates' gradients, as many bytes as the gates that forward
has kept; these are not read again once a time step's gradients are there, so the gradients overwrite them:

    d_data, d_gates, d_biases = backward of the steps            d_gates in the bytes of the gates
    for each weight matrix, for rows [a, b) of it
        gradient = d_gates[:, a:b].T @ what the matrix multiplied     a tile, see `tiled.py`
        weight[a:b], states[a:b] = step(weight[a:b], gradient, states[a:b])

Each product is then one over all time steps, and the parameters' gradient is never stored.

The pass `passes/tiling/gradient_updates.py` inserts the operators into a step; no user and no file ever sees
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.nn.dense import FullyConnected
from ...ops.rnn.rnn_arrays import RnnGradients, RnnHeads, RnnInputs, RnnKept
from ...ops.rnn.rnn_gates import RnnKeepingGates
from ...ops.rnn.rnn_gradient import backward_pieces, run_backward
from ...ops.rnn.rnn_layout import places, Sizes
from ...ops.scratch import accumulator, carve, Piece, scratch_bytes
from ..base import Backend, ChosenKernel, Composite, connected, Request, Run
from ..call import in_turn
from .tile_binding import tile_calls
from .tile_builder import add_update, Part, TileBuilder
from .tile_program import Choose, reference_kernels, TileProgram, tuned_kernels
from .tile_sizes import update_tiles
from .tiled import Axes, TileArray, TileAttrs, TileLoop

_byte = np.dtype("uint8")
_NARROW = np.dtype("float16")


@dataclass(frozen=True)
class GateGradientsAttrs:
    """`rnn` are the attributes of the layers, `data` the shape of their input, `heads` the incoming
    gradients.
    """

    rnn: Any
    data: Shape
    heads: tuple[str, ...]


class RnnGateGradients(Op):
    """Backward of `_rnn_keeping_gates` without the gradient of its parameters.

    Inputs: heads, those of `d_out`, `d_state_output` and `d_statecell_output` that are present; then the
    inputs, except data, and outputs of the layers  ->  d_data, d_state, d_state_cell as in backward;
    d_gates: (L*D, T, B, 4*H), the gradients of the gates' sums;  d_biases: (L*D, 4*H), these added up over
    steps and samples. Parameters, gates and the gradients of gates and biases are float32, all else may be of
    16 bits.
    """

    op_name = "_rnn_gate_gradients"
    variadic = "args"
    outputs = ("d_data", "d_state", "d_state_cell", "d_gates", "d_biases")
    recomputable = False
    Attrs = GateGradientsAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        rnn = RnnKeepingGates
        kept = [n for n in rnn.output_names(a.rnn) if n in ("out", "layers", "cells", "gates")]
        return (*a.heads, *rnn.input_names(a.rnn)[1:], *kept)

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(n for n in cls.outputs if n != "d_state_cell" or a.rnn.mode == "lstm")

    @classmethod
    def in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        options = RnnKeepingGates.backward_in_place_options(a.rnn)
        donors = {"d_data": tuple(n for n in options.get("d_data", ()) if n in cls.input_names(a))}
        return donors | {"d_gates": ("gates",)}

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        named: Any = dict(zip(cls.input_names(a), shapes))
        gates = named["gates"]
        made = {f"d_{n}": named.get(n, named["state"]) for n in ("state", "state_cell", "gates")}
        made["d_data"] = a.data
        made["d_biases"] = (gates[0], gates[3])
        return shapes, tuple(made[n] for n in cls.output_names(a))

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        data = dtypes[0]
        wide = None if data is None else accumulator(data)
        return dtypes, tuple(wide if n in ("d_gates", "d_biases") else data for n in cls.output_names(a))

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return RnnKeepingGates.flops(a.rnn, (a.data,), ())

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        pieces = backward_pieces(a.rnn, Sizes.of(a.rnn, a.data), dtype, accumulator(dtype))
        return scratch_bytes(pieces.values())

    @classmethod
    def named(cls, a: Any, args: Any) -> dict[str, Any]:
        """`args` by their names."""
        return dict(zip(cls.input_names(a), args))

    @staticmethod
    def forward(
        xp: Any, a: Any, *args: Any,
        d_data: Any, d_state: Any, d_gates: Any, d_biases: Any, work: Any, d_state_cell: Any = None,
    ) -> None:  # fmt: skip
        given = RnnGateGradients.named(a, args)
        heads = (given.get(n) for n in ("d_out", "d_state_output", "d_statecell_output"))
        run_backward(
            xp,
            a.rnn,
            Sizes.of(a.rnn, a.data),
            RnnInputs(None, given["parameters"], given["state"], given.get("state_cell"), None),
            RnnKept(given["out"], given.get("layers"), given.get("cells")),
            RnnHeads(*heads),
            RnnGradients(d_data, None, d_state, d_state_cell),
            work,
            None,
            given["gates"],
            d_gates,
        )
        if d_biases is not None:
            for gates, sums in zip(d_gates, d_biases):
                xp.add.reduce(gates, axis=(0, 1), out=sums)


@dataclass(frozen=True)
class RNNUpdateAttrs:
    """`op` is the fused form of an elementwise step, `attrs` its parameters; `rnn` are the
    attributes of the layers.
    """

    op: type[Op]
    attrs: Any
    rnn: Any


class ParameterPart(NamedTuple):
    """A matrix of the parameters, or some rows of it.

    pass_: its layer and direction. column: the first column of this part in the gates' gradients. begin: its
    offset in the parameters. of_hidden: True if it multiplies hidden states, and not the layer's inputs.
    """

    pass_: int
    column: int
    begin: int
    rows: int
    columns: int
    of_hidden: bool

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def slice(self) -> slice:
        return slice(self.begin, self.begin + self.rows * self.columns)


def matrices(rnn: Any, s: Sizes) -> Iterator[ParameterPart]:
    """All matrices of the parameters. A GRU's candidate has a gradient of its own for its hidden part."""
    for number, place in enumerate(places(s)):
        rows, columns = place.x.shape
        yield ParameterPart(number, 0, place.x.begin, rows, columns, of_hidden=False)
        for column, row, count in ((0, 0, 2), (3, 2, 1)) if rnn.mode == "gru" else ((0, 0, s.G),):
            begin = place.h.begin + row * s.H * s.P
            yield ParameterPart(number, column * s.H, begin, count * s.H, s.P, of_hidden=True)


def biases(rnn: Any, s: Sizes) -> Iterator[tuple[int, int, slice]]:
    """All biases: pass, first column in the gates' gradients, offset in the parameters."""
    for number, place in enumerate(places(s)):
        yield number, 0, slice(place.bx.begin, place.bx.end)
        for column, row, count in ((0, 0, 2), (3, 2, 1)) if rnn.mode == "gru" else ((0, 0, s.G),):
            begin = place.bh.begin + row * s.H
            yield number, column * s.H, slice(begin, begin + count * s.H)


def factor_of(
    given: Mapping[str, Any], s: Sizes, part: ParameterPart, room: Any
) -> tuple[Any, list[tuple[Any, Any]]]:
    """The factor of a matrix's gradient, (T, B, columns) in the type of `room`, in whose elements it lies
    unless it can be used in place; and the copies that fill it first, (target, source).
    """
    layer = part.pass_ // s.D
    source = _results(given, s, layer - 1) if layer else given["data"]
    if not part.of_hidden and source.dtype == room.dtype:
        return source, []
    into = room[: s.T * s.B * part.columns].reshape(s.T, s.B, part.columns)
    if not part.of_hidden:
        return into, [(into, source)]
    known = _befores(s, part.pass_, _results(given, s, layer), given["state"])
    return into, [(into[steps], states) for steps, states in known]


def factor_numbers(s: Sizes, copies: bool) -> int:
    """Elements of the longest factor that is copied. copies: include those that could be used in place."""
    return s.T * s.B * max(s.P, s.widest if copies else 0)


def _befores(s: Sizes, number: int, results: Any, state: Any) -> Iterator[tuple[slice, Any]]:
    """The hidden states before each step, in the order of time: (steps, states)."""
    d = number % s.D
    mine = results[:, :, d * s.P : (d + 1) * s.P]
    if d == 0:
        yield slice(0, 1), state[number]
        yield slice(1, s.T), mine[:-1]
    else:
        yield slice(0, s.T - 1), mine[1:]
        yield slice(s.T - 1, s.T), state[number]


class RnnUpdate(Composite):
    """An optimizer's step for the parameters of recurrent layers, from the gradients of their gates' sums.

    d_gates, d_biases: as in `_rnn_gate_gradients`;  data, state, out, layers: as in the layers, which may be
    of 16 bits;  parameters and states of the step: (number of parameters,), both updated;  then `hyper`.
    Cost: as many flops as the layers forward, and the step's.
    """

    op_name = "_rnn_update"
    variadic = "args"
    outputs = ()
    recomputable = False
    makers = ("d_gates", "d_biases", "data", "state", "out", "layers")
    Attrs = RNNUpdateAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        weight, _, *others = a.op.input_names(a.attrs)
        makers = cls.makers if a.rnn.num_layers > 1 else cls.makers[:-1]
        return (*makers, weight, *others)

    @classmethod
    def mutated(cls, a: Any) -> tuple[str, ...]:
        changed: tuple[str, ...] = a.op.mutated(a.attrs)
        return changed

    @classmethod
    def timed_as(cls, a: Any) -> Any:
        return replace(a, attrs=a.op.timed_as(a.attrs))

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape | None) -> tuple[Any, Shapes]:
        return shapes, ()

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> Any:
        return dtypes, ()

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        _, (weight, *others) = cls.halves(a, inputs)
        step: int = a.op.flops(a.attrs, (weight, weight, *others), ())
        return RnnKeepingGates.flops(a.rnn, (inputs[2],), ()) + step

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        kinds = (*(dtype,) * 2, _NARROW, *(dtype,) * (len(inputs) - 3))  # the factors may have to be copied
        return _RnnProgram(a, inputs, kinds, reference_kernels).nbytes

    @classmethod
    def halves(cls, a: Any, args: Any) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The gradient's inputs by name; parameters, states and hyper."""
        count = len(cls.makers) - (a.rnn.num_layers == 1)
        return dict(zip(cls.makers, args)), tuple(args[count:])

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, work: Any) -> None:
        shapes, kinds = tuple(x.shape for x in args), tuple(x.dtype for x in args)
        for run in _RnnProgram(a, shapes, kinds, reference_kernels).calls(xp, args, work):
            run()

    @classmethod
    def compose(cls, backend: Backend, request: Request) -> ChosenKernel:
        program = _RnnProgram(request.attrs, request.inputs, request.dtypes, partial(tuned_kernels, backend))

        def connect(xp: Any, a: Any, *args: Any, work: Any) -> Run:
            return in_turn(program.calls(xp, args, work))

        return connected(connect, program.nbytes, program.name, like=cls.forward, mutates=True)


class _RnnProgram:
    """The update of each matrix as a region of tiles, and of each bias as a whole."""

    def __init__(self, a: Any, shapes: Shapes, kinds: tuple[DType, ...], choose: Choose) -> None:
        self.a, self.sizes = a, Sizes.of(a.rnn, shapes[2])
        self.stride, self.dtype = shapes[0][3], kinds[0]
        self.kinds = kinds[-len(RnnUpdate.halves(a, kinds)[1]) :]
        self.hyper = shapes[-1]
        self.copies = kinds[2] != self.dtype
        self.programs = {
            key: TileProgram(self._matrix(*key), choose)
            for key in dict.fromkeys(map(self._key, self._matrices()))
        }
        of_biases = {w.stop - w.start for *_, w in biases(a.rnn, self.sizes)}
        self.of_biases = {n: TileProgram(self._bias(n), choose) for n in of_biases}
        programs = (*self.programs.values(), *self.of_biases.values())
        self.rest = max(p.nbytes for p in programs)

    @property
    def pieces(self) -> list[Piece]:
        """Scratch: the factor of a gradient, and scratch of the programs."""
        return [((factor_numbers(self.sizes, self.copies),), self.dtype), ((self.rest,), _byte)]

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    @property
    def name(self) -> str:
        return next(iter(self.programs.values())).name

    def _matrices(self) -> Iterator[ParameterPart]:
        return matrices(self.a.rnn, self.sizes)

    def _key(self, part: ParameterPart) -> tuple[int, tuple[int, int]]:
        return part.pass_ % self.sizes.D, part.shape

    def _step(self, builder: TileBuilder, gradient: Part, shape: Shape, axes: Axes, level: int) -> None:
        """Add the step on a matrix or a bias."""
        own = [builder.add(TileArray(shape, kind, axes)) for kind in self.kinds[:-1]]
        hyper = builder.add(TileArray(self.hyper, self.kinds[-1], (None,) * len(axes)))
        add_update(builder, self.a.op, self.a.attrs, [*own, hyper], gradient, level)

    def _matrix(self, direction: int, shape: tuple[int, int]) -> TileAttrs:
        """The region of a matrix: tiles of rows, and in them blocks of time in the order of backward without
        kept gates, so that both add up gradients to the same bits.
        """
        s, (rows, columns) = self.sizes, shape
        count = s.T * s.B
        spans = (s.span(direction, n) for n in reversed(range(s.stretches)))
        blocks = tuple((begin * s.B, end * s.B) for begin, end in spans)
        time = TileLoop(count, min(s.K, s.T) * s.B, bounds=blocks)
        builder = TileBuilder((update_tiles(rows, columns, count, self.dtype), time), any_width=True)
        x = builder.add(TileArray((count, rows), self.dtype, (1, 0), strides=(self.stride, 1)))
        y = builder.add(TileArray((count, columns), self.dtype, (None, 0)))
        layer, made = FullyConnected.Attrs(rows, no_bias=True), TileArray(shape, self.dtype, (0, None))
        assert FullyConnected.grad_op is not None
        gradient = builder.call(FullyConnected.grad_op, layer, {"d_out": x, "data": y}, {"d_weight": made})
        self._step(builder, gradient["d_weight"], shape, (0, None), 1)
        return builder.attrs([])

    def _bias(self, size: int) -> TileAttrs:
        builder = TileBuilder(())
        self._step(builder, builder.add(TileArray((size,), self.dtype, ())), (size,), (), 0)
        return builder.attrs([])

    def calls(self, xp: Any, args: Sequence[Any], work: Any) -> list[Run]:
        """The calls on these arrays."""
        a, s = self.a, self.sizes
        given, (*own, hyper) = RnnUpdate.halves(a, args)
        factor, rest = carve(work, self.pieces)
        count = s.T * s.B
        calls: list[Run] = []
        for part in self._matrices():
            y, copies = factor_of(given, s, part, factor)
            calls += (partial(xp.copyto, *pair, casting="unsafe") for pair in copies)
            d = given["d_gates"][part.pass_].reshape(count, -1)[:, part.column : part.column + part.rows]
            mine = [x[part.slice].reshape(part.shape) for x in own]
            arrays = (d, y.reshape(count, -1), *mine, hyper)
            calls += tile_calls(self.programs[self._key(part)], xp, arrays, (), rest)
        for number, column, where in biases(a.rnn, s):
            size = where.stop - where.start
            sums = given["d_biases"][number, column : column + size]
            arrays = (sums, *(x[where] for x in own), hyper)
            calls += tile_calls(self.of_biases[size], xp, arrays, (), rest)
        return calls


def _results(given: Mapping[str, Any], s: Sizes, layer: int) -> Any:
    """The results of a layer."""
    return given["out"] if layer == s.L - 1 else given["layers"][layer]
