"""Affine maps and matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import GraphValue, NotSupportedError
from ...building.contraction import contracted
from ..node import TorchNode
from .arithmetic import expand_both


def linear(n: TorchNode) -> GraphValue:
    b, x, weight, bias = n.builder, n["input"], n["weight"], n.get("bias")
    inputs = [x, weight] if bias is None else [x, weight, bias]
    alone = x.rank == 1
    if alone:
        inputs[0] = b.reshape(x, (1, *x.shape))
    out = b.op("FullyConnected", *inputs, num_hidden=weight.shape[0], no_bias=bias is None, flatten=False)
    return b.reshape(out, out.shape[1:]) if alone else out


def matmul(n: TorchNode) -> GraphValue:
    name = next(name for name in ("other", "mat2", "vec", "tensor") if n.plain(name) is not None)
    return n.builder.matmul(n["self"], n[name])


_FACTORS = {"addmm": ("mat1", "mat2"), "addmv": ("mat", "vec"), "baddbmm": ("batch1", "batch2")}


def added_product(n: TorchNode) -> GraphValue:
    """addmm, addmv, baddbmm: beta * self + alpha * product"""
    b = n.builder
    first, second = _FACTORS[n.target.split(".")[1]]
    product = b.matmul(n[first], n[second])
    alpha, beta = n.plain("alpha", 1), n.plain("beta", 1)
    product = product if alpha == 1 else product * float(alpha)
    return b.binary("add", product, n["self"] if beta == 1 else n["self"] * float(beta))


def einsum(n: TorchNode) -> GraphValue:
    if n.plain("path") is not None:
        raise NotSupportedError("einsum with a path")
    return contracted(n.plain("equation"), n.values("tensors"))


def outer(n: TorchNode) -> GraphValue:
    b, left, right = n.builder, n["self"], n.get("vec2")
    right = n["other"] if right is None else right
    return b.binary("mul", b.reshape(left, (left.size, 1)), b.reshape(right, (1, right.size)))


def bilinear(n: TorchNode) -> GraphValue:
    """out[..., k] = x1 W[k] x2 + bias[k]"""
    b, left, right, bias = n.builder, n["input1"], n["input2"], n.get("bias")
    out = contracted("...i,kij,...j->...k", [left, n["weight"], right])
    return out if bias is None else b.binary("add", out, bias)


def crossed(n: TorchNode) -> GraphValue:
    """The cross product along an axis of three."""
    b = n.builder
    left, right = expand_both(n["self"], n["other"])
    axis = b.axis(n.plain("dim", -1), left.rank)
    turned = [
        [b.op("take", v, b.constant(np.array(o)), axis=axis) for o in ([1, 2, 0], [2, 0, 1])]
        for v in (left, right)
    ]
    (a1, a2), (b1, b2) = turned
    return b.binary("sub", b.binary("mul", a1, b2), b.binary("mul", a2, b1))


def added_products(n: TorchNode) -> GraphValue:
    """addbmm: beta * self + alpha * the sum of the products of a batch"""
    b = n.builder
    total = b.reduce("sum", b.matmul(n["batch1"], n["batch2"]), [0], False)
    return b.binary("add", total * float(n.plain("alpha", 1)), n["self"] * float(n.plain("beta", 1)))


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "addbmm": added_products,
    "addmm": added_product,
    "addmv": added_product,
    "baddbmm": added_product,
    "bilinear": bilinear,
    "bmm": matmul,
    "dot": matmul,
    "einsum": einsum,
    "linalg_cross": crossed,
    "linear": linear,
    "matmul": matmul,
    "mm": matmul,
    "mv": matmul,
    "outer": outer,
}
