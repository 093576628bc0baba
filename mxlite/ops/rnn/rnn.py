"""Recurrent layers over a whole sequence: RNN, and the joining of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.grouped import grouped
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from ..scratch import accumulator, scratch_bytes
from ..shape.join import Concat
from .rnn_arrays import RnnGradients, RnnHeads, RnnInputs, RnnKept, RnnResults
from .rnn_gradient import backward_pieces, run_backward
from .rnn_layout import Sizes
from .rnn_run import forward_pieces, run_forward


class RNN(Op):
    """Stacked recurrent layers over sequences, ``h[t] = cell(x[t], h[t-1])``: tanh or relu, LSTM, GRU.

    data: (T, B, I);  parameters: all weights and biases in one vector;  state: (L*D, B, P);  state_cell
    (lstm): (L*D, B, H);  sequence_length (use_sequence_length): (B,)  ->  out: (T, B, D*P), and with
    `state_outputs` the last states, shaped as the first. T steps, B samples, L = `num_layers`, D = 2 if
    `bidirectional` else 1, H = `state_size`, P = `projection_size`, H if it is None. Layers lie on one
    another; of two directions the results lie side by side. Order of the weights: see `rnn_layout.py`; of the
    gates: LSTM i, f, c, o; GRU r, z, n,

        n = tanh(x Wn + bn + r * (h Un + cn)),   h = (1 - z) * n + z * h

    `p` drops elements between layers in training. With `use_sequence_length`, sample b takes
    `sequence_length[b]` steps: the rest of `out` is 0, the last state is the one after its last step, and
    the backward direction begins there. `lstm_state_clip_min` and `_max` bound the cell state; with
    `lstm_state_clip_nan` a nan becomes the lower bound. (MXNet 1.9.1 ignores the last two paragraphs'
    parameters but p on the CPU; this is what it does on a GPU.) LSTM with a projection: H. Sak et al., 2014.

    Kept for backward, besides inputs and `out`: the results of the layers below the last, (L-1) * T * B * D*P
    elements, and, for LSTM, the cell state every K = max(sqrt(T), 256 / B) steps. Gates and the other cell
    states are recomputed from these, a block of K steps at a time, which costs as much as forward but with
    larger matrix products; masks are redrawn. In 16-bit types, everything is computed in float32 and
    `out` rounded.
    """

    inputs = RnnInputs._fields
    outputs = RnnResults._fields
    inferred = ("parameters", "state", "state_cell", "sequence_length")
    initial: ClassVar[Mapping[str, str]] = {"state": '["zero", {}]', "state_cell": '["zero", {}]'}
    random = True
    accepts = "float"

    @record
    class Attrs:
        state_size: int
        num_layers: int
        mode: Literal["rnn_relu", "rnn_tanh", "lstm", "gru"]
        bidirectional: bool = False
        p: float = 0.0
        state_outputs: bool = False
        projection_size: int | None = None
        lstm_state_clip_min: float | None = None
        lstm_state_clip_max: float | None = None
        lstm_state_clip_nan: bool = False
        use_sequence_length: bool = False

        def __post_init__(self) -> None:
            for name in ("state_size", "num_layers", "projection_size"):
                value = getattr(self, name)
                if value is not None and value < 1:
                    raise OpAttributeError(f"{name} must be at least 1, got {value}.")
            if not 0 <= self.p <= 1:
                raise OpAttributeError(f"p must be in [0, 1], got {self.p}.")
            if self.mode != "lstm" and self.projection_size is not None:
                raise OpAttributeError(f"projection_size is for mode 'lstm' only, mode is {self.mode!r}.")
            low, high = self.lstm_state_clip_min, self.lstm_state_clip_max
            if (low is None) != (high is None):
                raise OpAttributeError(
                    f"lstm_state_clip_min and lstm_state_clip_max go together, got {low} and {high}."
                )
            if low is not None and high is not None and not low <= high:
                raise OpAttributeError(
                    f"lstm_state_clip_min must be at most lstm_state_clip_max, {high}, got {low}."
                )

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        cell = ("state_cell",) if a.mode == "lstm" else ()
        return (*cls.inputs[:3], *cell, *(cls.inputs[4:] if a.use_sequence_length else ()))

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        lstm = a.mode == "lstm"
        used = (True, a.state_outputs, a.state_outputs and lstm, a.num_layers > 1, lstm)
        return tuple(n for n, use in zip(cls.outputs, used) if use)

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 1 + a.state_outputs * (1 + (a.mode == "lstm"))

    @classmethod
    def draws(cls, a: Any, train: bool) -> bool:
        return train and a.p > 0 and a.num_layers > 1

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        if len(data) != 3:
            raise ShapeError(f"data must be (steps, samples, inputs), got {data}.")
        s = Sizes.of(a, data)
        hidden, cell = (s.passes, s.B, s.P), (s.passes, s.B, s.H)
        ins = {
            "data": data,
            "parameters": (s.parameters,),
            "state": hidden,
            "state_cell": cell,
            "sequence_length": (s.B,),
        }
        outs = {
            "out": (s.T, s.B, s.D * s.P),
            "state_output": hidden,
            "statecell_output": cell,
            "layers": (s.L - 1, s.T, s.B, s.D * s.P),
            "cells": (s.passes, max(0, s.stretches - 1), s.B, s.H),
        }
        return tuple(ins[n] for n in cls.input_names(a)), tuple(outs[n] for n in cls.output_names(a))

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        """Types: one for all but the lengths, which may be of any; cell states are kept as computed."""
        names = cls.input_names(a)
        count = len(names) - a.use_sequence_length
        (dtype, *_), _ = super().infer_type(a, *dtypes[:count])
        require_kind(cls, dtype)
        lengths = tuple(d or dtype for d in dtypes[count:])
        kept = None if dtype is None else accumulator(dtype)
        return (dtype,) * count + lengths, tuple(kept if n == "cells" else dtype for n in cls.output_names(a))

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        s = Sizes.of(a, inputs[0])
        each = [s.G * s.H * (s.width(layer) + s.P + 4) + s.projected * s.P * s.H for layer in range(s.L)]
        return 2 * s.T * s.B * s.D * sum(each)

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return (2 if a.mode in ("rnn_relu", "rnn_tanh") else 3) * cls.flops(a, inputs, outputs)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(forward_pieces(a, Sizes.of(a, inputs[0]), dtype).values())

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(backward_pieces(a, Sizes.of(a, inputs[0]), dtype).values())

    @staticmethod
    @grouped
    def forward(xp: Any, a: Any, x: RnnInputs, *, made: RnnResults, work: Any, rng: Any, train: bool) -> None:
        run_forward(xp, a, x, made, work, rng if train else None)

    @staticmethod
    @grouped
    def backward(
        xp: Any,
        a: Any,
        heads: RnnHeads,
        x: RnnInputs,
        kept: RnnKept,
        *,
        made: RnnGradients,
        work: Any,
        rng: Any,
        train: bool,
    ) -> None:
        run_backward(xp, a, Sizes.of(a, x.data.shape), x, kept, heads, made, work, rng if train else None)


class _rnn_param_concat(Concat):
    """The vectors of an RNN's weights and biases one after another, as its `parameters`.

    args: `num_args` arrays (...), equal but for axis `dim`  ->  out: (...), `dim` as long as all of them.
    """

    aliases: ClassVar[tuple[str, ...]] = ()  # type: ignore[assignment]
