"""RNN forward: the calls of one pass over all layers.

Work for all steps of a segment at once is a product of oneDNN, the steps themselves are generated code
(`compiled/rnn/recurrent.py`). Layers, directions and segments come in the order of the reference kernel, and
the arrays kept for backward are the same; see `ops/rnn/rnn_run.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.dtype import float32
from ...graph.opdef import DType
from ...ops.rnn.rnn_arrays import RnnInputs, RnnResults
from ...ops.rnn.rnn_layout import Sizes, split
from ...ops.rnn.rnn_run import between, drop_start, layer_arrays, Pieces
from ...ops.scratch import carve, scratch_bytes
from .compiled import call, threads_for
from .compiled.random.dropout import dropped, whole_run
from .compiled.rnn import recurrent, recurrent_code
from .compiled.rnn.recurrent import RecurrentForm
from .onednn import in_turn
from .onednn.primitive import address_of, Run
from .onednn.product import Layout, Product, product

_int64, _float64, _byte = (np.dtype(n) for n in ("int64", "float64", "uint8"))


class Missing(Exception):
    """Signal that there is no product for these sizes."""


class Layers:
    """Base of both passes: sizes of a call, parameters of its code, and its products."""

    def __init__(self, a: Any, data: tuple[int, ...], dtypes: Sequence[DType], train: bool) -> None:
        """`dtypes`: those of data and parameters."""
        self.a, self.dtype = a, dtypes[0]
        self.s = s = Sizes.of(a, data)
        self.narrow = self.dtype != float32
        self.widens = dtypes[1] != float32  # parameters
        self.drops = bool(a.p and s.L > 1 and train)
        self.lstm = a.mode == "lstm"
        self.form = RecurrentForm(a.mode, s.H, s.B, self.dtype.name, ends=a.use_sequence_length)
        self.columns = self.form.columns * s.H
        self.gates = s.G * s.H
        self.scratch = 0

    @property
    def threads(self) -> int:
        """Threads of the steps: each multiplies the hidden state of all samples with all weights."""
        return threads_for(4 * self.gates * self.s.H)

    def spans(self, layered: bool) -> Iterator[tuple[int, int, int]]:
        """(layer, direction, segment) in order; `layered`: one layer to its end, then the next."""
        s = self.s
        if not layered:
            return s.order()
        return ((layer, d, n) for layer in range(s.L) for d in range(s.D) for n in range(s.stretches))

    def lengths_of_stretches(self) -> set[int]:
        s = self.s
        return {s.K, s.T - (s.stretches - 1) * s.K}

    def multiply(self, x: Layout, y: Layout, out: Layout, bias: bool = False, adds: bool = False) -> Product:
        """A product, whose scratch is added to the total. Raises Missing."""
        made = product(x, y, out, bias, 1.0, adds, True)
        if made is None:
            raise Missing
        self.scratch = max(self.scratch, made.scratch)
        return made

    def inputs(self, rows: int, width: int) -> Product:
        """pre (rows, columns) = x (rows, width) @ weight.T + bias, for the gates that the weights have."""
        pre = Layout((rows, self.gates), (self.columns, 1))
        return self.multiply(
            Layout.dense(rows, width), Layout.dense(self.gates, width).turned, pre, bias=True
        )

    def common_pieces(self) -> Pieces:
        """Scratch of both forward and backward."""
        s = self.s
        copied = s.widest if self.narrow else s.D * s.P if self.drops else 0
        ends = self.form.ends
        return {
            "weights": ((s.parameters if self.widens else 0,), float32),
            "bias": ((self.gates,), float32),
            "x": ((s.K * s.B, copied), float32),
            "lengths": ((s.B if ends else 0,), _int64),
            "ceilings": ((s.B if ends else 0,), _float64),
            "scratch": ((self.scratch,), _byte),
        }

    def input_of(
        self, xp: Any, layer: int, begin: int, source: Any, rng: Any, have: Mapping[str, Any]
    ) -> tuple[Any, list[Run]]:
        """A layer's input in a segment that starts at step `begin`, (k*B, width) in float32, and the calls
        that compute it. source: the steps of the segment, in the type of the data.
        """
        rows = source.reshape(-1, source.shape[-1])
        drops = layer and self.drops and rng is not None
        if not self.narrow and not drops:
            return rows, []
        x = have["x"].reshape(-1)[: rows.size].reshape(rows.shape)
        if drops:
            return x, [self.dropped(rows, x, layer, begin, rng)]
        return x, [partial(xp.copyto, x, rows, casting="unsafe")]

    def packing(self, code: Any, w: Any, have: Mapping[str, Any]) -> tuple[Any, list[Run]]:
        """The hidden state's weights as the steps forward read them, and the calls that pack them so."""
        if not self.form.packs:
            return w.h, []
        slots = {recurrent.WEIGHT: address_of(w.h), recurrent.PACKED: address_of(have["packed"])}
        return have["packed"], [self._call(code, "pack", slots, (w.h, have["packed"]))]

    def _call(self, code: Any, name: str, slots: dict[int, int], keep: Any, *more: dict[int, int]) -> Run:
        """A call of a function with these slots, and those of `more` behind them."""
        args = [each.get(i, 0) for each in (slots, *more) for i in range(recurrent.COUNT)]
        return call(code, name, args, self.threads, keep=keep)

    def dropped(self, x: Any, into: Any, layer: int, begin: int, rng: Any) -> Run:
        """The call that drops elements of the input of `layer` from step `begin` on, or of its gradient."""
        return dropped(x, into, whole_run(x.size), rng, self.a.p, drop_start(self.s, layer, begin))


def add_bias(xp: Any, w: Any, hidden: int, gates: int, into: Any) -> Iterator[Run]:
    """into = bias of the gates' sums: all of the input's bias, some of the hidden
    state's.
    """
    yield partial(xp.copyto, into, w.bx)
    n = gates * hidden
    yield partial(xp.add, into[:n], w.bh[:n], out=into[:n])


def lengths(xp: Any, given: Any, have: Mapping[str, Any]) -> Iterator[Run]:
    """Sequence lengths as integers: a step takes place if it comes before the length."""
    if given is None:
        return
    if given.dtype.kind == "f":
        yield partial(xp.copyto, have["ceilings"], given, casting="unsafe")
        yield partial(xp.ceil, have["ceilings"], out=have["ceilings"])
        given = have["ceilings"]
    yield partial(xp.copyto, have["lengths"], given, casting="unsafe")


GATES_WITH_HIDDEN_BIAS = {"lstm": 4, "gru": 2}


class ForwardLayers(Layers):
    """The forward call. keeps: True if it has an output for gates."""

    def __init__(
        self, a: Any, data: tuple[int, ...], dtypes: Sequence[DType], train: bool, keeps: bool
    ) -> None:
        super().__init__(a, data, dtypes, train)
        s = self.s
        self.form = self.form._replace(keeps=keeps)
        self.pairs = s.D == 2 and s.stretches == 1 and not self.form.packs  # both directions take their steps
        for k in self.lengths_of_stretches():
            for layer in range(s.L):
                self.inputs(k * s.B, s.width(layer))

    def pieces(self) -> Pieces:
        s = self.s
        return self.common_pieces() | {
            "packed": ((recurrent.packed_numbers(self.form, False),), float32),
            "pre": ((1 + self.pairs, 0 if self.form.keeps else s.K * s.B, self.columns), float32),
            "h": ((s.passes, 2, s.B, s.H), float32),
            "c": ((s.passes if self.lstm else 0, s.B, s.H), float32),
            "between": (between(s), self.dtype),
        }

    def work_bytes(self) -> int:
        return scratch_bytes(self.pieces().values())

    def connect(self, xp: Any, given: RnnInputs, filled: RnnResults, gates: Any, work: Any, rng: Any) -> Run:
        """The calls of the whole pass, see `run_forward`; `gates`: (passes, T, B, columns), or None."""
        data, parameters, *states, ends = given
        out, *last, layers, cells = filled
        s, a, form = self.s, self.a, self.form
        pieces = self.pieces()
        have = dict(zip(pieces, carve(work, pieces.values())))
        code = recurrent_code.code(form, False)
        calls: list[Run] = list(lengths(xp, ends, have))
        flat = parameters
        if self.widens:
            flat = have["weights"]
            calls.append(partial(xp.copyto, flat, parameters, casting="unsafe"))
        weights = split(flat, s)
        h, c = have["h"], have["c"]
        calls += [
            partial(xp.copyto, target, source, casting="unsafe")
            for source, target in ((states[0], h[:, 0]), (states[1], c))
            if source is not None
        ]
        results = layer_arrays(s, out, layers, have["between"])
        packed, weight = -1, None
        before: dict[int, int] = {}  # slots of the other direction
        now = [0] * s.passes  # which of the two hidden states is the current one
        for layer, d, n in self.spans(layers is not None or s.L == 1):
            number = layer * s.D + d
            w = weights[number]
            begin, end = s.span(d, n)
            k = end - begin
            if packed != number:
                calls += add_bias(xp, w, s.H, GATES_WITH_HIDDEN_BIAS.get(a.mode, 1), have["bias"])
                weight, packs = self.packing(code, w, have)
                calls += packs
                packed = number
            if n and cells is not None:
                calls.append(partial(xp.copyto, cells[number, n - 1], c[number]))
            source = results(layer - 1, begin, end) if layer else data[begin:end]
            x, put = self.input_of(xp, layer, begin, source, rng, have)
            calls += put
            pre = have["pre"][d if self.pairs else 0]
            if gates is not None:
                pre = gates[number, begin:end].reshape(k * s.B, self.columns)
            made = self.inputs(k * s.B, s.width(layer))
            calls.append(made.bind(x, w.x, pre, have["bias"], have["scratch"]))
            target = results(layer, begin, end)
            step = 1 if d == 0 else -1
            first = 0 if d == 0 else k - 1
            size = self.dtype.itemsize
            slots = {
                recurrent.PACKED: address_of(weight),
                recurrent.GATES: address_of(pre) + first * s.B * self.columns * 4,
                recurrent.CELL: address_of(c[number]) if self.lstm else 0,
                recurrent.OUT: 0 if target is None else address_of(target[first, :, d * s.P :]),
                recurrent.LENGTHS: address_of(have["lengths"]) if form.ends else 0,
                recurrent.BIAS: address_of(w.bh[2 * s.H :]) if a.mode == "gru" else 0,
                recurrent.STATE: address_of(h[number, now[number]]),
                recurrent.OTHER: address_of(h[number, 1 - now[number]]),
                recurrent.STEPS: k,
                recurrent.GATES_STEP: step * s.B * self.columns * 4,
                recurrent.OUT_STEP: step * s.B * s.D * s.P * size,
                recurrent.OUT_ROW: s.D * s.P * size,
                recurrent.TIME: begin + first,
                recurrent.TIME_STEP: step,
            }
            keep = (work, flat, target, gates)
            if not self.pairs:
                calls.append(self._call(code, "forward", slots, keep))
            elif d == 0:
                before = slots
            else:
                calls.append(self._call(code, "both", before, keep, slots))
            now[number] = (now[number] + k) % 2
        for number in range(s.passes):
            if last[0] is not None:
                calls.append(partial(xp.copyto, last[0][number], h[number, now[number]], casting="unsafe"))
        if last[1] is not None:
            calls.append(partial(xp.copyto, last[1], c, casting="unsafe"))
        return in_turn(calls)
