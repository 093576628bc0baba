"""RNN: products of oneDNN for all steps at once, generated code for the steps."""

from __future__ import annotations

from typing import Any

from ....ops.rnn import RNN
from ...base import ChosenKernel, connected, Request
from ..compiled import storable, usable
from ..onednn.primitive import Run
from ..recurrent_backward import BackwardLayers
from ..recurrent_layers import ForwardLayers, Layers, Missing


def _fits(r: Request) -> bool:
    a = r.attrs
    if not usable() or r.dtype.name not in storable() or r.dtype.kind == "b" or r.dtype.name == "uint8":
        return False
    if a.projection_size is not None or a.lstm_state_clip_min is not None or 0 in r.inputs[0]:
        return False
    return True


def _name(layers: Layers) -> str:
    return f"compiled {layers.a.mode}, onednn"


def _forward(r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None
    try:
        layers = ForwardLayers(r.attrs, r.inputs[0], r.dtype, r.train, False)
    except Missing:
        return None

    def connect(
        xp: Any, a: Any, data: Any, parameters: Any, state: Any, state_cell: Any = None,
        sequence_length: Any = None, *, out: Any, state_output: Any, statecell_output: Any, layers: Any,
        cells: Any, work: Any, rng: Any, train: bool,
    ) -> Run:  # fmt: skip
        return made.connect(
            xp, data, parameters, (state, state_cell), sequence_length, out, (state_output, statecell_output),
            layers, cells, None, work, rng if train else None,
        )  # fmt: skip

    made = layers
    return connected(connect, made.work_bytes(), _name(made))


def _backward(r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None
    try:
        made = BackwardLayers(r.attrs, r.inputs[0], r.dtype, r.train, False)
    except Missing:
        return None

    def connect(
        xp: Any, a: Any, d_out: Any, d_state_output: Any, d_statecell_output: Any, data: Any, parameters: Any,
        state: Any, state_cell: Any, sequence_length: Any, out: Any, layers: Any, cells: Any, *, d_data: Any,
        d_parameters: Any, d_state: Any, d_state_cell: Any, work: Any, rng: Any, train: bool,
    ) -> Run:  # fmt: skip
        return made.connect(
            xp, data, parameters, (state, state_cell), sequence_length, out, layers, cells, None,
            (d_out, d_state_output, d_statecell_output), (d_data, d_parameters, d_state, d_state_cell),
            work, rng if train else None,
        )  # fmt: skip

    return connected(connect, made.work_bytes(), _name(made))


ROWS = {RNN: [_forward], RNN.grad_op: [_backward]}
