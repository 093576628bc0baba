"""Operators that update the parameters of recurrent layers without storing their gradient as a whole.

In backward, recurrent layers need an array for the gates' gradients, as many bytes as the gates that forward
has kept; these are not read again once a time step's gradients are there, so the gradients overwrite them:

    d_data, d_gates, d_biases = backward of the steps            d_gates in the bytes of the gates
    for each weight matrix, for rows [a, b) of it
        gradient = d_gates[:, a:b].T @ what the matrix multiplied     a band, see `product_update.py`
        weight[a:b], states[a:b] = step(weight[a:b], gradient, states[a:b])

Each product is then one over all time steps, and the parameters' gradient is never stored.

The pass `passes/updates/rnn_updates.py` inserts the operators into a step; no user and no file ever sees
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ...ops.linalg.product import product, product_bytes
from ...ops.rnn.rnn_gates import RnnKeepingGates
from ...ops.rnn.rnn_gradient import backward_pieces, run_of
from ...ops.rnn.rnn_layout import places, Sizes
from ...ops.scratch import accumulator, carve, Piece, scratch_bytes
from .product_update import band_rows, JoinedUpdate, step_bytes

_byte = np.dtype("uint8")


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
        run_of(
            xp, a.rnn, Sizes.of(a.rnn, a.data), None, given["parameters"],
            (given["state"], given.get("state_cell")), None,
            given["out"], given.get("layers"), given.get("cells"),
            tuple(given.get(n) for n in ("d_out", "d_state_output", "d_statecell_output")),
            (d_data, None, d_state, d_state_cell), work, None, given["gates"], d_gates,
        )  # fmt: skip
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


class RnnUpdate(JoinedUpdate):
    """An optimizer's step for the parameters of recurrent layers, from the gradients of their gates' sums.

    d_gates, d_biases: as in `_rnn_gate_gradients`;  data, state, out, layers: as in the layers, which may be
    of 16 bits;  parameters and states of the step: (number of parameters,), both updated;  then `hyper`.
    Cost: as many flops as the layers forward, and the step's.
    """

    op_name = "_rnn_update"
    makers = ("d_gates", "d_biases", "data", "state", "out", "layers")
    Attrs = RNNUpdateAttrs

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        names = super().input_names(a)
        return names if a.rnn.num_layers > 1 else tuple(n for n in names if n != "layers")

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        _, (weight, *others) = cls.halves(a, inputs)
        step: int = a.op.flops(a.attrs, (weight, weight, *others), ())
        return RnnKeepingGates.flops(a.rnn, (inputs[2],), ()) + step

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(a, inputs[2], dtype))

    @classmethod
    def halves(cls, a: Any, args: Any) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """The gradient's inputs by name; parameters, states and hyper."""
        count = len(cls.makers) - (a.rnn.num_layers == 1)
        return dict(zip(cls.makers, args)), tuple(args[count:])

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, work: Any) -> None:
        given, (*own, hyper) = RnnUpdate.halves(a, args)
        data = given["data"].shape
        s = Sizes.of(a.rnn, data)
        factor, room, rest = carve(work, _pieces(a, data, given["d_gates"].dtype))
        count = s.T * s.B

        def step(where: slice, gradient: Any) -> None:
            a.op.forward(xp, a.attrs, own[0][where], gradient, *(x[where] for x in own[1:]), hyper, work=rest)

        for part in matrices(a.rnn, s):
            y, copies = factor_of(given, s, part, factor)
            for target, source in copies:
                xp.copyto(target, source, casting="unsafe")
            d = given["d_gates"][part.pass_].reshape(count, -1)[:, part.column : part.column + part.rows]
            band = band_rows(part.rows, part.columns, count, room.dtype)
            for begin in range(0, part.rows, band):
                rows = min(band, part.rows - begin)
                made = room[: rows * part.columns]
                into = made.reshape(rows, part.columns)
                product(xp, d[:, begin : begin + rows].T, y.reshape(count, -1), into, rest)
                first = part.begin + begin * part.columns
                step(slice(first, first + made.size), made)
        for number, column, where in biases(a.rnn, s):
            step(where, given["d_biases"][number, column : column + where.stop - where.start])


def _results(given: Mapping[str, Any], s: Sizes, layer: int) -> Any:
    """The results of a layer."""
    return given["out"] if layer == s.L - 1 else given["layers"][layer]


def _pieces(a: Any, data: Shape, dtype: DType) -> list[Piece]:
    """Scratch: a matrix's factor, a band of a gradient, and scratch of products and of the step."""
    s = Sizes.of(a.rnn, data)
    count, most, nbytes = s.T * s.B, 0, step_bytes(a, (s.G * s.H,), dtype)
    for part in matrices(a.rnn, s):
        shape = band_rows(part.rows, part.columns, count, dtype), part.columns
        most = max(most, prod(shape))
        nbytes = max(nbytes, step_bytes(a, shape, dtype), product_bytes(shape[0], count, shape[1], dtype))
    return [((factor_numbers(s, True),), dtype), ((most,), dtype), ((nbytes,), _byte)]
