"""`mx.models.transformer_decoder` without dropout for PyTorch; parameter names as in networks/twins.py."""

from __future__ import annotations

import torch
from torch import nn, Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Position(nn.Module):
    """A learned vector for each position."""

    def __init__(self, length: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, length, width))


class Layer(nn.Module):
    """Causal attention and a two-layer perceptron per position, with norms first (pre-norm)."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.self_norm, self.ffn_norm = nn.LayerNorm(width, eps=1e-5), nn.LayerNorm(width, eps=1e-5)
        for part in ("query", "key", "value", "out"):
            self.add_module(f"self_{part}", nn.Linear(width, width))
        self.ffn_in, self.ffn_out = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.self_norm(x)
        parts = [getattr(self, f"self_{p}")(normal) for p in ("query", "key", "value")]
        heads = [p.unflatten(2, (self.heads, -1)).transpose(1, 2) for p in parts]
        out = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.self_out(out)
        return x + self.ffn_out(F.gelu(self.ffn_in(self.ffn_norm(x)), approximate="tanh"))


class Decoder(nn.Module):
    """(N, L) tokens -> (N * L, vocabulary); the embedding table is also the output projection."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        hidden: int,
        vocabulary: int,
        length: int,
        checkpointed: bool = False,
    ) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.embed, self.position = nn.Embedding(vocabulary, width), Position(length, width)
        self.layers = [Layer(width, heads, hidden) for _ in range(layers)]
        for i, layer in enumerate(self.layers):
            self.add_module(f"layer{i}", layer)
        self.norm = nn.LayerNorm(width, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x) + self.position.weight
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return F.linear(self.norm(x), self.embed.weight).flatten(0, 1)
