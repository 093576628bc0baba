"""Translation by recurrent networks: D. Bahdanau et al. 2015, "Neural machine translation by jointly learning
to align and translate"; with gated recurrent units and the attention of M. Luong et al. 2015."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn, Tensor

import mxlite as mx
from mxlite.symbol import Symbol

from ..attention import dense
from ..network import Input, Network


def embedded(tokens: str, vocabulary: int, width: int, name: str) -> Symbol:
    """(N, T) tokens -> (T, N, width)."""
    x = mx.sym.SwapAxis(mx.sym.Variable(tokens), dim1=0, dim2=1)
    return mx.sym.Embedding(x, input_dim=vocabulary, output_dim=width, name=name)


def symbol(source: int, target: int, layers: int, hidden: int, vocabulary: int) -> Symbol:
    options = dict(state_size=hidden, num_layers=layers, mode="gru", state_outputs=True)
    x = embedded("source", vocabulary, hidden, "source_embed")
    memory, state = mx.sym.RNN(x, state=mx.sym.Variable("state"), name="encoder", **options)
    x = embedded("data", vocabulary, hidden, "target_embed")
    x, _ = mx.sym.RNN(x, state=state, name="decoder", **options)
    x, memory = (mx.sym.SwapAxis(a, dim1=0, dim2=1) for a in (x, memory))
    weights = mx.sym.softmax(mx.sym.batch_dot(dense(x, hidden, "align"), memory, transpose_b=True))
    context = mx.sym.batch_dot(weights, memory)
    x = mx.sym.tanh(dense(mx.sym.Concat(x, context, dim=2), hidden, "joined"))
    return dense(mx.sym.Reshape(x, shape=(-3, 0)), vocabulary, "score")


class Seq2Seq(nn.Module):
    def __init__(self, source: int, target: int, layers: int, hidden: int, vocabulary: int) -> None:
        super().__init__()
        self.source_embed, self.target_embed = (nn.Embedding(vocabulary, hidden) for _ in range(2))
        self.encoder, self.decoder = (nn.GRU(hidden, hidden, layers) for _ in range(2))
        self.align, self.joined = nn.Linear(hidden, hidden), nn.Linear(2 * hidden, hidden)
        self.score = nn.Linear(hidden, vocabulary)

    def forward(self, source: Tensor, state: Tensor, x: Tensor) -> Tensor:
        memory, state = self.encoder(self.source_embed(source.t()), state)
        x, _ = self.decoder(self.target_embed(x.t()), state)
        x, memory = x.transpose(0, 1), memory.transpose(0, 1)
        weights = torch.softmax(torch.bmm(self.align(x), memory.transpose(1, 2)), -1)
        x = torch.tanh(self.joined(torch.cat([x, torch.bmm(weights, memory)], 2)))
        return self.score(x.flatten(0, 1))


def inputs(
    batch: int, source: int, target: int, layers: int, hidden: int, vocabulary: int
) -> dict[str, Input]:
    return {
        "source": Input((batch, source), vocabulary),
        "state": Input.fixed(np.zeros((layers, batch, hidden))),
        "data": Input((batch, target), vocabulary),
    }


NETWORK = Network(
    "GRU seq2seq",
    symbol,
    Seq2Seq,
    inputs,
    batch=16,
    sizes=dict(source=24, target=24, layers=2, hidden=256, vocabulary=8000),
    quick=dict(source=7, target=5, layers=2, hidden=16, vocabulary=50),
    rate=1e-2,
)
