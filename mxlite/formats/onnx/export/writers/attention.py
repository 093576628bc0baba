"""Attention in the operators of opset 17."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..exported_node import ExportedNode
from ..free_axes import Length

HIDDEN = -1e30
"""The score of a key that takes no part: its weight is 0, and a row of them is no nan."""


def attention(n: ExportedNode) -> str:
    """softmax(query @ key^T * scale + mask) @ value; keys of grouped heads are repeated."""
    w, a, dtype = n.writer, n.attrs, n.out_dtype()
    rows, keys = n.shape(0)[2], n.shape(1)[2]
    times = n.number(1) // n.number(1, 1)
    key, value = (_repeated(n, place, times) for place in (1, 2))
    scale = n.number(3) ** -0.5 if a.scale is None else a.scale
    scores = w.add("MatMul", n[0], w.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = w.add("Mul", scores, w.constant(scale, dtype))
    mask, length = n.named("mask"), n.named("length")
    if mask is not None:
        is_bool = n.dtype(list(n.node.input_names).index("mask")) == np.bool_
        scores = _shown(n, mask, scores) if is_bool else w.add("Add", scores, mask)
    if a.causal:
        scores = _shown(n, w.add("LessOrEqual", _places(n, keys, (1, -1)), _places(n, rows, (-1, 1))), scores)
    if length is not None:
        ends = w.add("Reshape", w.cast(length, np.float32), w.ints((-1, 1, 1, 1)))
        places = w.cast(_places(n, keys, (1, 1, 1, -1)), np.float32)
        scores = _shown(n, w.add("Less", places, ends), scores)
    return w.add("MatMul", w.add("Softmax", scores, axis=-1), value)


def _shown(n: ExportedNode, visible: str, scores: str) -> str:
    """The scores where `visible` holds."""
    return n.writer.add("Where", visible, scores, n.writer.constant(HIDDEN, n.out_dtype()))


def _repeated(n: ExportedNode, place: int, times: int) -> str:
    """Keys or values with one head for each of the query's."""
    if times == 1:
        return n[place]
    batch, _, *rest = shape = n.shape(place)
    groups = n.number(1, place)
    apart = n.reshaped(n[place], shape, (batch, groups, 1, *rest))
    apart = n.writer.add("Expand", apart, n.writer.ints((1, 1, times, 1, 1)))
    return n.reshaped(apart, (batch, groups, times, *rest), (batch, groups * times, *rest))


def _places(n: ExportedNode, length: Length, shape: tuple[int, ...]) -> str:
    """The numbers from 0 on of the places along an axis, in this shape."""
    w = n.writer
    if isinstance(length, int):
        return w.constant(np.arange(length).reshape(shape))
    count = w.add("Squeeze", n.vector([length]))
    return w.add("Reshape", w.add("Range", w.constant(0), count, w.constant(1)), w.ints(shape))


WRITERS: dict[str, Callable[[ExportedNode], Any]] = {"scaled_dot_product_attention": attention}
