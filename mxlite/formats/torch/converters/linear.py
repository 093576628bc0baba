"""Affine maps and matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building import GraphValue, NotSupportedError
from ...building.contraction import contracted
from ..node import TorchNode


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


def added_product(n: TorchNode) -> GraphValue:
    """addmm, baddbmm: beta * self + alpha * product"""
    b = n.builder
    first, second = ("mat1", "mat2") if "addmm" in n.target else ("batch1", "batch2")
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


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "addmm": added_product,
    "baddbmm": added_product,
    "bilinear": bilinear,
    "bmm": matmul,
    "dot": matmul,
    "einsum": einsum,
    "linear": linear,
    "matmul": matmul,
    "mm": matmul,
    "mv": matmul,
    "outer": outer,
}
