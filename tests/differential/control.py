"""Loops, branches and operators in Python, as functions of symbols with a name: what a call may name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import mxlite as mx


def scan(data: Any, state: Any, weight: Any, name: str) -> Any:
    """A cell over the first axis: data (T, N, K), state (N, K), weight (K, K) -> (T, N, K), (N, K)."""

    def cell(x: Any, h: Any) -> Any:
        new = mx.sym.tanh(x + mx.sym.FullyConnected(h, weight, num_hidden=data_width, no_bias=True))
        return new * 0.5, new

    data_width = int(weight.infer_shape()[1][0][0])
    outs, last = mx.sym.contrib.foreach(cell, data, state, name=name)
    return mx.sym.Group([outs, last])


def repeat(data: Any, times: int, name: str) -> Any:
    """`data` is moved by a function `times` times; what it was on the way is one output, (times, ...)."""

    def more(i: Any, x: Any) -> Any:
        return i < times

    def step(i: Any, x: Any) -> Any:
        return x * 1.0, (i + 1, mx.sym.tanh(x * 1.5) * 0.5 + x * 0.25)

    outs, states = mx.sym.contrib.while_loop(
        more, step, (mx.sym.zeros((1,)), data), max_iterations=times + 1, name=name
    )
    return mx.sym.Group([outs, states[1]])


def either(data: Any, other: Any, name: str) -> Any:
    """One of two functions, by a sum."""
    return mx.sym.contrib.cond(
        mx.sym.sum(other) > 0,
        lambda: mx.sym.tanh(data) + other,
        lambda: mx.sym.sigmoid(data) - other,
        name=name,
    )


def custom(data: Any, weight: Any, name: str) -> Any:
    """data * sigmoid(weight), in Python."""
    return mx.sym.Custom(data, weight, op_type="differential_gate", name=name)


class _Gate(mx.operator.CustomOp):
    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        x, w = (a.asnumpy() for a in in_data)
        self.assign(out_data[0], req[0], mx.nd.array(x / (1 + np.exp(-w)), dtype=x.dtype))

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        x, w = (a.asnumpy() for a in in_data)
        d, s = out_grad[0].asnumpy(), 1 / (1 + np.exp(-w))
        self.assign(in_grad[0], req[0], mx.nd.array(d * s, dtype=x.dtype))
        self.assign(in_grad[1], req[1], mx.nd.array(d * x * s * (1 - s), dtype=x.dtype))


@mx.operator.register("differential_gate")
class _GateProp(mx.operator.CustomOpProp):
    def list_arguments(self) -> list[str]:
        return ["data", "weight"]

    def infer_shape(self, in_shape: Any) -> Any:
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx: Any, shapes: Any, dtypes: Any) -> Any:
        return _Gate()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "scan": scan, "repeat": repeat, "either": either, "custom": custom
}  # fmt: skip
