"""Comparisons and logic of each element, with broadcasting and without.

The result is 1 or 0 in the operands' dtype, as in MXNet; for bool it is bool. None has a gradient.
"""

from __future__ import annotations

import math
from typing import Any

from ...core.dtype import is_floating
from ...core.errors import DTypeError
from ...te.steps import STEPS
from .broadcast import Broadcast
from .scalar import number_of, Scalar
from .unary import Unary


def require_whole(dtypes, wanted):
    """Raise DTypeError where one is known and floating, or bool where `wanted` has no bool."""
    for d in dtypes:
        if d is not None and (is_floating(d) or (d.kind == "b" and "bool" not in wanted)):
            raise DTypeError(f"needs {wanted}, got {d}; convert with Cast (astype), to int32 for instance.")


def _truth(w: Any, function: str, x: Any, y: Any) -> Any:
    """1 where the comparison or logical function of this name holds, else 0."""
    if function not in _LOGIC:
        return w.one_where(STEPS[function], x, y)
    x, y = (w.one_where("ne", v, 0.0) for v in (x, y))
    return w.one_where("ne", x, y) if function == "logical_xor" else w(_LOGIC[function], x, y)


_LOGIC = {"logical_and": "min", "logical_or": "max", "logical_xor": "ne"}
"""The step of numbers 0 and 1 that each logical function is."""


_COMPARED = "equal not_equal greater greater_equal lesser lesser_equal".split()


class _Compare(Broadcast):
    """Base: comparison of two arrays whose shapes broadcast; the result is 0 or 1."""

    abstract = True
    accepts = "any"

    @classmethod
    def can_step(cls):
        return True

    @classmethod
    def stepped(cls, w, a, **inputs):
        return {"out": _truth(w, cls.function, *inputs.values())}


class _Bits(Broadcast):
    """Base: bitwise operation on two arrays of whole numbers."""

    abstract = True
    accepts = "any"
    accepts_bool = True

    @classmethod
    def infer_type(cls, a, *dtypes):
        require_whole(dtypes, "bool or whole numbers" if cls.accepts_bool else "whole numbers")
        return super().infer_type(a, *dtypes)


class _CompareScalar(Scalar):
    """Base: comparison of an array and a number; the result is 0 or 1."""

    abstract = True
    accepts = "any"
    any_scalar = True

    @classmethod
    def can_step(cls):
        return True

    @classmethod
    def stepped(cls, w, a, **inputs):
        (x,) = inputs.values()
        return {"out": _truth(w, cls.function, x, number_of(w, a))}


_WHERE = {
    **{name: f"{{}} {sign} {{}}" for name, sign in zip(_COMPARED, "== != > >= < <=".split())},
    "logical_and": "both are not 0",
    "logical_or": "one is not 0 or both are",
    "logical_xor": "exactly one is not 0",
}
"""Comparisons and logical functions of two: the condition, in words or between the operands."""


def _of_arrays(name: str) -> type[_Compare]:
    """`broadcast_NAME`, of two arrays."""
    wanted = _WHERE[name].format("``lhs", "rhs``")
    return type(
        f"broadcast_{name}",
        (_Compare,),
        {
            "aliases": (f"_{name}", f"_{name.title()}", *([name] if name in _LOGIC else [])),
            "function": name.replace("lesser", "less"),
            "__doc__": f"1 where {wanted}, else 0, in the operands' dtype, with broadcasting. No gradient.",
            "__module__": __name__,
        },
    )


def _of_scalar(name: str) -> type[_CompareScalar]:
    """`_NAME_scalar`, of an array and a number."""
    wanted = _WHERE[name].format("``data", "scalar``")
    both = ", of `data` and `scalar`," if name in _LOGIC else ""
    return type(
        f"_{name}_scalar",
        (_CompareScalar,),
        {
            "aliases": (f"_{name.title().replace('_', '')}Scalar",),
            "function": name.replace("lesser", "less"),
            "__doc__": f"""1 where{both} {wanted}, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """,
            "__module__": __name__,
        },
    )


for _of in (_of_arrays, _of_scalar):
    globals().update((op.__name__, op) for op in map(_of, _WHERE))


class logical_not(Unary):
    """1 where `data` is 0, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    function = "logical_not"

    @staticmethod
    def compute(w, a, data):
        return {"out": w.one_where("eq", data, 0.0)}


class isnan(Unary):
    """1 where `data` is not a number, else 0, in the dtype of `data`, as MXNet's contrib.isnan.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isnan",)
    function = "isnan"

    @staticmethod
    def compute(w, a, data):
        return {"out": w.one_where("ne", data, data)}


class isinf(Unary):
    """1 where `data` is plus or minus infinity, else 0, in the dtype of `data`, as MXNet's contrib.isinf.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isinf",)
    function = "isinf"

    @staticmethod
    def compute(w, a, data):
        return {"out": w.one_where("eq", w("abs", data), math.inf)}


class isfinite(Unary):
    """1 where `data` is a number and not infinite, else 0, in the dtype of `data`.

    data: (...)  ->  out: (...). No gradient.
    """

    aliases = ("_contrib_isfinite",)
    function = "isfinite"

    @staticmethod
    def compute(w, a, data):
        return {"out": w.one_where("lt", w("abs", data), math.inf)}


class bitwise_and(_Bits):
    """Bitwise and with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_and",)
    function = "bitwise_and"


class bitwise_or(_Bits):
    """Bitwise or with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_or",)
    function = "bitwise_or"


class bitwise_xor(_Bits):
    """Bitwise exclusive or with broadcasting; of bool it is the logical one.

    lhs, rhs: shapes that broadcast, of a whole-number type or bool  ->  out: their common shape. No gradient.
    """

    aliases = ("broadcast_bitwise_xor",)
    function = "bitwise_xor"


class left_shift(_Bits):
    """`lhs` with its bits moved `rhs` places towards the high end, with broadcasting; zeros come in.

    lhs, rhs: shapes that broadcast, of a whole-number type  ->  out: their common shape. No gradient.
    """

    accepts_bool = False
    function = "left_shift"


class right_shift(_Bits):
    """`lhs` with its bits moved `rhs` places towards the low end, with broadcasting; the sign is kept.

    lhs, rhs: shapes that broadcast, of a whole-number type  ->  out: their common shape. No gradient.
    """

    accepts_bool = False
    function = "right_shift"


class bitwise_not(Unary):
    """Every bit inverted; for bool the logical not.

    data: (...), of a whole-number type or bool  ->  out: (...). No gradient.
    """

    function = "invert"

    @classmethod
    def infer_type(cls, a, *dtypes):
        require_whole(dtypes, "bool or whole numbers")
        return super().infer_type(a, *dtypes)
