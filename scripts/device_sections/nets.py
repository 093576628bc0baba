"""Networks of the sections, with the same values on every device."""

from __future__ import annotations

from typing import Any

import numpy as np

import mxlite as mx
from mxlite import models

from .checks import Checks

sym = mx.sym
Shapes = dict[str, tuple[int, ...]]


def mlp() -> tuple[Any, Shapes]:
    """Two layers."""
    h = sym.Activation(sym.FullyConnected(sym.Variable("data"), num_hidden=16, name="fc1"), act_type="relu")
    return sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=5, name="fc2"), name="softmax"), {
        "data": (8, 12),
        "softmax_label": (8,),
    }


def residual(size: int, channels: int, batch: int, blocks: int) -> tuple[Any, Shapes]:
    """Convolutions, normalizations, sums, dropout, a matrix product."""
    h = sym.Variable("data")
    for b in range(blocks + 1):
        r = sym.Convolution(h, kernel=(3, 3), pad=(1, 1), num_filter=channels, no_bias=True, name=f"conv{b}")
        r = sym.BatchNorm(r, fix_gamma=False, name=f"bn{b}")
        r = sym.Activation(r, act_type="relu", name=f"relu{b}")
        h = h + r if b else r
    h = sym.Dropout(h, p=0.2, name="drop")
    net = sym.SoftmaxOutput(sym.FullyConnected(h, num_hidden=5, name="fc"), name="softmax")
    return net, {"data": (batch, 3, size, size), "softmax_label": (batch,)}


def networks(checks: Checks) -> dict[str, tuple[Any, Shapes]]:
    """Networks by name; larger ones on a real GPU."""
    if checks.small:
        return {"mlp": mlp(), "residual": residual(6, 4, 4, 2)}
    found = {"mlp": mlp(), "residual": residual(32, 32, 32, 8)}
    for name, options in (("resnet50", {"image": (3, 64, 64)}), ("transformer", {})):
        found[name] = models.get(name, **options), models.shapes_of(name, batch=8, **options)
    return found


def bound(net: Any, shapes: Shapes, ctx: Any, **options: Any) -> Any:
    """An executor with the same values on every device; random generators are reseeded."""
    mx.random.seed(3, ctx)
    executor = net.simple_bind(ctx, **shapes, **options)
    rng, are_tokens = np.random.default_rng(0), '"Embedding"' in net.tojson()
    for name, array in executor.arg_dict.items():
        if "label" in name:
            array[:] = rng.integers(0, 5, array.shape)
        elif name.endswith("_count"):  # number of tokens in a row
            array[:] = rng.integers(20, 100, array.shape)
        elif are_tokens and name in shapes:
            array[:] = rng.integers(0, 50, array.shape)
        else:
            array[:] = rng.standard_normal(array.shape) * 0.1
    for name, array in executor.aux_dict.items():
        array[:] = 1.0 if name.endswith("var") else 0.0
    return executor


def steps(executor: Any, count: int = 3) -> list[list[np.ndarray]]:
    """Outputs, gradients and auxiliary states after each of `count` steps."""
    seen = []
    for _ in range(count):
        executor.forward(is_train=True)
        executor.backward()
        arrays = [
            *executor.outputs,
            *(g for g in executor.grad_arrays if g is not None),
            *executor.aux_arrays,
        ]
        seen.append([a.asnumpy() for a in arrays])
    return seen


def same(a: list[list[np.ndarray]], b: list[list[np.ndarray]]) -> bool:
    """True if the results are equal bit for bit."""
    return all(
        x.tobytes() == y.tobytes() for i, j in zip(a, b, strict=True) for x, y in zip(i, j, strict=True)
    )


def difference(a: list[list[np.ndarray]], b: list[list[np.ndarray]]) -> float:
    """The largest difference, relative to the largest element of each array."""
    worst = 0.0
    for i, j in zip(a, b, strict=True):
        for x, y in zip(i, j, strict=True):
            x, y = x.astype(np.float64), y.astype(np.float64)
            worst = max(
                worst, float(np.max(np.abs(x - y), initial=0) / max(np.max(np.abs(y), initial=0), 1e-6))
            )
    return worst
