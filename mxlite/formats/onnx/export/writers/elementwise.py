"""Elementwise operators, reductions, and losses as what they compute in inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..exported_node import ExportedNode

Writer = Callable[[ExportedNode], Any]

_UNARY = {
    "_copy": "Identity", "BlockGrad": "Identity", "MakeLoss": "Identity", "abs": "Abs", "ceil": "Ceil",
    "cos": "Cos", "erf": "Erf", "exp": "Exp", "floor": "Floor", "log": "Log", "negative": "Neg",
    "reciprocal": "Reciprocal", "relu": "Relu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin",
    "softsign": "Softsign", "sqrt": "Sqrt", "tanh": "Tanh", "Dropout": "Identity", "softplus": "Softplus",
    "LinearRegressionOutput": "Identity", "MAERegressionOutput": "Identity",
    "LogisticRegressionOutput": "Sigmoid",
}  # fmt: skip
_BINARY = {
    "elemwise_add": "Add", "elemwise_sub": "Sub", "elemwise_mul": "Mul", "elemwise_div": "Div",
    "broadcast_add": "Add", "broadcast_sub": "Sub", "broadcast_mul": "Mul", "broadcast_div": "Div",
    "broadcast_power": "Pow", "broadcast_maximum": "Max", "broadcast_minimum": "Min", "add_n": "Sum",
}  # fmt: skip
_SCALAR = {
    "_plus_scalar": ("Add", False), "_minus_scalar": ("Sub", False), "_rminus_scalar": ("Sub", True),
    "_mul_scalar": ("Mul", False), "_div_scalar": ("Div", False), "_rdiv_scalar": ("Div", True),
    "_power_scalar": ("Pow", False), "_maximum_scalar": ("Max", False), "_minimum_scalar": ("Min", False),
}  # fmt: skip
_ACTIVATION = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softrelu": "Softplus", "softsign": "Softsign",
}  # fmt: skip
_REDUCE = {"mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}


def _unary(op: str) -> Writer:
    return lambda n: n.writer.add(op, n[0])


def _binary(op: str) -> Writer:
    return lambda n: n.writer.add(op, *n.inputs)


def product(n: ExportedNode) -> str:
    """A product of matrices in the last two axes, either turned."""
    sides = [n[0], n[1]]
    for i, turned in enumerate((n.attrs.transpose_a, n.attrs.transpose_b)):
        if turned:
            rank = len(n.shape(i))
            order = [*range(rank - 2), rank - 1, rank - 2]
            sides[i] = n.writer.add("Transpose", sides[i], perm=order)
    return n.writer.add("MatMul", *sides)


def dot(n: ExportedNode) -> str:
    n.require(len(n.shape(1)) == 2 and len(n.shape(0)) >= 2, f"a product of {n.shape(0)} and {n.shape(1)}")
    n.require(len(n.shape(0)) == 2 or not n.attrs.transpose_a, "a turned array of more than two axes")
    return product(n)


def scalar(op: str, first: bool) -> Writer:
    """An operator with a number, which may stand in front."""

    def write(n: ExportedNode) -> str:
        number = n.writer.constant(n.attrs.scalar, n.out_dtype())
        data = n[0] if n.dtype() == n.out_dtype() else n.writer.cast(n[0], n.out_dtype())
        return n.writer.add(op, *((number, data) if first else (data, number)))

    return write


def activation(n: ExportedNode) -> str:
    n.require(n.attrs.act_type in _ACTIVATION, f"the activation {n.attrs.act_type!r}")
    return n.writer.add(_ACTIVATION[n.attrs.act_type], n[0])


def leaky(n: ExportedNode) -> str:
    kind, slope = n.attrs.act_type, float(n.attrs.slope)
    if kind == "prelu":
        channels = n.number(0, 1) if n.shape(1) else 1
        shape = n.writer.ints((channels, *(1,) * (len(n.shape()) - 2)))
        return n.writer.add("PRelu", n[0], n.writer.add("Reshape", n[1], shape))
    if kind == "gelu":
        return _gelu(n)
    if kind == "rrelu":
        slope = (float(n.attrs.lower_bound) + float(n.attrs.upper_bound)) / 2
    ops = {"leaky": "LeakyRelu", "rrelu": "LeakyRelu", "elu": "Elu"}
    n.require(kind in ops or kind == "selu", f"the activation {kind!r}")
    return n.writer.add("Selu", n[0]) if kind == "selu" else n.writer.add(ops[kind], n[0], alpha=slope)


def _gelu(n: ExportedNode, by_tanh: bool = False) -> str:
    """x (1 + erf(x / sqrt(2))) / 2, or its approximation by the hyperbolic tangent."""
    w, dtype = n.writer, n.out_dtype()

    def number(value: float) -> str:
        return w.constant(value, dtype)

    if by_tanh:
        cube = w.add("Mul", w.add("Mul", w.add("Mul", n[0], n[0]), n[0]), number(0.044715))
        inner = w.add("Mul", w.add("Add", n[0], cube), number(0.7978845608028654))
        gate = w.add("Tanh", inner)
    else:
        gate = w.add("Erf", w.add("Mul", n[0], number(0.7071067811865476)))
    return w.add("Mul", w.add("Mul", n[0], w.add("Add", gate, number(1))), number(0.5))


def gelu(n: ExportedNode) -> str:
    return _gelu(n, n.attrs.approximate == "tanh")


def softmax(op: str) -> Writer:
    def write(n: ExportedNode) -> str:
        n.require(n.attrs.temperature in (None, 1) and not n.attrs.use_length, "a temperature, or lengths")
        return n.writer.add(op, n[0], axis=int(n.attrs.axis))

    return write


def softmax_output(n: ExportedNode) -> str:
    """The probabilities, over the axis that the loss is over."""
    shape = n.shape()
    if n.attrs.multi_output:
        return n.writer.add("Softmax", n[0], axis=1)
    if n.attrs.preserve_shape or len(shape) == 2:
        return n.writer.add("Softmax", n[0], axis=-1)
    rows = n.writer.add("Softmax", n.writer.add("Flatten", n[0]), axis=-1)
    return n.reshaped(rows, shape[:1], shape)


def clip(n: ExportedNode) -> str:
    low, high = (n.writer.constant(v, n.out_dtype()) for v in (n.attrs.a_min, n.attrs.a_max))
    return n.writer.add("Clip", n[0], low, high)


def reduction(n: ExportedNode) -> str:
    """Over the axes that differ between data and result, which then has its own shape."""
    rank, chosen = len(n.shape()), n.attrs.axis
    chosen = () if chosen is None else (chosen,) if isinstance(chosen, int) else tuple(chosen)
    axes = sorted({a % rank for a in chosen}) or list(range(rank))
    if n.attrs.exclude:
        axes = [a for a in range(rank) if a not in axes]
    if n.op_name == "sum":
        made = n.writer.add("ReduceSum", n[0], n.writer.ints(axes), keepdims=1)
    else:
        made = n.writer.add(_REDUCE[n.op_name], n[0], axes=axes, keepdims=1)
    shape = tuple(1 if i in axes else length for i, length in enumerate(n.shape()))
    return n.reshaped(made, shape, n.out_shape())


def cast(n: ExportedNode) -> str:
    return n.writer.cast(n[0], n.out_dtype())


WRITERS: dict[str, Writer] = {
    **{name: _unary(op) for name, op in _UNARY.items()},
    **{name: _binary(op) for name, op in _BINARY.items()},
    **{name: scalar(*how) for name, how in _SCALAR.items()},
    **dict.fromkeys(("sum", *_REDUCE), reduction),
    "Activation": activation,
    "Cast": cast,
    "LeakyReLU": leaky,
    "SoftmaxOutput": softmax_output,
    "batch_dot": product,
    "clip": clip,
    "dot": dot,
    "gelu": gelu,
    "log_softmax": softmax("LogSoftmax"),
    "softmax": softmax("Softmax"),
}
