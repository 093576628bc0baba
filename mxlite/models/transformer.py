"""Transformers: an encoder, a decoder, and both together (A. Vaswani et al. 2017, "Attention is all you
need")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .. import symbol as sym
from ..symbol import Symbol
from .layers import loss_of, require


@dataclass(frozen=True)
class _Body:
    """The sizes and options that all layers of one network share."""

    layers: int
    width: int
    heads: int
    hidden: int
    activation: Literal["relu", "gelu", "gelu_tanh"]
    dropout: float
    pre_norm: bool
    eps: float

    def __post_init__(self) -> None:
        require(self.layers >= 1, f"layers must be at least 1, got {self.layers!r}.")
        require(
            self.heads >= 1 and self.width % self.heads == 0,
            f"width must be a multiple of heads, got {self.width!r} and {self.heads!r}.",
        )

    def dense(self, data: Symbol, width: int, name: str) -> Symbol:
        return sym.FullyConnected(data, num_hidden=width, flatten=False, name=name)

    def norm(self, data: Symbol, name: str) -> Symbol:
        return sym.LayerNorm(data, axis=-1, eps=self.eps, name=name)

    def drop(self, data: Symbol, name: str) -> Symbol:
        return sym.Dropout(data, p=self.dropout, name=name) if self.dropout else data

    def attention(
        self, data: Symbol, memory: Symbol, name: str, *, causal: bool = False, length: Symbol | None = None
    ) -> Symbol:
        """Attention of the positions of `data` to those of `memory`; both (N, L, width)."""
        heads = []
        for part, source in (("query", data), ("key", memory), ("value", memory)):
            x = self.dense(source, self.width, f"{name}_{part}")
            x = sym.Reshape(
                x, shape=(0, 0, self.heads, self.width // self.heads), name=f"{name}_{part}_heads"
            )
            heads.append(sym.transpose(x, axes=(0, 2, 1, 3), name=f"{name}_{part}_first"))
        out = sym.scaled_dot_product_attention(
            *heads,
            **({} if length is None else {"length": length}),
            causal=causal,
            p=self.dropout,
            use_length=length is not None,
            name=name,
        )
        out = sym.transpose(out, axes=(0, 2, 1, 3), name=f"{name}_positions")
        return self.dense(
            sym.Reshape(out, shape=(0, 0, -3), name=f"{name}_joined"), self.width, f"{name}_out"
        )

    def feed_forward(self, data: Symbol, name: str) -> Symbol:
        data = self.dense(data, self.hidden, f"{name}_in")
        if self.activation == "relu":
            data = sym.Activation(data, act_type="relu", name=f"{name}_relu")
        else:
            tanh = "tanh" if self.activation == "gelu_tanh" else "none"
            data = sym.gelu(data, approximate=tanh, name=f"{name}_gelu")
        return self.dense(data, self.width, f"{name}_out")

    def layer(
        self,
        data: Symbol,
        name: str,
        *,
        causal: bool = False,
        length: Symbol | None = None,
        memory: Symbol | None = None,
        memory_length: Symbol | None = None,
    ) -> Symbol:
        """Attention of `data` to itself, then to `memory` if there is one, then two affine maps of each
        position."""

        def residual(data: Symbol, part: str, run: Callable[[Symbol], Symbol]) -> Symbol:
            out = run(self.norm(data, f"{name}_{part}_norm") if self.pre_norm else data)
            out = sym.elemwise_add(data, self.drop(out, f"{name}_{part}_drop"), name=f"{name}_{part}_sum")
            return out if self.pre_norm else self.norm(out, f"{name}_{part}_norm")

        data = residual(
            data, "self", lambda x: self.attention(x, x, f"{name}_self", causal=causal, length=length)
        )
        if memory is not None:
            data = residual(
                data, "cross", lambda x: self.attention(x, memory, f"{name}_cross", length=memory_length)
            )
        return residual(data, "ffn", lambda x: self.feed_forward(x, f"{name}_ffn"))

    def embed(self, data: Symbol, table: Symbol, vocabulary: int, length: int, name: str) -> Symbol:
        """Token numbers (N, `length`) -> (N, `length`, width), with a learned vector for each position."""
        data = sym.Embedding(data, table, input_dim=vocabulary, output_dim=self.width, name=f"{name}embed")
        place = sym.Variable(f"{name}position_weight", shape=(1, length, self.width))
        return sym.broadcast_add(data, place, name=f"{name}embed_sum")


def transformer_encoder(
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    hidden: int = 3072,
    vocabulary: int = 30522,
    length: int = 512,
    classes: int = 2,
    *,
    segments: int = 2,
    dropout: float = 0.1,
    pre_norm: bool = False,
    padded: bool = True,
) -> Symbol:
    """An encoder with a classifier (J. Devlin et al. 2019, "BERT: pre-training of deep bidirectional
    transformers").

    data, segment: (N, `length`) numbers of tokens and of what they belong to;  length: (N,), how many
    positions count;  softmax_label: (N,)  ->  softmax: (N, `classes`), from the first position.

    No `segment` with segments=0, no `length` unless `padded`.  pre_norm: norms before attention and not
    after sums.
    """
    body = _Body(layers, width, heads, hidden, "gelu", dropout, pre_norm, 1e-12)
    x = body.embed(sym.Variable("data"), sym.Variable("embed_weight"), vocabulary, length, "")
    if segments:
        kind = sym.Embedding(
            sym.Variable("segment"), input_dim=segments, output_dim=width, name="segment_embed"
        )
        x = sym.elemwise_add(x, kind, name="segment_sum")
    x = body.drop(body.norm(x, "embed_norm"), "embed_drop")
    counted = sym.Variable("length") if padded else None
    for i in range(layers):
        x = body.layer(x, f"layer{i}", length=counted)
    if pre_norm:
        x = body.norm(x, "norm")
    first = sym.Reshape(
        sym.slice_axis(x, axis=1, begin=0, end=1, name="first"), shape=(0, -1), name="first_row"
    )
    x = sym.FullyConnected(first, num_hidden=width, name="pooler")
    x = body.drop(sym.Activation(x, act_type="tanh", name="pooler_tanh"), "pooler_drop")
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=classes, name="score"), name="softmax")


def transformer_decoder(
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    hidden: int = 3072,
    vocabulary: int = 50257,
    length: int = 1024,
    *,
    dropout: float = 0.1,
    loss: str = "softmax",
) -> Symbol:
    """A language model (A. Radford et al. 2019, "Language models are unsupervised multitask learners":
    GPT-2).

    data: (N, `length`) token numbers;  softmax_label: (N * `length`,), the tokens that follow  ->
    softmax: (N * `length`, `vocabulary`). The last layer uses the table of embeddings.

    loss: "softmax" gives probabilities; "cross_entropy" only the loss of all tokens, a number (1,) in their
    place, for which the scores never exist as a whole.
    """
    body = _Body(layers, width, heads, hidden, "gelu_tanh", dropout, True, 1e-5)
    table = sym.Variable("embed_weight")
    x = body.drop(body.embed(sym.Variable("data"), table, vocabulary, length, ""), "embed_drop")
    for i in range(layers):
        x = body.layer(x, f"layer{i}", causal=True)
    return _tokens(body.norm(x, "norm"), table, vocabulary, loss)


def transformer(
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    hidden: int = 2048,
    vocabulary: int = 37000,
    source_length: int = 128,
    length: int = 128,
    *,
    dropout: float = 0.1,
    loss: str = "softmax",
) -> Symbol:
    """Encoder and decoder for translation (A. Vaswani et al. 2017): the base model, with learned positions.

    source: (N, `source_length`) tokens;  source_count: (N,), how many count;  data: (N, `length`) tokens
    before; softmax_label: (N * `length`,)  ->  softmax: (N * `length`, `vocabulary`). One table embeds source
    and target and is the last layer.

    loss: as of `transformer_decoder`.
    """
    body = _Body(layers, width, heads, hidden, "relu", dropout, False, 1e-5)
    table, counted = sym.Variable("embed_weight"), sym.Variable("source_count")
    memory = body.embed(sym.Variable("source"), table, vocabulary, source_length, "source_")
    memory = body.drop(memory, "source_embed_drop")
    for i in range(layers):
        memory = body.layer(memory, f"encoder{i}", length=counted)
    x = body.drop(body.embed(sym.Variable("data"), table, vocabulary, length, ""), "embed_drop")
    for i in range(layers):
        x = body.layer(x, f"decoder{i}", causal=True, memory=memory, memory_length=counted)
    return _tokens(x, table, vocabulary, loss)


def _tokens(data: Symbol, table: Symbol, vocabulary: int, loss: str) -> Symbol:
    """The loss over (N, L, width): scores (N * L, `vocabulary`) through the table that embeds tokens."""
    rows = sym.Reshape(data, shape=(-3, -2), name="rows")
    score = sym.FullyConnected(rows, table, num_hidden=vocabulary, no_bias=True, name="score")
    return loss_of(score, loss, "softmax")
