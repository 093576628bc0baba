"""Attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import GraphValue
from ..node import TorchNode


def attention(n: TorchNode) -> GraphValue:
    """mxlite's operator, which never holds all scores, and shares keys between heads.

    query: (..., H, L, E); leading axes beyond the batch are joined with it, missing ones are added.
    """
    b = n.builder
    query, key, value, mask = n["query"], n["key"], n["value"], n.get("attn_mask")
    lead = n.shape[:-2]
    sides = [_four(v) for v in (query, key, value)]
    if not n.plain("enable_gqa", False):
        heads = sides[0].shape[1]
        sides = [b.expand(v, (sides[0].shape[0], heads, *v.shape[2:])) for v in sides]
    if mask is not None:
        if mask.dtype != np.bool_:
            mask = b.cast(mask, query.dtype)
        if mask.rank > 4:
            mask = b.expand(mask, (*lead, *mask.shape[-2:]))
        mask = _four(mask)
    inputs = sides if mask is None else [*sides, mask]
    scale = n.plain("scale")
    out = b.op(
        "scaled_dot_product_attention",
        *inputs,
        causal=bool(n.plain("is_causal", False)),
        scale=None if scale is None else float(scale),
        p=float(n.plain("dropout_p", 0.0)),
        use_mask=mask is not None,
    )
    return b.reshape(out, n.shape)


def _four(x: GraphValue) -> GraphValue:
    """(..., H, L, E) with four axes."""
    b = x.builder
    if x.rank < 4:
        return b.reshape(x, (1,) * (4 - x.rank) + x.shape)
    count = x.size // max(1, int(np.prod(x.shape[-3:])))
    return b.reshape(x, (count, *x.shape[-3:]))


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {"scaled_dot_product_attention": attention}
