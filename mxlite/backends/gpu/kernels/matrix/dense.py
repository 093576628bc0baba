"""FullyConnected: one product, with bias and activation; its gradient two, with the bias's sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from .....ops.nn.dense import FullyConnected
from ....base import ChosenKernel, Request
from ....fused.accumulated_gradient import AccumulatedGradient
from ....fused.dense_activation import DenseActivation, DenseSlope
from ...matrix import column_sum
from ...matrix.products import products, Side, Term
from ...rows import table
from ...runtime.device import Device, Run


def _sides(r: Request) -> tuple[Side, Side, Side]:
    """Sides of data (N, K), weight (M, K), out (N, M)."""
    (m, k), n = r.inputs[1], prod(r.outputs[0][:-1])
    return Side.dense(n, k), Side.dense(m, k), Side.dense(n, m)


def _forward(device: Device, r: Request) -> ChosenKernel | None:
    data, weight, out = _sides(r)
    bias = "" if r.attrs.no_bias else "bias"
    applied = r.attrs.activation if r.op is DenseActivation else ""
    term = Term("data", "weight", "out", (data, weight.other, out), bias, activation=applied)
    return products(device, r, [term])


def _slope(device: Device, r: Request) -> ChosenKernel | None:
    (m, k), n = r.inputs[1], prod(r.inputs[0][:-1])
    sides = (Side.dense(n, m), Side.dense(m, k), Side.dense(n, k))
    return products(
        device, r, [Term("d_out", "weight", "out", sides, slope=r.attrs.activation, known="known")]
    )


def _backward(device: Device, r: Request) -> ChosenKernel | None:
    data, weight, out = _sides(r)
    n, m, dtype = out.rows, out.columns, str(r.dtype)
    terms = [
        Term("d_out", "weight", "d_data", (out, weight, data)),
        Term("d_out", "data", "d_weight", (out.other, data, weight)),
    ]
    if r.attrs.no_bias or not r.is_used("d_bias"):
        return products(device, r, terms)
    if r.is_used("d_weight") and n:
        terms[1] = terms[1]._replace(sums="d_bias")
        return products(device, r, terms)
    if not column_sum.fits(n, m, dtype):
        return None

    def sums(a: Any, arrays: Mapping[str, Any], work: int) -> Sequence[Run]:
        if arrays["d_bias"] is None:
            return []
        d_out, d_bias = device.address(arrays["d_out"]), device.address(arrays["d_bias"])
        return [column_sum.column_sum(device, d_out, n, m, dtype, d_bias, work)]

    return products(device, r, terms, sums, column_sum.workspace(n, m, dtype))


def _added(device: Device, r: Request) -> ChosenKernel | None:
    if r.attrs.op is not FullyConnected:
        return None
    (_, (m, k), *_), (d_out,) = r.attrs.forward(r.inputs)
    n = prod(d_out[:-1])
    out, x, w = Side.dense(n, m), Side.dense(n, k), Side.dense(m, k)
    if r.attrs.of == "data":
        term = Term("d_out", "weight", "out", (out, w, x), beta=1.0, added="addend")
    elif n:
        term = Term("d_out", "data", "out", (out.other, x, w), beta=1.0, added="addend")
        term = term._replace(sums="d_bias" if r.is_used("d_bias") else "")
    else:
        return None
    return products(device, r, [term], in_place={"out": ("addend",)})


rows = table(
    (FullyConnected, _forward, _backward),
    (DenseActivation, _forward, None),
    (DenseSlope, _slope, None),
    (AccumulatedGradient, _added, None),
)
