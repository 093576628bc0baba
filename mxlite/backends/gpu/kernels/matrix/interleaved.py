"""Products of interleaved projections, each head's part read in place: one batched product each.

Parts that no gradient reaches are set to 0 by a product without terms.
"""

from __future__ import annotations

from math import sqrt

from .....ops.nn.interleaved import (
    ContribInterleavedMatmulEncdecQk,
    ContribInterleavedMatmulEncdecValatt,
    ContribInterleavedMatmulSelfattQk,
    ContribInterleavedMatmulSelfattValatt,
)
from ....base import ChosenKernel, Request
from ...matrix.products import products, Side, Term
from ...rows import Row, table
from ...runtime.device import Device


def _parts(shape: tuple[int, ...], heads: int, parts: int) -> list[Side]:
    """The interleaved matrices (L, D) of an array (L, B, heads * parts * D), for each of B and heads."""
    n, b, width = shape
    d = width // (heads * parts)
    # Heads of one sample are as far apart as the last head is from the first of the next sample.
    side = Side(n, d, b * width, batch=(1, b * heads), strides=(0, parts * d))
    return [side._replace(offset=i * d) for i in range(parts)]


def _zero(side: Side, name: str) -> Term:
    """A term that sets this part of an array to 0: an empty sum."""
    none = side._replace(columns=0)
    right = Side(0, side.columns, side.columns, batch=side.batch)
    return Term(name, name, name, (none, right, side))


def _shapes(r: Request) -> dict[str, tuple[int, ...]]:
    op = r.op.forward_op or r.op
    return dict(zip(op.inputs, r.inputs))


def _scores(query: str, key: str, query_parts: int, key_parts: int) -> tuple[Row, Row]:
    """out = query @ key.T / sqrt(D) and its gradient.

    The query is the first part of its array, the key the last but one of its own.
    """
    at = key_parts - 2

    def sides(r: Request) -> tuple[Side, Side, list[Side], Side, float]:
        shapes, heads = _shapes(r), r.attrs.heads
        q, parts = _parts(shapes[query], heads, query_parts)[0], _parts(shapes[key], heads, key_parts)
        out = Side.dense(q.rows, parts[at].rows, q.batch[1])
        return q, parts[at], parts, out, 1 / sqrt(max(1, q.columns))

    def forward(device: Device, r: Request) -> ChosenKernel | None:
        q, k, _, out, scale = sides(r)
        return products(device, r, [Term(query, key, "out", (q, k.other, out), alpha=scale)])

    def backward(device: Device, r: Request) -> ChosenKernel | None:
        q, k, parts, out, scale = sides(r)
        terms = [
            Term("d_out", key, f"d_{query}", (out, k, q), alpha=scale),
            Term("d_out", query, f"d_{key}", (out.other, q, k), alpha=scale),
            _zero(parts[-1], f"d_{key}"),
        ]
        return products(device, r, terms)

    return forward, backward


def _values(name: str, parts: int) -> tuple[Row, Row]:
    """out = attention @ value and its gradient; the value is the last part of its array."""

    def sides(r: Request) -> tuple[list[Side], Side, Side]:
        shapes, heads = _shapes(r), r.attrs.heads
        each, n, s = shapes["attention"]
        attention = Side.dense(n, s, each)
        (out,) = _parts(r.outputs[0], heads, 1)
        return _parts(shapes[name], heads, parts), attention, out

    def forward(device: Device, r: Request) -> ChosenKernel | None:
        every, attention, out = sides(r)
        return products(device, r, [Term("attention", name, "out", (attention, every[-1], out))])

    def backward(device: Device, r: Request) -> ChosenKernel | None:
        every, attention, out = sides(r)
        value = every[-1]
        terms = [
            Term("d_out", name, "d_attention", (out, value.other, attention)),
            Term("attention", "d_out", f"d_{name}", (attention.other, out, value)),
            *(_zero(side, f"d_{name}") for side in every[:-1]),
        ]
        return products(device, r, terms)

    return forward, backward


rows = table(
    (ContribInterleavedMatmulSelfattQk, *_scores("queries_keys_values", "queries_keys_values", 3, 3)),
    (ContribInterleavedMatmulEncdecQk, *_scores("queries", "keys_values", 1, 2)),
    (ContribInterleavedMatmulSelfattValatt, *_values("queries_keys_values", 3)),
    (ContribInterleavedMatmulEncdecValatt, *_values("keys_values", 2)),
)
