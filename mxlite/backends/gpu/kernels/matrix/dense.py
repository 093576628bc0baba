"""FullyConnected: one product, with bias and activation; its gradient two, with the bias's sums."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from .....graph.opdef import DType, NoAttrs, Op
from .....ops.elementwise.activation import gelu, relu
from .....ops.nn.dense import FullyConnected
from .....te.epilogue import Epilogue
from ....base import ChosenKernel, Request
from ....elementwise.epilogue import Applied, epilogue_of
from ....fused.accumulated_gradient import AccumulatedGradient
from ....fused.dense_epilogue import DenseEpilogue, DenseSlope
from ...matrix import column_sum
from ...matrix.products import products, Side, Term
from ...rows import table
from ...runtime.device import Device, Run

_ACTIVATIONS: tuple[tuple[str, type[Op], Any, str], ...] = (
    ("relu", relu, NoAttrs(), "out"),
    ("gelu", gelu, gelu.Attrs(), "data"),
    ("gelu_tanh", gelu, gelu.Attrs("tanh"), "data"),
)
"""The activations of `tiled_gemm`: name, operator, attributes, and the array that its gradient reads."""


@functools.cache
def _activations(dtype: DType) -> Mapping[Epilogue | None, str]:
    """Names of activations by the expression that a dense layer applies."""
    return {epilogue_of([Applied(op, a, "data")], dtype): name for name, op, a, _ in _ACTIVATIONS}


@functools.cache
def _slopes(dtype: DType) -> Mapping[Epilogue | None, str]:
    """The same by the expression of the gradient."""
    return {
        epilogue_of([Applied(op.grad_op, a, "d_out", "d_data")], dtype, (known,)): name
        for name, op, a, known in _ACTIVATIONS
        if op.grad_op is not None
    }


def _sides(r: Request) -> tuple[Side, Side, Side]:
    """Sides of data (N, K), weight (M, K), out (N, M)."""
    (m, k), n = r.inputs[1], prod(r.outputs[0][:-1])
    return Side.dense(n, k), Side.dense(m, k), Side.dense(n, m)


def _forward(device: Device, r: Request) -> ChosenKernel | None:
    data, weight, out = _sides(r)
    bias = "" if r.attrs.no_bias else "bias"
    applied = ""
    if r.op is DenseEpilogue and not (applied := _activations(r.dtype).get(r.attrs.epilogue, "")):
        return None
    term = Term("data", "weight", "out", (data, weight.other, out), bias, activation=applied)
    return products(device, r, [term])


def _slope(device: Device, r: Request) -> ChosenKernel | None:
    (m, k), n = r.inputs[1], prod(r.inputs[0][:-1])
    sides = (Side.dense(n, m), Side.dense(m, k), Side.dense(n, k))
    slope = _slopes(r.dtype).get(r.attrs.epilogue)
    if slope is None:
        return None
    return products(device, r, [Term("d_out", "weight", "out", sides, slope=slope, known="known")])


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
        term = Term("d_out", "factor", "out", (out, w, x), beta=1.0, added="addend")
    elif n:
        term = Term("d_out", "factor", "out", (out.other, x, w), beta=1.0, added="addend")
        term = term._replace(sums="d_bias" if r.is_used("d_bias") else "")
    else:
        return None
    return products(device, r, [term], in_place={"out": ("addend",)})


rows = table(
    (FullyConnected, _forward, _backward),
    (DenseEpilogue, _forward, None),
    (DenseSlope, _slope, None),
    (AccumulatedGradient, _added, None),
)
