"""FullyConnected on oneDNN's matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from ....ops.dense import FullyConnected
from ...base import ChosenKernel, Request
from ..onednn import Run
from ..onednn.product import Layout
from ..products import products, Term


def _layouts(r: Request) -> tuple[Layout, Layout, Layout]:
    """data (N, K), weight (M, K), out (N, M)."""
    (m, k), n = r.inputs[1], prod(r.outputs[0][:-1])
    return Layout.dense(n, k), Layout.dense(m, k), Layout.dense(n, m)


def _forward(r: Request) -> ChosenKernel | None:
    data, weight, out = _layouts(r)
    bias = "" if r.attrs.no_bias else "bias"
    return products(r, [Term("data", "weight", "out", (data, weight.turned, out), bias)])


def _backward(r: Request) -> ChosenKernel | None:
    data, weight, out = _layouts(r)
    terms = [
        Term("d_out", "weight", "d_data", (out, weight, data)),
        Term("d_out", "data", "d_weight", (out.turned, data, weight)),
    ]

    def column_sums(xp: Any, arrays: Mapping[str, Any]) -> Sequence[Run]:
        if arrays["d_bias"] is None:
            return []
        rows = arrays["d_out"].reshape(out.shape)
        return [partial(xp.add.reduce, rows, axis=0, out=arrays["d_bias"])]

    return products(r, terms, column_sums)


ROWS = {FullyConnected: [_forward], FullyConnected.grad_op: [_backward]}
