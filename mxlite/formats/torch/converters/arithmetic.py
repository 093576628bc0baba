"""Arithmetic of two operands, comparisons and logic, in the type that PyTorch promotes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import broadcast_shapes, GraphValue, is_float, NotSupportedError
from ...building.recognition import recognized
from ..node import TorchNode


def operands(n: TorchNode, dtype: Any, left: str = "self", right: str = "other") -> tuple[Any, Any]:
    """Both operands in one type; a Python number, or a constant without axes, stays a number."""
    sides = []
    for name in (left, right):
        found = n.plain(name)
        if not isinstance(found, (bool, int, float)):
            value = n.builder.cast(n[name], dtype)
            found = (
                value.array.item() if value.array is not None and not value.shape and name == right else value
            )
        sides.append(found)
    return sides[0], sides[1]


def combined(n: TorchNode, kind: str, left: Any, right: Any) -> GraphValue:
    """`left` kind `right`, where either may be a number."""
    b = n.builder
    if not isinstance(left, GraphValue):
        if not isinstance(right, GraphValue):
            left = b.constant(left, n.dtype)
        else:
            return b.reverse(kind, right, float(left))
    return b.binary(kind, left, right)


def _binary(kind: str) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        left, right = operands(n, n.dtype)
        alpha = n.plain("alpha", 1)
        if alpha != 1:
            right = right * float(alpha)
        return combined(n, kind, left, right)

    return convert


def _multiplied(n: TorchNode) -> GraphValue:
    b = n.builder
    if n.dtype == np.bool_:
        return _logic("and")(n)
    left, right = operands(n, n.dtype)
    if not isinstance(left, GraphValue):
        return b.reverse("mul", right, left)
    return recognized(combined(n, "mul", left, right))  # as dropout in place, which torch.export takes apart


def reversed_subtraction(n: TorchNode) -> GraphValue:
    """other - alpha * self"""
    left, right = operands(n, n.dtype)
    alpha = n.plain("alpha", 1)
    return combined(n, "sub", right, left if alpha == 1 else left * float(alpha))


def division(n: TorchNode) -> GraphValue:
    b, mode = n.builder, n.plain("rounding_mode")
    whole = not is_float(n.dtype)
    left, right = operands(n, np.dtype(np.float64) if whole else n.dtype)
    quotient = combined(n, "div", left, right)
    if mode is None and not n.target.startswith("aten.floor_divide"):
        return quotient
    return b.cast(b.op("trunc" if mode == "trunc" else "floor", quotient), n.dtype)


def remainder(n: TorchNode) -> GraphValue:
    b = n.builder
    left, right = operands(n, n.dtype)
    if not isinstance(right, GraphValue):
        return b.op("_mod_scalar", left, scalar=float(right))
    return b.op("broadcast_mod", left, right)


def truncated_remainder(n: TorchNode) -> GraphValue:
    """fmod: self - trunc(self / other) * other, which has the sign of `self`."""
    b = n.builder
    left, right = operands(n, n.dtype)
    if not isinstance(left, GraphValue) or not is_float(n.dtype):
        raise NotSupportedError("fmod of whole numbers, or of a number and a tensor")
    whole = b.op("BlockGrad", b.op("trunc", combined(n, "div", left, right)))
    times = b.binary("mul", whole, right) if isinstance(right, GraphValue) else whole * float(right)
    return b.binary("sub", left, times)


def power(n: TorchNode) -> GraphValue:
    b = n.builder
    left, right = operands(n, n.dtype, "self", "exponent")
    if not isinstance(left, GraphValue):
        return b.reverse("power", right, float(left))
    if not isinstance(right, GraphValue):
        simple = {0.5: "sqrt", 2.0: "square", -0.5: "rsqrt", -1.0: "reciprocal"}.get(float(right))
        if simple is not None and is_float(left.dtype):
            return b.op(simple, left)
    return b.binary("power", left, right)


def arctangent(n: TorchNode) -> GraphValue:
    b = n.builder
    return b.op("arctan2", *expand_both(b.cast(n["self"], n.dtype), b.cast(n["other"], n.dtype)))


def log_added(left: GraphValue, right: GraphValue) -> GraphValue:
    """log(exp(a) + exp(b)) = max + log(1 + exp(-|a - b|)), where the gap of equal infinities is 0."""
    b = left.builder
    left, right = expand_both(left, right)
    gap = b.where(left.equals(right), b.full((), 0, left.dtype), b.binary("sub", left, right))
    rest = b.op("softplus", b.op("negative", b.op("abs", gap)))
    return b.binary("add", b.binary("maximum", left, right), rest)


def number_of_two(n: TorchNode) -> GraphValue:
    """fmax and fmin: the larger or less of two numbers, and of a number and nan the number."""
    left, right = operands(n, n.dtype)
    b = n.builder
    out = b.where(b.compare("not_equal", right, right), left, right)
    left = b.where(b.compare("not_equal", left, left), right, left)
    return b.binary("maximum" if "fmax" in n.target else "minimum", left, out)


def signed(n: TorchNode) -> GraphValue:
    """copysign: the size of `self` with the sign of `other`, of which 0 has none."""
    b, size = n.builder, n.builder.op("abs", in_result_type(n))
    other = n.plain("other")
    if isinstance(other, (bool, int, float)):
        return size if other >= 0 else b.op("negative", size)
    return b.where(n["other"] < 0.0, b.op("negative", size), size)


def scaled_by_power(n: TorchNode) -> GraphValue:
    """ldexp: self * 2^other"""
    b = n.builder
    return b.binary("mul", in_result_type(n), b.reverse("power", b.cast(n["other"], n.dtype), 2.0))


def number_class(n: TorchNode) -> GraphValue:
    """isnan, isinf, isfinite: an infinite number times 0 is no number, either."""
    b, x = n.builder, n["self"]
    if "isnan" in n.target:
        return b.compare("not_equal", x, x)
    if "isinf" in n.target:
        return b.op("abs", x).equals(float("inf"))
    return (x * 0.0).equals(0)


def nan_to_num(n: TorchNode) -> GraphValue:
    """nan_to_num: other numbers in the place of those that are none, or infinite."""
    b, x = n.builder, n["self"]
    most = float(np.finfo(x.dtype).max)
    places = [(float("inf"), n.plain("posinf", most)), (float("-inf"), n.plain("neginf", -most))]
    for place, number in places:
        x = b.where(x.equals(place), b.full((), float(number), x.dtype), x)
    return b.where(b.compare("not_equal", x, x), b.full((), float(n.plain("nan", 0.0)), x.dtype), x)


def _compare(kind: str) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        left = n["self"]
        other = n.plain("other")
        if isinstance(other, (bool, int, float)):
            if isinstance(other, float) and not is_float(left.dtype):
                left = n.builder.cast(left, np.float32)
            return n.builder.compare(kind, left, other if left.dtype != np.bool_ else int(other))
        right = n["other"]
        dtype = np.result_type(left.dtype, right.dtype)
        return n.builder.compare(kind, n.builder.cast(left, dtype), n.builder.cast(right, dtype))

    return convert


def _logic(kind: str) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        b = n.builder
        left, right = (b.cast(_truth(n[name]), np.uint8) for name in ("self", "other"))
        if kind == "xor":
            return b.compare("not_equal", left, right)
        return b.cast(b.binary("mul" if kind == "and" else "maximum", left, right), np.bool_)

    return convert


def _bits(kind: str) -> Callable[[TorchNode], GraphValue]:
    def convert(n: TorchNode) -> GraphValue:
        if n.dtype == np.bool_:
            return _logic(kind)(n)
        name = kind if kind.endswith("shift") else f"bitwise_{kind}"
        return n.builder.op(name, *(n.builder.cast(n[side], n.dtype) for side in ("self", "other")))

    return convert


def _truth(x: GraphValue) -> GraphValue:
    return x if x.dtype == np.bool_ else x.builder.compare("not_equal", x, 0)


def negation(n: TorchNode) -> GraphValue:
    x = n["self"]
    if n.dtype != np.bool_:
        return n.builder.op("bitwise_not", x)
    return x.builder.cast(x, np.uint8).equals(0) if x.dtype == np.bool_ else x.equals(0)


def where(n: TorchNode) -> GraphValue:
    b = n.builder
    chosen = [b.cast(n[name], n.dtype) for name in ("self", "other")]
    return b.where(_truth(n["condition"]), *chosen)


def masked_fill(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    return b.where(n["mask"], b.cast(n["value"], x.dtype), x)


def clamp(n: TorchNode) -> GraphValue:
    b, x = n.builder, in_result_type(n)
    low, high = n.plain("min"), n.plain("max")
    numbers = all(v is None or isinstance(v, (bool, int, float)) for v in (low, high))
    if numbers and low is not None and high is not None and is_float(x.dtype):
        return b.op("clip", x, a_min=float(low), a_max=float(high))
    for name, kind in (("min", "maximum"), ("max", "minimum")):
        limit = n.plain(name)
        if limit is not None:
            number = isinstance(limit, (bool, int, float))
            x = b.binary(kind, x, limit if number else b.cast(n[name], x.dtype))
    return x


def in_result_type(n: TorchNode) -> GraphValue:
    """`self` in the result's type."""
    return n.builder.cast(n["self"], n.dtype)


def addcmul(n: TorchNode) -> GraphValue:
    b = n.builder
    kind = "div" if "addcdiv" in n.target else "mul"
    term = b.binary(kind, n["tensor1"], n["tensor2"])
    value = n.plain("value", 1)
    return b.binary("add", n["self"], term if value == 1 else term * float(value))


def lerp(n: TorchNode) -> GraphValue:
    b, weight = n.builder, n.plain("weight")
    start, end = n["self"], n["end"]
    change = b.binary("sub", end, start)
    return b.binary(
        "add", start, b.binary("mul", change, weight if isinstance(weight, float) else n["weight"])
    )


def squared_error(left: GraphValue, right: GraphValue) -> GraphValue:
    """(left - right)^2, broadcasting."""
    b = left.builder
    return b.op("square", b.binary("sub", left, right))


def expand_both(left: GraphValue, right: GraphValue) -> tuple[GraphValue, GraphValue]:
    """Both at the shape they broadcast to."""
    shape = broadcast_shapes(left.shape, right.shape)
    return left.builder.expand(left, shape), left.builder.expand(right, shape)


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "add": _binary("add"),
    "addcdiv": addcmul,
    "addcmul": addcmul,
    "arctan2": arctangent,
    "atan2": arctangent,
    "bitwise_and": _bits("and"),
    "bitwise_not": negation,
    "bitwise_or": _bits("or"),
    "bitwise_xor": _bits("xor"),
    "clamp": clamp,
    "clamp_max": clamp,
    "clamp_min": clamp,
    "clip": clamp,
    "div": division,
    "eq": _compare("equal"),
    "floor_divide": division,
    "__and__": _bits("and"),
    "__or__": _bits("or"),
    "__xor__": _bits("xor"),
    **dict.fromkeys(("__lshift__", "bitwise_left_shift"), _bits("left_shift")),
    **dict.fromkeys(("__rshift__", "bitwise_right_shift"), _bits("right_shift")),
    "copysign": signed,
    **dict.fromkeys(("fmax", "fmin"), number_of_two),
    "fmod": truncated_remainder,
    "ge": _compare("greater_equal"),
    "greater": _compare("greater"),
    "gt": _compare("greater"),
    "hypot": lambda n: n.builder.op("broadcast_hypot", n["self"], n["other"]),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), number_class),
    "ldexp": scaled_by_power,
    "le": _compare("lesser_equal"),
    "less": _compare("lesser"),
    "lerp": lerp,
    "logaddexp": lambda n: log_added(n["self"], n["other"]),
    "logical_and": _logic("and"),
    "logical_not": negation,
    "logical_or": _logic("or"),
    "logical_xor": _logic("xor"),
    "lt": _compare("lesser"),
    "masked_fill": masked_fill,
    "maximum": _binary("maximum"),
    "minimum": _binary("minimum"),
    "mul": _multiplied,
    "multiply": _multiplied,
    "nan_to_num": nan_to_num,
    "ne": _compare("not_equal"),
    "pow": power,
    "remainder": remainder,
    "rsub": reversed_subtraction,
    "sub": _binary("sub"),
    "subtract": _binary("sub"),
    "true_divide": division,
    "where": where,
}
