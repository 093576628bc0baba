"""Activations and arithmetic on oneDNN, the fallback without a compiler.

Only functions that oneDNN computes as exactly as numpy, and that map nan to nan: its rectifier, exponential
and gelu turn nan into numbers, and softplus and elu are good to four digits.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....core.dtype import float32
from .....graph.ir import Shape
from .....ops.elementwise.activation import Activation, sigmoid, silu, tanh
from .....ops.elementwise.broadcast import broadcast_add, broadcast_div, broadcast_mul, broadcast_sub
from .....ops.elementwise.elemwise import add_n, elemwise_add, elemwise_div, elemwise_mul, elemwise_sub
from .....ops.elementwise.leaky import LeakyReLU
from ....base import ChosenKernel, connected, Request
from ...kernel_row import kernel_rows, LIBRARY
from ...onednn import bind, cached, in_turn, memory, Primitive, Run
from ...onednn.constants import (
    ADD,
    DIFF_DST,
    DIFF_SRC,
    DIV,
    DST,
    LOGISTIC,
    MUL,
    RELU,
    SRC,
    SRC_1,
    SUB,
    TANH,
    TRAINING,
)
from ...runtime.threads import num_threads

LEAST = 4096  # elements from which on a call is faster than one of numpy

_SWISH = 0x2C
_FROM_OUT = {RELU: 0x100, TANH: 0x101, LOGISTIC: 0x104}
"""Algorithm -> the one that takes the gradient from the output."""

_BINARY = {
    elemwise_add: ADD, elemwise_sub: SUB, elemwise_mul: MUL, elemwise_div: DIV,
    broadcast_add: ADD, broadcast_sub: SUB, broadcast_mul: MUL, broadcast_div: DIV,
}  # fmt: skip


@cached
def _eltwise(alg: int, alpha: float, n: int) -> Primitive:
    at = memory((n,), float32)
    return Primitive(
        "eltwise_forward",
        ctypes.c_int(TRAINING), ctypes.c_int(alg), at, at, ctypes.c_float(alpha), ctypes.c_float(0),
    )  # fmt: skip


@cached
def _eltwise_backward(alg: int, alpha: float, n: int) -> Primitive | None:
    hint = _eltwise(alg, alpha, n)
    if hint is None:
        return None
    at = memory((n,), float32)
    return Primitive(
        "eltwise_backward",
        ctypes.c_int(alg), at, at, at, ctypes.c_float(alpha), ctypes.c_float(0), hint.descriptor,
        keep=hint,
    )  # fmt: skip


def _function(r: Request) -> tuple[int, float] | None:
    """oneDNN's algorithm and parameter for an activation."""
    op, a = r.op.forward_op or r.op, r.attrs
    if op is LeakyReLU:
        return (RELU, a.slope) if a.act_type == "leaky" and a.slope > 0 else None
    name = a.act_type if op is Activation else op.op_name
    return {"sigmoid": (LOGISTIC, 0.0), "tanh": (TANH, 0.0), "silu": (_SWISH, 1.0)}.get(name)


def _activation(r: Request) -> ChosenKernel | None:
    found, n = _function(r), prod(r.inputs[0])
    if found is None or set(r.dtypes) != {float32} or n < LEAST:
        return None
    if found[0] == TANH and num_threads() == 1:
        return None  # numpy's is as fast
    primitive = _eltwise(*found, n)
    if primitive is None:
        return None
    at = memory((n,), float32)

    def connect(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> Run:
        return in_turn(()) if out is None else bind(primitive, {SRC: (at, data), DST: (at, out)}, work)

    return connected(connect, primitive.scratch, f"onednn {primitive.implementation}")


def _activation_backward(r: Request) -> ChosenKernel | None:
    found, n = _function(r), prod(r.inputs[0])
    if found is None or set(r.dtypes) != {float32} or n < LEAST:
        return None
    alg, alpha = found
    keeps_out = alg in _FROM_OUT
    primitive = _eltwise_backward(_FROM_OUT.get(alg, alg), alpha, n)
    if primitive is None:
        return None
    at = memory((n,), float32)

    def connect(xp: Any, a: Any, d_out: Any, data: Any, out: Any, *, d_data: Any, work: Any) -> Run:
        if d_data is None:
            return in_turn(())
        known = (DST, out) if keeps_out else (SRC, data)
        arrays = {known[0]: (at, known[1]), DIFF_DST: (at, d_out), DIFF_SRC: (at, d_data)}
        return bind(primitive, arrays, work)

    return connected(connect, primitive.scratch, f"onednn {primitive.implementation}")


@cached
def _binary_of(alg: int, lhs: Shape, rhs: Shape) -> Primitive:
    whole = memory(lhs, float32)
    return Primitive("binary", ctypes.c_int(alg), whole, memory(rhs, float32), whole)


def _aligned(shape: Shape, like: Shape) -> Shape:
    return (1,) * (len(like) - len(shape)) + shape


def _binary(r: Request) -> ChosenKernel | None:
    if set(r.dtypes) != {float32} or prod(r.outputs[0]) < LEAST or len(r.inputs) < 2:
        return None
    whole, alg = r.outputs[0], ADD if r.op is add_n else _BINARY[r.op]
    shapes = [_aligned(s, whole) for s in r.inputs]
    # A broadcast input must be oneDNN's second operand.
    turned = shapes[0] != whole
    if turned and alg not in (ADD, MUL):
        return None
    first, second = (shapes[1], shapes[0]) if turned else (shapes[0], shapes[1])
    if first != whole or (first == second and num_threads() == 1) or len(whole) > 6:
        return None  # without broadcasting, one thread of oneDNN's is no faster than numpy
    primitive = _binary_of(alg, first, second)
    if primitive is None:
        return None
    at, other = memory(first, float32), memory(second, float32)

    def bound(x: Any, y: Any, out: Any, work: Any) -> Run:
        if out is None:
            return in_turn(())
        x, y = (y, x) if turned else (x, y)
        return bind(primitive, {SRC: (at, x), SRC_1: (other, y), DST: (at, out)}, work)

    def connect(xp: Any, a: Any, lhs: Any, rhs: Any, *, out: Any, work: Any) -> Run:
        return bound(lhs, rhs, out, work)

    def many(xp: Any, a: Any, *args: Any, out: Any, work: Any) -> Run:
        if out is None:
            return in_turn(())
        return in_turn([bound(args[0] if i == 1 else out, args[i], out, work) for i in range(1, len(args))])

    name = f"onednn {primitive.implementation}"
    return connected(many if r.op is add_n else connect, primitive.scratch, name)


SERVES = (
    "ops.elementwise.activation",
    "ops.elementwise.broadcast",
    "ops.elementwise.elemwise",
    "ops.elementwise.leaky",
)
ROWS = kernel_rows(
    LIBRARY,
    {
        **dict.fromkeys((Activation, sigmoid, silu, tanh, LeakyReLU), _activation),
        **{op.grad_op: _activation_backward for op in (Activation, sigmoid, silu, tanh, LeakyReLU)},
        **dict.fromkeys((*_BINARY, add_n), _binary),
    },
)
