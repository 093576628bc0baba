"""Tags for the words of sentences by a bidirectional network: Z. Huang et al. 2015, "Bidirectional LSTM-CRF
models for sequence tagging", without the conditional random field."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn, Tensor

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import dense
from ..network import Input, Network


def symbol(length: int, layers: int, width: int, hidden: int, vocabulary: int, tags: int) -> Symbol:
    x = mx.sym.SwapAxis(mx.sym.Variable("data"), dim1=0, dim2=1)
    x = mx.sym.Embedding(x, input_dim=vocabulary, output_dim=width, name="embed")
    x = mx.sym.RNN(
        x, state=mx.sym.Variable("state"), state_cell=mx.sym.Variable("cell"), state_size=hidden,
        num_layers=layers, mode="lstm", bidirectional=True, name="lstm",
    )  # fmt: skip
    return dense(mx.sym.Reshape(x, shape=(-3, 0)), tags, "score")


class Tagger(nn.Module):
    def __init__(self, length: int, layers: int, width: int, hidden: int, vocabulary: int, tags: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, layers, bidirectional=True)
        self.score = nn.Linear(2 * hidden, tags)

    def forward(self, x: Tensor, state: Tensor, cell: Tensor) -> Tensor:
        return self.score(self.lstm(self.embed(x.t()), (state, cell))[0].flatten(0, 1))


def inputs(batch: int, length: int, layers: int, hidden: int, vocabulary: int, **_: Any) -> dict[str, Input]:
    zero = np.zeros((2 * layers, batch, hidden))
    return {
        "data": Input((batch, length), vocabulary),
        "state": Input.fixed(zero),
        "cell": Input.fixed(zero),
    }


NETWORK = Network(
    "BiLSTM tagger",
    symbol,
    Tagger,
    inputs,
    batch=16,
    sizes=dict(length=40, layers=2, width=200, hidden=256, vocabulary=8000, tags=40),
    quick=dict(length=9, layers=2, width=12, hidden=16, vocabulary=50, tags=5),
    rate=1e-2,
)
