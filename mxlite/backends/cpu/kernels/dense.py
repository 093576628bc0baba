"""FullyConnected on oneDNN's matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from ....ops.dense import add_rows, FullyConnected
from ...base import ChosenKernel, connected, Request
from ..compiled.column_sum import ColumnSum
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


def _column_sum(r: Request) -> ColumnSum | None:
    try:
        return ColumnSum(prod(r.outputs[0][:-1]), r.outputs[0][-1], r.dtype, r.dtype)
    except LookupError:
        return None


def _backward(r: Request) -> ChosenKernel | None:
    data, weight, out = _layouts(r)
    terms = [
        Term("d_out", "weight", "d_data", (out, weight, data)),
        Term("d_out", "data", "d_weight", (out.turned, data, weight)),
    ]

    down = _column_sum(r) if r.is_used("d_bias") else None

    def column_sums(xp: Any, arrays: Mapping[str, Any]) -> Sequence[Run]:
        d_out, d_bias, work = (arrays[n] for n in ("d_out", "d_bias", "work"))
        if d_bias is None:
            return []
        if down is not None:
            return [down.connect(d_out, d_bias, work[: down.nbytes])]
        return [partial(add_rows, xp, d_out.reshape(out.shape), d_bias)]

    if not r.is_used("d_data") and not r.is_used("d_weight"):
        return None if down is None else _sums_alone(down)
    return products(r, terms, column_sums, 0 if down is None else down.nbytes)


def _sums_alone(down: ColumnSum) -> ChosenKernel:
    """The gradient of a bias, where another node makes those of data and weight."""

    def connect(xp: Any, a: Any, d_out: Any, *, d_bias: Any, work: Any) -> Run:
        return down.connect(d_out, d_bias, work[: down.nbytes])

    return connected(connect, down.nbytes, down.name)


ROWS = {FullyConnected: [_forward], FullyConnected.grad_op: [_backward]}
