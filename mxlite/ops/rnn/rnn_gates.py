"""RNN that keeps its gates: the CPU backend's operator for training, which recomputes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graph.grouped import grouped
from ...graph.ir import Shape
from ...graph.opdef import DType, Shapes, Types
from ..scratch import accumulator
from .rnn import RNN
from .rnn_arrays import RnnGradients, RnnHeads, RnnInputs, RnnKept, RnnResults
from .rnn_layout import Sizes
from .rnn_run import run_forward


class RnnKeepingGates(RNN):
    """Recurrent layers as `RNN`, which also keep the values of all gates for backward.

    gates: (L*D, T, B, 4*H) in float32: LSTM input, forget, candidate, output; GRU reset, update, candidate,
    and the hidden part of the candidate's sum. Other modes have none, as their results suffice.

    This is 4 * H numbers for each step of a sample where RNN keeps about H, and saves backward a third of its
    products. The reference kernel recomputes gates all the same.

    Parameters may be float32 where data is of 16 bits, and so is their gradient then.
    """

    op_name = "_rnn_keeping_gates"
    outputs = (*RNN.outputs, "gates")  # type: ignore[assignment]
    backward_in_place = {"d_data": ("d_out", "data")}

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        return (*super().output_names(a), *(("gates",) if a.mode in ("lstm", "gru") else ()))

    @classmethod
    def backward_in_place_options(cls, a: Any) -> Mapping[str, tuple[str, ...]]:
        """In place for one direction, where a block is read before d_data is written; two read it twice."""
        return {} if a.bidirectional else super().backward_in_place_options(a)

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        ins, outs = RNN.infer_shape(a, *shapes)
        s = Sizes.of(a, ins[0])
        by_name = dict(zip(RNN.output_names(a), outs)) | {"gates": (s.passes, s.T, s.B, 4 * s.H)}
        return ins, tuple(by_name[n] for n in cls.output_names(a))

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data, parameters, *rest = dtypes
        wide = None if data is None else accumulator(data)
        ins, outs = RNN.infer_type(a, data, data if parameters == wide else parameters, *rest)
        if parameters is not None and parameters == wide:
            ins = (ins[0], wide, *ins[2:])
        by_name = dict(zip(RNN.output_names(a), outs)) | {"gates": wide}
        return ins, tuple(by_name[n] for n in cls.output_names(a))

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 2 * cls.flops(a, inputs, outputs)

    @staticmethod
    @grouped
    def forward(
        xp: Any, a: Any, x: RnnInputs, *, made: RnnResults, gates: Any, work: Any, rng: Any, train: bool
    ) -> None:
        run_forward(xp, a, x, made, work, rng if train else None, gates)

    @staticmethod
    @grouped
    def backward(
        xp: Any,
        a: Any,
        heads: RnnHeads,
        x: RnnInputs,
        kept: RnnKept,
        gates: Any,
        *,
        made: RnnGradients,
        work: Any,
        rng: Any,
        train: bool,
    ) -> None:
        RNN.backward.kernel(xp, a, heads, x, kept, made=made, work=work, rng=rng, train=train)
