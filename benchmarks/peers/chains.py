"""Chains of operators with reductions in them, each written once for mxlite's symbols and once for PyTorch.

This file imports neither framework: a chain's functions are given the module that they call, and the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .operators import floats, Input

ROWS, WIDTH = 2048, 1024
COMPILED = "MXLITE_BENCHMARK_COMPILED"
"""The variable of the environment that says that PyTorch is to compile."""


@dataclass(frozen=True)
class Chain:
    """`ours(s, *inputs)` of symbols, `torch(t, *inputs)` of tensors."""

    title: str
    inputs: Sequence[Input]
    ours: Callable[..., Any]
    torch: Callable[..., Any]


def _whole() -> Input:
    return floats(ROWS, WIDTH)


def _row() -> Input:
    return floats(1, WIDTH)


def _column() -> Input:
    return floats(ROWS, 1)


def _our_norm(s: Any, x: Any) -> Any:
    centred = s.broadcast_sub(x, s.mean(x, axis=1, keepdims=True))
    return s.broadcast_mul(centred, s.rsqrt(s.mean(s.square(centred), axis=1, keepdims=True) + 1e-5))


def _their_norm(t: Any, x: Any) -> Any:
    centred = x - x.mean(1, keepdim=True)
    return centred * t.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5)


CHAINS = (
    Chain("sum of exp(a) * b", [_whole(), _whole()],
          lambda s, a, b: s.sum(s.exp(a) * b, axis=1), lambda t, a, b: (t.exp(a) * b).sum(1)),
    Chain("mean of squared differences", [_whole(), _whole()],
          lambda s, a, b: s.mean(s.square(a - b), axis=1), lambda t, a, b: (a - b).square().mean(1)),
    Chain("mean of absolute differences", [_whole(), _whole()],
          lambda s, a, b: s.mean(s.abs(a - b), axis=1), lambda t, a, b: (a - b).abs().mean(1)),
    Chain("softmax of a scaled, masked array, times b", [_whole(), _whole()],
          lambda s, a, b: s.softmax(a * 0.5 + b) * b, lambda t, a, b: t.softmax(a * 0.5 + b, 1) * b),
    Chain("softmax with a bias", [_whole(), _row()],
          lambda s, a, b: s.softmax(s.broadcast_add(a, b)), lambda t, a, b: t.softmax(a + b, 1)),
    Chain("logarithm of a softmax, times b, summed", [_whole(), _whole()],
          lambda s, a, b: s.sum(s.log_softmax(a) * b, axis=1),
          lambda t, a, b: (t.log_softmax(a, 1) * b).sum(1)),
    Chain("root mean square norm by hand", [_whole(), _row()],
          lambda s, a, g: s.broadcast_mul(
              s.broadcast_mul(a, s.rsqrt(s.mean(s.square(a), axis=1, keepdims=True) + 1e-5)), g),
          lambda t, a, g: a * t.rsqrt(a.square().mean(1, keepdim=True) + 1e-5) * g),
    Chain("layer norm by hand", [_whole(), _row(), _row()],
          lambda s, a, g, b: s.broadcast_add(s.broadcast_mul(_our_norm(s, a), g), b),
          lambda t, a, g, b: _their_norm(t, a) * g + b),
    Chain("sum of two, layer norm", [_whole(), _whole(), floats(WIDTH), floats(WIDTH)],
          lambda s, a, b, g, c: s.LayerNorm(a + b, g, c),
          lambda t, a, b, g, c: t.nn.functional.layer_norm(a + b, (WIDTH,), g, c)),
    Chain("layer norm, gelu", [_whole(), floats(WIDTH), floats(WIDTH)],
          lambda s, a, g, b: s.LeakyReLU(s.LayerNorm(a, g, b), act_type="gelu"),
          lambda t, a, g, b: t.nn.functional.gelu(t.nn.functional.layer_norm(a, (WIDTH,), g, b))),
    Chain("L2 norm of rows by hand", [_whole()],
          lambda s, a: s.broadcast_mul(a, s.rsqrt(s.sum(s.square(a), axis=1, keepdims=True) + 1e-10)),
          lambda t, a: a * t.rsqrt(a.square().sum(1, keepdim=True) + 1e-10)),
    Chain("cosine of rows", [_whole(), _whole()],
          lambda s, a, b: s.sum(a * b, axis=1) / s.sqrt(
              s.sum(s.square(a), axis=1) * s.sum(s.square(b), axis=1) + 1e-8),
          lambda t, a, b: (a * b).sum(1) / t.sqrt(a.square().sum(1) * b.square().sum(1) + 1e-8)),
    Chain("softmax entropy", [_whole()],
          lambda s, a: -s.sum(s.softmax(a) * s.log_softmax(a), axis=1),
          lambda t, a: -(t.softmax(a, 1) * t.log_softmax(a, 1)).sum(1)),
    Chain("logistic loss", [_whole(), _whole()],
          lambda s, a, b: s.mean(s.Activation(a, act_type="softrelu") - a * b, axis=1),
          lambda t, a, b: (t.nn.functional.softplus(a) - a * b).mean(1)),
    Chain("gate: sigmoid(a) * b, column sums", [_whole(), _whole()],
          lambda s, a, b: s.sum(s.sigmoid(a) * b, axis=0), lambda t, a, b: (t.sigmoid(a) * b).sum(0)),
    Chain("tanh with a bias, column means", [_whole(), _row()],
          lambda s, a, b: s.mean(s.tanh(s.broadcast_add(a, b)), axis=0),
          lambda t, a, b: t.tanh(a + b).mean(0)),
    Chain("centred columns", [_whole()],
          lambda s, a: s.broadcast_sub(a, s.mean(a, axis=0, keepdims=True)),
          lambda t, a: a - a.mean(0, keepdim=True)),
    Chain("weighted mean of rows", [_whole(), _column()],
          lambda s, a, w: s.mean(s.broadcast_mul(s.relu(a), w), axis=1),
          lambda t, a, w: (t.relu(a) * w).mean(1)),
    Chain("standard deviation of rows", [_whole()],
          lambda s, a: s.sqrt(s.mean(s.square(s.broadcast_sub(a, s.mean(a, axis=1, keepdims=True))), axis=1)
                              + 1e-6),
          lambda t, a: t.sqrt((a - a.mean(1, keepdim=True)).square().mean(1) + 1e-6)),
    Chain("swish, square, sum of all", [_whole()],
          lambda s, a: s.sum(s.square(s.sigmoid(a) * a)),
          lambda t, a: (t.sigmoid(a) * a).square().sum().reshape(1)),
)  # fmt: skip
