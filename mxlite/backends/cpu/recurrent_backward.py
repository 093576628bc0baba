"""RNN backward: the calls of one pass through all layers in reverse.

Like the reference kernel (`rnn_gradient.py`) it goes back segment by segment. Gates are read if
forward kept them, or recomputed, a segment at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...core.dtype import as_dtype, float32
from ...graph.opdef import DType
from ...ops.rnn.rnn_arrays import RnnGradients, RnnHeads, RnnInputs, RnnKept
from ...ops.rnn.rnn_layout import split, Weights
from ...ops.rnn.rnn_run import between, layer_arrays, Pieces
from ...ops.scratch import carve, scratch_bytes
from .compiled.rnn import recurrent, recurrent_code
from .onednn import in_turn
from .onednn.primitive import address_of, Run
from .onednn.product import Layout
from .recurrent_layers import add_bias, GATES_WITH_HIDDEN_BIAS, Layers, lengths

_bool = as_dtype("bool")


class BackwardLayers(Layers):
    """The backward call. kept: True if forward has kept the gates. leaves: True if it outputs the gradients
    of the gates' sums, and none of the parameters.
    """

    def __init__(
        self, a: Any, data: tuple[int, ...], dtypes: Sequence[DType], train: bool, kept: bool,
        leaves: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(a, data, dtypes, train)
        s = self.s
        self.leaves = leaves
        self.plain = s.G == 1
        self.kept = kept or self.plain  # a plain cell needs only its results
        for k in self.lengths_of_stretches():
            rows = k * s.B
            for layer in range(s.L):
                width = s.width(layer)
                if not self.kept:
                    self.inputs(rows, width)
                for adds in (False, True):
                    if not leaves:
                        self._to_weights(rows, width, adds)
                    self._to_input(rows, width, adds)

    # -- products --------------------------------------------------------------------------------------

    def _part(self, rows: int, first: int, count: int) -> Layout:
        """Some columns of H numbers of an array of gates; `first` is the offset of its address."""
        return Layout((rows, count * self.s.H), (self.columns, 1))

    def _hidden(self) -> list[tuple[int, int, int]]:
        """(column of the gates, row of the weights, count), for products with hidden states."""
        return [(0, 0, 2), (3, 2, 1)] if self.a.mode == "gru" else [(0, 0, self.s.G)]

    def _to_weights(self, rows: int, width: int, adds: bool) -> tuple[Any, list[tuple[Any, int, int]]]:
        """Products d_weight = d_gates.T @ x, and those with the previous hidden states."""
        s = self.s
        of_input = self.multiply(
            self._part(rows, 0, s.G).turned, Layout.dense(rows, width), Layout.dense(self.gates, width),
            adds=adds,
        )  # fmt: skip
        of_hidden = []
        for column, row, count in self._hidden():
            d = self._part(rows, column, count).turned
            how = self.multiply(d, Layout.dense(rows, s.H), Layout.dense(count * s.H, s.H), adds=adds)
            of_hidden.append((how, column, row))
        return of_input, of_hidden

    def _to_input(self, rows: int, width: int, adds: bool) -> Any:
        """d_x = d_gates @ weight."""
        d = self._part(rows, 0, self.s.G)
        return self.multiply(d, Layout.dense(self.gates, width), Layout.dense(rows, width), adds=adds)

    # -- scratch ---------------------------------------------------------------------------------------

    def pieces(self) -> Pieces:
        s = self.s
        rows, lstm = s.K * s.B, s.passes if self.lstm else 0
        packed = [recurrent.packed_numbers(self.form, True)]
        if not self.kept:
            packed.append(recurrent.packed_numbers(self.form, False))
        apart = self.narrow or (s.D == 2 and self.drops)
        more: Pieces = {"x": ((0,), float32)} if self.leaves else {}  # data is not read then
        return (
            self.common_pieces()
            | more
            | {
                "d_weights": ((s.parameters if self.widens else 0,), float32),
                "packed": ((max(packed),), float32),
                "h": ((0 if self.kept else 2, s.B, s.H), float32),
                "c": ((0 if self.kept or not self.lstm else s.B, s.H), float32),
                "gates": ((0 if self.leaves else rows, self.columns), float32),
                "before": ((s.K if self._needs_befores else 0, s.B, s.H), float32),
                "cells": ((s.K if self.lstm else 0, s.B, s.H), float32),
                "start": ((s.B if self.lstm else 0, s.H), float32),
                "d_x": ((rows if apart else 0, s.widest), float32),
                "dh": ((s.passes, s.B, s.H), float32),
                "dc": ((lstm, s.B, s.H), float32),
                "sums": ((0 if self.leaves else s.passes, self.columns), float32),
                "between": (between(s), float32),
                "off": ((s.B if self.form.ends else 0, 1), _bool),
            }
        )

    @property
    def _needs_befores(self) -> bool:
        """True if hidden states are read: by weight gradients, by recomputed gates, by a GRU's steps."""
        return not self.leaves or not self.kept or self.a.mode == "gru"

    def work_bytes(self) -> int:
        return scratch_bytes(self.pieces().values())

    # -- calls -----------------------------------------------------------------------------------------

    def connect(
        self,
        xp: Any,
        given: RnnInputs,
        kept: RnnKept,
        gates: Any,
        heads: RnnHeads,
        wanted: RnnGradients,
        work: Any,
        rng: Any,
        d_gates: Any = None,
        d_biases: Any = None,
    ) -> Run:
        """The calls of the whole pass, see `run_backward`; d_gates may alias gates."""
        data, parameters, *states, ends = given
        out, layers, cells = kept
        s = self.s
        pieces = self.pieces()
        self.have = have = dict(zip(pieces, carve(work, pieces.values())))
        d_out, *d_last = heads
        d_data, d_parameters, *d_first = wanted
        calls: list[Run] = list(lengths(xp, ends, have))
        flat = parameters
        if self.widens:
            flat = have["weights"]
            calls.append(partial(xp.copyto, flat, parameters, casting="unsafe"))
        weights = split(flat, s)
        gradients: list[Weights | None] = [None] * s.passes
        total = d_parameters
        if d_parameters is not None:
            total = have["d_weights"] if self.widens else d_parameters
            gradients = list(split(total, s))
        for head, state in zip(d_last, (have["dh"], have["dc"])):
            if state.size:
                calls.append(partial(xp.copyto, state, 0 if head is None else head, casting="unsafe"))
        if self.leaves:
            have["sums"] = d_biases
        calls.append(partial(have["sums"].fill, 0))

        def results(layer: int) -> Any:
            return out if layer == s.L - 1 else layers[layer]

        gradient = layer_arrays(s, d_out, None, have["between"], backward=True)
        packed = -1
        for layer, d, n in reversed(list(s.order())):
            number = layer * s.D + d
            w, dw = weights[number], gradients[number]
            begin, end = s.span(d, n)
            rows = (end - begin) * s.B
            x = None
            if dw is not None or not self.kept:
                source = results(layer - 1)[begin:end] if layer else data[begin:end]
                x, put = self.input_of(xp, layer, begin, source, rng, have)
                calls += put
            if self._needs_befores:
                calls += self._befores(xp, d, begin, end, results(layer), states[0][number], ends)
            head = gradient(layer, begin, end)
            start = self._start(xp, calls, number, n, states[1], cells)
            if not self.kept:
                calls += self._gates_again(xp, w, x, d, begin, end, start)
                packed = -1
            form = self.form._replace(head="float32" if head is None else head.dtype.name)
            code = recurrent_code.code(form, True)
            if packed != number:
                slots = {recurrent.WEIGHT: address_of(w.h), recurrent.PACKED: address_of(have["packed"])}
                calls.append(self._call(code, "pack", slots, (w.h, have["packed"])))
                packed = number
            known = have["gates"] if gates is None else gates[number, begin:end]
            made = have["gates"]
            if self.leaves:
                made = d_gates[number, begin:end].reshape(rows, self.columns)
            calls.append(
                self._steps(code, d, number, begin, end, results(layer), known, start, head, made, work)
            )
            if dw is not None:
                calls += self._weights(dw, x, rows, n == s.stretches - 1)
            if layer or d_data is not None:
                below = gradient(layer - 1, begin, end) if layer else d_data[begin:end]
                calls += self._input(xp, layer, d, begin, w, below, made, rows, rng)
        for dw, sums in zip(gradients, have["sums"]):
            if dw is not None:
                calls += self._biases(xp, dw, sums)
        if total is not d_parameters:
            calls.append(partial(xp.copyto, d_parameters, total, casting="unsafe"))
        for source, target in zip((have["dh"], have["dc"]), d_first):
            if target is not None:
                calls.append(partial(xp.copyto, target, source, casting="unsafe"))
        return in_turn(calls)

    def _befores(
        self, xp: Any, d: int, begin: int, end: int, results: Any, state: Any, ends: Any
    ) -> Iterator[Run]:
        """Hidden states before each step, in the order of time."""
        s, before = self.s, self.have["before"][: end - begin]
        mine = results[:, :, d * s.P : (d + 1) * s.P]
        if d == 0:
            pairs = [(before[1:], mine[begin : end - 1]), (before[0], mine[begin - 1] if begin else state)]
        else:
            pairs = [(before[:-1], mine[begin + 1 : end]), (before[-1], mine[end] if end < s.T else state)]
        for target, source in pairs:
            yield partial(xp.copyto, target, source, casting="unsafe")
        if (
            ends is not None and d == 1
        ):  # a sequence that ends within T starts its reverse pass from the first state
            off = self.have["off"]
            for j in range(end - begin):
                yield partial(xp.less_equal, ends, begin + j + 1, out=off[:, 0])
                yield partial(xp.copyto, before[j], state, where=off, casting="unsafe")

    def _gates_again(
        self, xp: Any, w: Weights, x: Any, d: int, begin: int, end: int, start: Any
    ) -> Iterator[Run]:
        """Recompute the gates of a segment, with the calls that forward used, and so with its bits."""
        s, have = self.s, self.have
        yield from add_bias(xp, w, s.H, GATES_WITH_HIDDEN_BIAS[self.a.mode], have["bias"])
        gates, k = have["gates"], end - begin
        yield self.inputs(k * s.B, x.shape[1]).bind(x, w.x, gates, have["bias"], have["scratch"])
        step, first = (1, 0) if d == 0 else (-1, k - 1)
        yield partial(xp.copyto, have["h"][0], have["before"][first])
        if self.lstm:
            yield partial(xp.copyto, have["c"], start)
        code = recurrent_code.code(self.form._replace(keeps=True), False)
        weight, packs = self.packing(code, w, have)
        yield from packs
        slots = {
            recurrent.PACKED: address_of(weight),
            recurrent.GATES: address_of(gates) + first * s.B * self.columns * 4,
            recurrent.CELL: address_of(have["c"]) if self.lstm else 0,
            recurrent.LENGTHS: address_of(have["lengths"]) if self.form.ends else 0,
            recurrent.BIAS: address_of(w.bh[2 * s.H :]) if self.a.mode == "gru" else 0,
            recurrent.STATE: address_of(have["h"][0]),
            recurrent.OTHER: address_of(have["h"][1]),
            recurrent.STEPS: k,
            recurrent.GATES_STEP: step * s.B * self.columns * 4,
            recurrent.TIME: begin + first,
            recurrent.TIME_STEP: step,
        }
        yield self._call(code, "forward", slots, (weight, gates, w.bh))

    def _start(self, xp: Any, calls: list[Run], number: int, n: int, first: Any, cells: Any) -> Any:
        """The cell states before a segment."""
        if not self.lstm:
            return None
        source = cells[number, n - 1] if n else first[number]
        if source.dtype == float32:
            return source
        calls.append(partial(xp.copyto, self.have["start"], source, casting="unsafe"))
        return self.have["start"]

    def _steps(
        self, code: Any, d: int, number: int, begin: int, end: int, results: Any, known: Any, start: Any,
        head: Any, made: Any, work: Any,
    ) -> Run:  # fmt: skip
        """The steps of a segment, the last first: gradients of the gates' sums into `made`."""
        s, have = self.s, self.have
        k = end - begin
        step, first = (1, 0) if d == 0 else (-1, k - 1)
        size, row = self.dtype.itemsize, s.D * s.P
        slots = {
            recurrent.PACKED: address_of(have["packed"]),
            recurrent.GATES: address_of(known) + first * s.B * self.columns * 4,
            recurrent.OUT: address_of(results[begin + first, :, d * s.P :]),
            recurrent.LENGTHS: address_of(have["lengths"]) if self.form.ends else 0,
            recurrent.CELLS: address_of(have["cells"]) if self.lstm else 0,
            recurrent.START: address_of(start),
            recurrent.D_GATES: address_of(made) + first * s.B * self.columns * 4,
            recurrent.DH: address_of(have["dh"][number]),
            recurrent.DC: address_of(have["dc"][number]) if self.lstm else 0,
            recurrent.BEFORE: address_of(have["before"][first]) if self._needs_befores else 0,
            recurrent.D_BIAS: address_of(have["sums"][number]),
            recurrent.STEPS: k,
            recurrent.GATES_STEP: step * s.B * self.columns * 4,
            recurrent.OUT_STEP: step * s.B * row * size,
            recurrent.OUT_ROW: row * size,
            recurrent.TIME: begin + first,
            recurrent.TIME_STEP: step,
            recurrent.D_STEP: step * s.B * self.columns * 4,
            recurrent.CELLS_STEP: s.B * s.H * 4,
            recurrent.BEFORE_STEP: step * s.B * s.H * 4,
        }
        if head is not None:
            slots |= {
                recurrent.HEAD: address_of(head[first, :, d * s.P :]),
                recurrent.HEAD_STEP: step * s.B * row * head.dtype.itemsize,
                recurrent.HEAD_ROW: row * head.dtype.itemsize,
            }
        return self._call(code, "backward", slots, (work, known, results, start, head, made))

    def _weights(self, dw: Weights, x: Any, rows: int, is_first: bool) -> Iterator[Run]:
        s, have = self.s, self.have
        of_input, of_hidden = self._to_weights(rows, x.shape[1], not is_first)
        yield of_input.bind(have["gates"], x, dw.x, None, have["scratch"])
        for how, column, row in of_hidden:
            d = have["gates"][:, column * s.H :]
            yield how.bind(d, have["before"], dw.h[row * s.H :], None, have["scratch"])

    def _input(
        self, xp: Any, layer: int, d: int, begin: int, w: Weights, below: Any, made: Any, rows: int, rng: Any
    ) -> Iterator[Run]:
        """below = d_gates @ weight, accumulated over directions; then dropout's gradient."""
        s, have = self.s, self.have
        adds = s.D == 2 and d == 0
        target = below.reshape(rows, -1)
        drops = bool(layer and self.drops and rng is not None)
        apart = target.dtype != float32 or (adds and drops)
        into = have["d_x"].reshape(-1)[: target.size].reshape(target.shape) if apart else target
        how = self._to_input(rows, s.width(layer), adds and not apart)
        yield how.bind(made, w.x, into, None, have["scratch"])
        if drops:
            yield self.dropped(into, into, layer, begin, rng)
        if apart and adds:
            yield partial(xp.add, target, into, out=target, casting="unsafe")
        elif apart:
            yield partial(xp.copyto, target, into, casting="unsafe")

    def _biases(self, xp: Any, dw: Weights, sums: Any) -> Iterator[Run]:
        """Sums over all steps for the biases of input and hidden state, which differ in part for a GRU."""
        h, gates = self.s.H, self.gates
        yield partial(xp.copyto, dw.bx, sums[:gates])
        yield partial(xp.copyto, dw.bh, sums[:gates])
        if self.a.mode == "gru":
            yield partial(xp.copyto, dw.bh[2 * h :], sums[gates:])
