"""Attention in the operators of opset 17."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..exported_node import ExportedNode

HIDDEN = -1e30
"""The score of a key that takes no part: its weight is 0, and a row of them is no nan."""


def attention(n: ExportedNode) -> str:
    """softmax(query @ key^T * scale + mask) @ value; keys of grouped heads are repeated."""
    w, a, dtype = n.writer, n.attrs, n.out_dtype()
    batch, heads, rows, width = n.shape(0)
    groups, keys = n.shape(1)[1:3]
    key, value = (_repeated(n, place, heads // groups) for place in (1, 2))
    scale = width**-0.5 if a.scale is None else a.scale
    scores = w.add("MatMul", n[0], w.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = w.add("Mul", scores, w.constant(scale, dtype))
    mask, length = n.named("mask"), n.named("length")
    if mask is not None:
        is_bool = n.dtype(list(n.node.input_names).index("mask")) == np.bool_
        scores = _shown(n, mask, scores) if is_bool else w.add("Add", scores, mask)
    if a.causal:
        scores = _shown(n, w.constant(np.tri(rows, keys, dtype=bool)), scores)
    if length is not None:
        places = w.constant(np.arange(keys).reshape(1, 1, 1, keys), np.float32)
        ends = w.add("Reshape", w.cast(length, np.float32), w.ints((batch, 1, 1, 1)))
        scores = _shown(n, w.add("Less", places, ends), scores)
    return w.add("MatMul", w.add("Softmax", scores, axis=-1), value)


def _shown(n: ExportedNode, visible: str, scores: str) -> str:
    """The scores where `visible` holds."""
    return n.writer.add("Where", visible, scores, n.writer.constant(HIDDEN, n.out_dtype()))


def _repeated(n: ExportedNode, place: int, times: int) -> str:
    """Keys or values with one head for each of the query's."""
    if times == 1:
        return n[place]
    w, (batch, groups, keys, width) = n.writer, n.shape(place)
    apart = w.add("Reshape", n[place], w.ints((batch, groups, 1, keys, width)))
    apart = w.add("Expand", apart, w.ints((batch, groups, times, keys, width)))
    return w.add("Reshape", apart, w.ints((batch, groups * times, keys, width)))


WRITERS: dict[str, Callable[[ExportedNode], Any]] = {"scaled_dot_product_attention": attention}
