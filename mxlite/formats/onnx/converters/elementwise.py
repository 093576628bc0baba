"""Functions of each element: arithmetic, comparisons, logic, rounding, casts."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.errors import NotSupportedError
from ...building.rounding import rounded
from ...building.types import is_float
from ...building.value import GraphValue
from ..dtypes import numpy_type
from ..node import OnnxNode

_UNARY = {
    "Abs": "abs", "Acos": "arccos", "Acosh": "arccosh", "Asin": "arcsin", "Asinh": "arcsinh",
    "Atan": "arctan", "Atanh": "arctanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf",
    "Exp": "exp", "Floor": "floor", "Log": "log", "Neg": "negative", "Reciprocal": "reciprocal",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    "BitwiseNot": "bitwise_not",
}  # fmt: skip
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
_COMPARE = {
    "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "lesser",
    "LessOrEqual": "lesser_equal",
}  # fmt: skip


def called(name: str, count: int = 1) -> Callable[[OnnxNode], GraphValue]:
    """A converter to our operator `name` of the first `count` inputs."""
    return lambda n: n.builder.op(name, *(n[i] for i in range(count)))


def _binary(kind: str) -> Callable[[OnnxNode], GraphValue]:
    return lambda n: n.builder.binary(kind, *_legacy_broadcast(n))


def _compare(kind: str) -> Callable[[OnnxNode], GraphValue]:
    return lambda n: n.builder.compare(kind, *_legacy_broadcast(n))


def _legacy_broadcast(n: OnnxNode) -> tuple[GraphValue, GraphValue]:
    """Before opset 7 the second operand was placed at an axis of the first, when asked to broadcast."""
    left, right = n[0], n[1]
    if n.version < 7 and n.whole("axis", None) is not None:
        axis = n.builder.axis(n.whole("axis"), left.rank)
        right = n.builder.reshape(right, right.shape + (1,) * (left.rank - axis - right.rank))
    return left, right


def power(n: OnnxNode) -> GraphValue:
    """The exponent may be of another type; the result has the base's."""
    b, (base, exponent) = n.builder, _legacy_broadcast(n)
    if base.dtype == exponent.dtype:
        return b.binary("power", base, exponent)
    wide = np.result_type(np.float64 if base.dtype.kind != "f" else base.dtype, np.float32)
    if is_float(exponent.dtype) and not is_float(base.dtype):
        return b.cast(b.binary("power", b.cast(base, wide), b.cast(exponent, wide)), base.dtype)
    return b.binary("power", base, b.cast(exponent, base.dtype))


def modulo(n: OnnxNode) -> GraphValue:
    """`fmod=1` takes the sign of the dividend, as C does; else that of the divisor."""
    b, left, right = n.builder, n[0], n[1]
    if not n.whole("fmod", 0):
        rest: GraphValue = b.op("broadcast_mod", left, right)
        if is_float(left.dtype) and (right.array is None or not right.array.all()):
            return b.where(right.equals(0), b.full((), np.nan, left.dtype), rest)
        return rest
    if left.array is None or right.array is None:
        size = b.op("broadcast_mod", b.op("abs", left), b.op("abs", right))
        return b.binary("mul", size, b.op("sign", left))
    return b.constant(np.fmod(left.array, right.array))


def _many(kind: str) -> Callable[[OnnxNode], GraphValue]:
    def convert(n: OnnxNode) -> GraphValue:
        b, values = n.builder, n.present()
        return reduce(lambda x, y: b.binary(kind, x, y), values) if len(values) > 1 else copy(n)

    return convert


def add_all(n: OnnxNode) -> GraphValue:
    b, values = n.builder, n.present()
    if len(values) > 2 and all(v.shape == values[0].shape for v in values):
        return b.op("add_n", *values)
    return _many("add")(n)


def mean(n: OnnxNode) -> GraphValue:
    return add_all(n) * (1 / len(n)) if len(n) > 1 else copy(n)


def copy(n: OnnxNode) -> Any:
    """The value itself, of either kind."""
    return n.value(0)


def _logic(kind: str) -> Callable[[OnnxNode], GraphValue]:
    def convert(n: OnnxNode) -> GraphValue:
        b = n.builder
        left, right = (b.cast(v, np.uint8) for v in _legacy_broadcast(n))
        if kind == "and":
            result = b.binary("mul", left, right)
        elif kind == "or":
            result = b.binary("maximum", left, right)
        else:
            return b.compare("not_equal", left, right)
        return b.cast(result, np.bool_)

    return convert


def is_inf(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    positive, negative = n.whole("detect_positive", 1), n.whole("detect_negative", 1)
    if not positive and not negative:
        return b.full(x.shape, False, np.bool_)
    if positive and negative:
        x = b.op("abs", x)
    return x.equals(float("inf") if positive else float("-inf"))


def clip(n: OnnxNode) -> GraphValue:
    """Limits are attributes before opset 11, inputs since; either may be missing."""
    b, x = n.builder, n[0]
    low, high = n.get(1), n.get(2)
    if n.version < 11:
        low, high = (b.constant(np.array(n.real(k), x.dtype)) if n.has(k) else None for k in ("min", "max"))
    if low is not None:
        x = b.binary("maximum", x, low)
    if high is not None:
        x = b.binary("minimum", x, high)
    return x


def cast(n: OnnxNode) -> GraphValue:
    to = n.whole("to") if n.version >= 6 else _old_type(n.text("to"))
    return n.builder.cast(n[0], numpy_type(to, "the result"))


def _old_type(name: str) -> int:
    from ..dtypes import TYPE_NAMES

    known = {"FLOAT": "float32", "DOUBLE": "float64"}
    name = known.get(name.upper(), name.lower())
    if name not in TYPE_NAMES:
        raise FormatError(f"attribute 'to' is {name!r}, which is no type.")
    return TYPE_NAMES.index(name)


def shift(n: OnnxNode) -> GraphValue:
    """Shifts; by the type's width or more, or a negative number, all bits are shifted out, the sign stays."""
    b, x, by = n.builder, n[0], n[1]
    width = min(8 * x.dtype.itemsize, 62)
    by = b.cast(by, np.int64)
    by = b.where(by < 0, b.full((), width, np.int64), b.binary("minimum", by, width))
    wide = b.cast(x, np.int64)
    factor = b.op("_rpower_scalar", by, scalar=2.0)
    if n.choice("direction", "LEFT", "RIGHT") == "LEFT":
        return b.cast(b.binary("mul", wide, factor), x.dtype)
    rest = b.op("broadcast_mod", wide, factor)
    return b.cast(b.binary("div", b.binary("sub", wide, rest), factor), x.dtype)


def bit_cast(n: OnnxNode) -> GraphValue:
    to = numpy_type(n.whole("to"), "the result")
    array = n[0].array
    if array is None:
        raise NotSupportedError("bits are seen as another type in constants only")
    return n.builder.constant(array.view(to))


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    **{onnx: called(ours) for onnx, ours in _UNARY.items()},
    **{onnx: _binary(kind) for onnx, kind in _BINARY.items()},
    **{onnx: _compare(kind) for onnx, kind in _COMPARE.items()},
    "And": _logic("and"),
    "BitCast": bit_cast,
    "BitShift": shift,
    "BitwiseAnd": called("broadcast_bitwise_and", 2),
    "BitwiseOr": called("broadcast_bitwise_or", 2),
    "BitwiseXor": called("broadcast_bitwise_xor", 2),
    "Cast": cast,
    "CastLike": lambda n: n.builder.cast(n[0], n[1].dtype),
    "Clip": clip,
    "Identity": copy,
    "IsInf": is_inf,
    "IsNaN": lambda n: n.builder.compare("not_equal", n[0], n[0]),
    "Max": _many("maximum"),
    "Mean": mean,
    "Min": _many("minimum"),
    "Mod": modulo,
    "Not": lambda n: n.builder.cast(n[0], np.uint8).equals(0),
    "Or": _logic("or"),
    "Pow": power,
    "Round": lambda n: rounded(n[0]),
    "Sum": add_all,
    "Where": lambda n: n.builder.where(n[0], n[1], n[2]),
    "Xor": _logic("xor"),
}
