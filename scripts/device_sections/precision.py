"""Rounding errors of float32 products, with TF32 allowed and without, against float64."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

import mxlite as mx

from .checks import Checks

EXACT, ROUNDED = 3e-6, 3e-3  # relative to the largest element: float32's sums, TF32's operands


def run(checks: Checks) -> None:
    allowed = os.environ.get("MXLITE_ALLOW_TF32") == "1"
    gpu, rng = mx.gpu(0), np.random.default_rng(0)
    n = 24 if checks.small else 1024
    for what, shapes, call in (
        ("matrix product", ((n, n), (n, n)), lambda a, b: mx.nd.dot(a, b)),
        ("fully connected layer", ((n, n), (n, n)),
         lambda a, b: mx.nd.FullyConnected(a, b, num_hidden=n, no_bias=True)),
        ("convolution", ((4, 8 if checks.small else 64, 14, 14), (8 if checks.small else 64,) * 2 + (3, 3)),
         lambda a, b: mx.nd.Convolution(a, b, kernel=(3, 3), pad=(1, 1), no_bias=True,
                                        num_filter=b.shape[0])),
        ("attention", ((2, 4, 8 if checks.small else 200, 64),) * 3,
         lambda a, b, c: mx.nd.scaled_dot_product_attention(a, b, c, causal=True)),
    ):  # fmt: skip
        for dtype in ("float32", "float16", "bfloat16"):
            with checks.check(f"{what}, {dtype}") as found:
                made = [rng.standard_normal(s).astype(np.float32) for s in shapes]
                if dtype != "float32":
                    made = [mx.nd.array(x).astype(dtype).astype("float32").asnumpy() for x in made]
                want = with_gradients(call, [mx.nd.array(x, dtype="float64") for x in made])
                got = with_gradients(call, [mx.nd.array(x, ctx=gpu).astype(dtype) for x in made])
                errors = [float(np.abs(x - y).max() / np.abs(y).max()) for x, y in zip(got, want)]
                found["error"], found["of gradients"] = errors[0], errors[1:]
                rounded = {"float32": ROUNDED if allowed else EXACT, "float16": 1e-3, "bfloat16": 8e-3}
                found["allowed"] = rounded[dtype]
                # An attention rounds its weights, too, and its gradients are sums of rounded values.
                assert errors[0] < rounded[dtype] * (2 if what == "attention" else 1), found
                assert max(errors[1:]) < rounded[dtype] * (4 if what == "attention" else 1), found
                if dtype == "float32":
                    found["TF32 was used"] = max(errors) > 2e-5


def with_gradients(call: Callable[..., Any], inputs: list[Any]) -> list[np.ndarray]:
    """Result of `call` for arrays, and the gradients of its sum with respect to them."""
    for x in inputs:
        x.attach_grad()
    with mx.autograd.record():
        out = call(*inputs)
    out.backward()
    return [x.astype("float64").asnumpy() for x in (out, *(x.grad for x in inputs))]
