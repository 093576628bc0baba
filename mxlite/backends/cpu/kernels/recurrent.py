"""RNN: products of oneDNN for all steps at once, generated code for the steps."""

from __future__ import annotations

from typing import Any

from ....core.dtype import float32
from ....graph.grouped import grouped
from ....graph.opdef import DType
from ....ops.rnn.rnn import RNN
from ....ops.rnn.rnn_arrays import RnnGradients, RnnHeads, RnnInputs, RnnKept, RnnResults
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
        layers = ForwardLayers(a, r.inputs[0], r.dtypes, r.train, keeps)
    except Missing:
        return None

    @grouped
    def connect(
        xp: Any,
        a: Any,
        x: RnnInputs,
        *,
        made: RnnResults,
        work: Any,
        rng: Any,
        train: bool,
        gates: Any = None,
    ) -> Run:
        return layers.connect(xp, x, made, gates, work, rng if train else None)

    # The code writes all outputs of the node: a recomputation for some of them writes the rest as well.
    kept = ("out", "layers", "cells", "gates")
    name = f"compiled {a.mode}, onednn"
    return connected(connect, layers.work_bytes(), name, like=r.op.forward, always=kept)


def _backward(r: Request) -> ChosenKernel | None:
    a = r.attrs
    if not fits(a, r.inputs[0], r.dtype):
        return None
    try:
        layers = BackwardLayers(a, r.inputs[0], r.dtypes, r.train, r.op is RnnKeepingGates.grad_op)
    except Missing:
        return None

    @grouped
    def connect(
        xp: Any,
        a: Any,
        heads: RnnHeads,
        x: RnnInputs,
        kept: RnnKept,
        gates: Any = None,
        *,
        made: RnnGradients,
        work: Any,
        rng: Any,
        train: bool,
    ) -> Run:
        return layers.connect(xp, x, kept, gates, heads, made, work, rng if train else None)

    return connected(connect, layers.work_bytes(), f"compiled {a.mode}, onednn", like=r.op.forward)


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
            xp, RnnInputs(None, given["parameters"], given["state"], given.get("state_cell")),
            RnnKept(given["out"], given.get("layers"), given.get("cells")), given["gates"],
            RnnHeads(*(given.get(n) for n in RnnHeads._fields)),
            RnnGradients(d_data, None, d_state, d_state_cell), work, None, d_gates, d_biases,
        )  # fmt: skip

    return connected(connect, made.work_bytes(), f"compiled {a.rnn.mode}, onednn", like=r.op.forward)


SERVES = ("backends.fused.rnn_update", "ops.rnn.rnn", "ops.rnn.rnn_gates", "ops.rnn.rnn_wide")
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
