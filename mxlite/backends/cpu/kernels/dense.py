"""FullyConnected on oneDNN's matrix product."""

from __future__ import annotations

from math import prod
from typing import Any

from ....core.dtype import float32
from ....ops.dense import FullyConnected
from ...base import ChosenKernel, connected, Request
from ..onednn import bind, cached, memory, Primitive, Run
from ..onednn.constants import BIAS, DST, SRC, WEIGHTS


@cached
def _product(n: int, k: int, m: int, bias: bool) -> Primitive:
    """(N, K) times the transpose of (M, K), plus (M,)."""
    return Primitive(
        "matmul",
        memory((n, k), float32),
        memory((k, m), float32, (1, 0)),
        memory((1, m), float32) if bias else None,
        memory((n, m), float32),
    )


def _forward(r: Request) -> ChosenKernel | None:
    if set(r.dtypes) != {float32} or 0 in r.outputs[0] or 0 in r.inputs[1]:
        return None
    (m, k), n = r.inputs[1], prod(r.outputs[0][:-1])
    has_bias = not r.attrs.no_bias
    product = _product(n, k, m, has_bias)
    if product is None:
        return None

    def connect(xp: Any, a: Any, data: Any, weight: Any, bias: Any = None, *, out: Any, work: Any) -> Run:
        arrays = {
            SRC: (memory((n, k), float32), data),
            WEIGHTS: (memory((k, m), float32, (1, 0)), weight),
            DST: (memory((n, m), float32), out),
        }
        if bias is not None:
            arrays[BIAS] = (memory((1, m), float32), bias)
        return bind(product, arrays, work)

    return connected(connect, product.scratch, f"onednn {product.implementation}")


ROWS = {FullyConnected: [_forward]}
