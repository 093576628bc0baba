"""A transformer encoder layer with a classifier on top, for mxlite and MXNet; needs only Python 3.8.

A. Vaswani et al. 2017, "Attention is all you need"; norms in front of attention and affine maps, as in
R. Xiong et al. 2020, "On layer normalization in the transformer architecture". data: (N, L, width);
softmax_label: (N,)  ->  softmax: (N, `classes`), from the mean over positions.
"""

from __future__ import annotations

from math import sqrt
from typing import Any


def transformer_block(sym: Any, width: int, heads: int, hidden: int, classes: int, length: int) -> Any:
    """The block's symbol. `sym`: `mxlite.sym` or `mxnet.sym`. Parameters have the same names in both."""

    def dense(x: Any, units: int, name: str) -> Any:
        return sym.FullyConnected(x, num_hidden=units, flatten=False, name=name)

    def split(x: Any, name: str) -> Any:
        x = sym.Reshape(x, shape=(0, 0, heads, -1), name=name + "_heads")
        return sym.transpose(x, axes=(0, 2, 1, 3), name=name + "_first")

    x = sym.Variable("data")
    normal = sym.LayerNorm(x, axis=-1, eps=1e-5, name="self_norm")
    query, key, value = (split(dense(normal, width, n), n) for n in ("query", "key", "value"))
    if hasattr(sym, "scaled_dot_product_attention"):
        out = sym.scaled_dot_product_attention(query, key, value, name="attention")
    else:  # MXNet: explicit (L, L) scores
        query, key, value = (
            sym.Reshape(part, shape=(-1, length, width // heads)) for part in (query, key, value)
        )
        scores = sym.batch_dot(query, key, transpose_b=True) * (1 / sqrt(width // heads))
        out = sym.batch_dot(sym.softmax(scores, axis=-1), value)
        out = sym.Reshape(out, shape=(-1, heads, length, width // heads))
    out = sym.transpose(out, axes=(0, 2, 1, 3), name="positions")
    x = sym.elemwise_add(
        x, dense(sym.Reshape(out, shape=(0, 0, -3), name="rows"), width, "joined"), name="self_sum"
    )
    wide = dense(sym.LayerNorm(x, axis=-1, eps=1e-5, name="ffn_norm"), hidden, "wide")
    if hasattr(sym, "gelu"):
        wide = sym.gelu(wide, name="gelu")
    else:
        wide = sym.LeakyReLU(wide, act_type="gelu", name="gelu")
    x = sym.elemwise_add(x, dense(wide, width, "narrow"), name="ffn_sum")
    x = sym.mean(sym.LayerNorm(x, axis=-1, eps=1e-5, name="norm"), axis=1, name="mean")
    return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=classes, name="score"), name="softmax")
