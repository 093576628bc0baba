"""RNN: products of oneDNN for all steps at once, generated code for the steps."""

from __future__ import annotations

from typing import Any

from ....core.dtype import float32
from ....graph.opdef import DType
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_gates import RnnKeepingGates
from ....ops.rnn.rnn_wide import RnnWide
from ...base import ChosenKernel, connected, Request
from ...fused.rnn_update import RnnGateGradients
from ..compiled import storable, usable
from ..kernel_row import GENERATED, kernel_rows
from ..onednn import Run
from ..recurrent_backward import BackwardLayers
from ..recurrent_layers import ForwardLayers, Missing

_FLOATS = frozenset(("float32", "float16", "bfloat16"))


def fits(a: Any, data: tuple[int, ...], dtype: DType) -> bool:
    """True if there is generated code for an RNN."""
    return (
        usable()
        and dtype.name in _FLOATS & storable()
        and a.projection_size is None
        and a.lstm_state_clip_min is None
        and 0 not in data
    )


def _forward(r: Request) -> ChosenKernel | None:
    a = r.attrs
    if not fits(a, r.inputs[0], r.dtype):
        return None
    keeps = r.op is RnnKeepingGates and a.mode in ("lstm", "gru") and r.is_used("gates")
    try:
        made = ForwardLayers(a, r.inputs[0], r.dtypes, r.train, keeps)
    except Missing:
        return None

    def connect(
        xp: Any, a: Any, data: Any, parameters: Any, state: Any, state_cell: Any = None,
        sequence_length: Any = None, *, out: Any, state_output: Any, statecell_output: Any, layers: Any,
        cells: Any, work: Any, rng: Any, train: bool, gates: Any = None,
    ) -> Run:  # fmt: skip
        return made.connect(
            xp, data, parameters, (state, state_cell), sequence_length, out, (state_output, statecell_output),
            layers, cells, gates, work, rng if train else None,
        )  # fmt: skip

    # The code writes all outputs of the node: a recomputation for some of them writes the rest as well.
    kept = ("out", "layers", "cells", "gates")
    name = f"compiled {a.mode}, onednn"
    return connected(connect, made.work_bytes(), name, like=r.op.forward, always=kept)


def _backward(r: Request) -> ChosenKernel | None:
    a = r.attrs
    if not fits(a, r.inputs[0], r.dtype):
        return None
    try:
        made = BackwardLayers(a, r.inputs[0], r.dtypes, r.train, r.op is RnnKeepingGates.grad_op)
    except Missing:
        return None

    def connect(
        xp: Any, a: Any, d_out: Any, d_state_output: Any, d_statecell_output: Any, data: Any, parameters: Any,
        state: Any, state_cell: Any, sequence_length: Any, out: Any, layers: Any, cells: Any,
        gates: Any = None, *, d_data: Any, d_parameters: Any, d_state: Any, d_state_cell: Any, work: Any,
        rng: Any, train: bool,
    ) -> Run:  # fmt: skip
        return made.connect(
            xp, data, parameters, (state, state_cell), sequence_length, out, layers, cells, gates,
            (d_out, d_state_output, d_statecell_output), (d_data, d_parameters, d_state, d_state_cell),
            work, rng if train else None,
        )  # fmt: skip

    return connected(connect, made.work_bytes(), f"compiled {a.mode}, onednn", like=r.op.forward)


def _gate_gradients(r: Request) -> ChosenKernel | None:
    a = r.attrs
    if not fits(a.rnn, a.data, r.dtype):
        return None
    try:
        made = BackwardLayers(a.rnn, a.data, (r.dtype, float32), r.train, kept=True, leaves=True)
    except Missing:
        return None

    def connect(
        xp: Any, a: Any, *args: Any,
        d_data: Any, d_state: Any, d_gates: Any, d_biases: Any, work: Any, d_state_cell: Any = None,
    ) -> Run:  # fmt: skip
        given = RnnGateGradients.named(a, args)
        return made.connect(
            xp, None, given["parameters"], (given["state"], given.get("state_cell")), None,
            given["out"], given.get("layers"), given.get("cells"), given["gates"],
            tuple(given.get(n) for n in ("d_out", "d_state_output", "d_statecell_output")),
            (d_data, None, d_state, d_state_cell), work, None, d_gates, d_biases,
        )  # fmt: skip

    return connected(connect, made.work_bytes(), f"compiled {a.rnn.mode}, onednn", like=r.op.forward)


ROWS = kernel_rows(
    GENERATED,
    {
        RnnGateGradients: _gate_gradients,
        RNN: _forward,
        RNN.grad_op: _backward,
        RnnKeepingGates: _forward,
        RnnKeepingGates.grad_op: _backward,
        RnnWide: _forward,
        RnnWide.grad_op: _backward,
    },
)
