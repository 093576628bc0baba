"""Products of interleaved projections, with each head's part read in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any

from .....ops.nn.interleaved import (
    ContribInterleavedMatmulEncdecQk,
    ContribInterleavedMatmulEncdecValatt,
    ContribInterleavedMatmulSelfattQk,
    ContribInterleavedMatmulSelfattValatt,
    split_heads,
)
from ....base import ChosenKernel, Request, Row
from ...kernel_row import BOTH, kernel_rows
from ...onednn import Run
from ...onednn.product import Layout
from ...products import products, Term


class _Projections:
    """One array of `parts` interleaved projections: layout and begin of part `i`."""

    def __init__(self, name: str, shape: tuple[int, ...], heads: int, parts: int) -> None:
        self.name, self.heads, self.parts = name, heads, parts
        n, b, width = shape
        d = width // (heads * parts)
        self.layout = Layout((b, heads, n, d), (width, parts * d, b * width, 1))

    def part(self, i: int) -> Callable[[Any], Any]:
        return lambda array: split_heads(array, self.heads, self.parts)[i]

    def cleared(self, *parts: int) -> Callable[[Any, Mapping[str, Any]], Sequence[Run]]:
        """Calls that set these parts of the gradient to 0."""

        def calls(xp: Any, arrays: Mapping[str, Any]) -> Sequence[Run]:
            target = arrays[f"d_{self.name}"]
            if target is None:
                return []
            return [partial(xp.copyto, self.part(i)(target), 0) for i in parts]

        return calls


def _scores(query: str, key: str, query_parts: int, key_parts: int) -> tuple[Row, Row]:
    """Rows for out = query @ key.T / sqrt(D) and its gradient. The query is part 0 of its array, the key the
    last but one (or the only other) of its own; the value is never read.
    """
    at = key_parts - 2  # index of the key

    def sides(r: Request) -> tuple[_Projections, _Projections, Layout, float]:
        shapes = dict(zip(r.op.forward_op.inputs if r.op.forward_op else r.op.inputs, r.inputs))
        q = _Projections(query, shapes[query], r.attrs.heads, query_parts)
        k = _Projections(key, shapes[key], r.attrs.heads, key_parts)
        (b, heads, n, d), s = q.layout.shape, k.layout.shape[2]
        return q, k, Layout.dense(b, heads, n, s), 1 / sqrt(max(1, d))

    def forward(r: Request) -> ChosenKernel | None:
        q, k, out, scale = sides(r)
        layouts = q.layout, k.layout.turned, out
        return products(
            r, [Term(query, key, "out", layouts, alpha=scale, views=(q.part(0), k.part(at), None))]
        )

    def backward(r: Request) -> ChosenKernel | None:
        q, k, out, scale = sides(r)
        to_query = Term(
            "d_out", key, f"d_{query}", (out, k.layout, q.layout), alpha=scale,
            views=(None, k.part(at), q.part(0)),
        )  # fmt: skip
        to_key = Term(
            "d_out", query, f"d_{key}", (out.turned, q.layout, k.layout), alpha=scale,
            views=(None, q.part(0), k.part(at)),
        )  # fmt: skip
        return products(r, [to_query, to_key], k.cleared(key_parts - 1))

    return forward, backward


def _values(values: str, parts: int) -> tuple[Row, Row]:
    """Rows for out = attention @ value and its gradient; the value is the last part."""

    def sides(r: Request) -> tuple[_Projections, Layout, _Projections]:
        v = _Projections(values, r.inputs[0], r.attrs.heads, parts)
        out = _Projections("out", r.outputs[0], r.attrs.heads, 1)
        b, heads, s, _ = v.layout.shape
        return v, Layout.dense(b, heads, out.layout.shape[2], s), out

    def forward(r: Request) -> ChosenKernel | None:
        v, attention, out = sides(r)
        layouts = attention, v.layout, out.layout
        return products(r, [Term("attention", values, "out", layouts, views=(None, v.part(parts - 1), None))])

    def backward(r: Request) -> ChosenKernel | None:
        v, attention, out = sides(r)
        value = v.part(parts - 1)
        to_attention = Term(
            "d_out",
            values,
            "d_attention",
            (out.layout, v.layout.turned, attention),
            views=(None, value, None),
        )
        to_values = Term(
            "attention", "d_out", f"d_{values}", (attention.turned, out.layout, v.layout),
            views=(None, None, value),
        )  # fmt: skip
        return products(r, [to_attention, to_values], v.cleared(*range(parts - 1)))

    return forward, backward


def _chosen_by() -> dict[Any, Row]:
    both = {
        ContribInterleavedMatmulSelfattQk: _scores("queries_keys_values", "queries_keys_values", 3, 3),
        ContribInterleavedMatmulEncdecQk: _scores("queries", "keys_values", 1, 2),
        ContribInterleavedMatmulSelfattValatt: _values("queries_keys_values", 3),
        ContribInterleavedMatmulEncdecValatt: _values("keys_values", 2),
    }
    return {
        op: row
        for forward_op, rows in both.items()
        for op, row in zip((forward_op, forward_op.grad_op), rows)
    }


SERVES = ("ops.nn.interleaved",)
ROWS = kernel_rows(BOTH, _chosen_by())
