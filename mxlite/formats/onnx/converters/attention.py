"""Attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building.value import GraphValue
from ..node import OnnxNode


def attention(n: OnnxNode) -> Any:
    """mxlite's operator, which never holds all scores; other cases follow the standard's definition."""
    b, query, key, value, mask = n.builder, n[0], n[1], n[2], n.get(3)
    past_key, past_value = n.get(4), n.get(5)
    causal, cap = n.flag("is_causal"), n.real("softcap", 0.0)
    window = max(n.whole("left_window_size", -1), n.whole("right_window_size", -1)) >= 0
    if cap or window or n.wants(3) or n.get(6) is not None:
        return NotImplemented
    flat = query.rank == 3
    if flat:
        heads, groups = n.whole("q_num_heads", 0), n.whole("kv_num_heads", 0)
        if heads < 1 or groups < 1 or query.shape[2] % heads or key.shape[2] % groups:
            return NotImplemented
        query, key, value = _heads(query, heads), _heads(key, groups), _heads(value, groups)
    if past_key is not None and past_value is not None:
        key, value = b.concat([past_key, key], 2), b.concat([past_value, value], 2)
        if causal:
            rows = np.arange(query.shape[2])[:, None] + past_key.shape[2]
            visible = b.constant(np.arange(key.shape[2]) <= rows)
            causal = False
            if mask is None:
                mask = visible
            elif mask.dtype == np.bool_:
                mask = b.cast(b.binary("mul", b.cast(mask, np.uint8), b.cast(visible, np.uint8)), np.bool_)
            else:
                return NotImplemented
    if mask is not None:
        if mask.shape[-1] != key.shape[2]:
            return NotImplemented
        if mask.dtype != np.bool_:
            mask = b.cast(mask, query.dtype)
        mask = b.reshape(mask, (1,) * (4 - mask.rank) + mask.shape)
    if 0 in (*query.shape, *key.shape) or query.rank != 4 or query.shape[1] % key.shape[1]:
        return NotImplemented
    inputs = [query, key, value] if mask is None else [query, key, value, mask]
    scale = n.real("scale", None)
    out: GraphValue = b.op(
        "scaled_dot_product_attention", *inputs, causal=causal, scale=scale, use_mask=mask is not None
    )
    if flat:
        turned = b.transpose(out, (0, 2, 1, 3))
        out = b.reshape(turned, (*turned.shape[:2], turned.shape[2] * turned.shape[3]))
    return out, key, value


def _heads(x: GraphValue, count: int) -> GraphValue:
    """(B, L, H * E) -> (B, H, L, E)"""
    b, (batch, length, width) = x.builder, x.shape
    return b.transpose(b.reshape(x, (batch, length, count, width // count)), (0, 2, 1, 3))


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {"Attention": attention}
