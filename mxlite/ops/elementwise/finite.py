"""Tests of all elements: that they are finite, as for gradients with loss scaling, or close to others."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from ...core.dtype import FLAGS, float32, is_floating
from ...core.errors import DTypeError, OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import pieces

PIECE = 65536  # elements tested at a time


def finite_pieces(xp: Any, arrays: Iterable[Any], work: Any) -> bool:
    """True if no element of `arrays` is inf or nan; `work` has a byte for each of at most PIECE elements."""
    truth = work.view(np.bool_)
    for x in arrays:
        flat = x.reshape(-1)
        for begin in range(0, flat.size, PIECE):
            part = flat[begin : begin + PIECE]
            if not xp.isfinite(part, out=truth[: part.size]).all():
                return False
    return True


def checked_types(name: str, dtypes: Any) -> None:
    """Raise DTypeError unless all known types are floating."""
    for d in dtypes:
        if d is not None and not is_floating(d):
            raise DTypeError(f"{name} looks at floating-point numbers, got {d}.")


def refuse_kept_output(a: Any) -> None:
    """Refuse `init_output=False`, which would read the output's old contents: outputs here have none."""
    if not a.init_output:
        raise OpAttributeError(
            "init_output=False asks for what the output held before; call multi_all_finite on all arrays."
        )


def counted_names(op: type[Op], a: Any) -> tuple[str, ...]:
    """`Op.input_names` where a user counts the inputs as `num_arrays`, or leaves that to the call."""
    return tuple(f"arg{i}" for i in range(a.num_args or a.num_arrays))


class all_finite(Op):
    """1 if every element of `data` is finite, else 0.

    data: (...) of a floating type  ->  out: (1,) float32. No gradient. Of an empty array 1.
    """

    inputs = ("data",)
    recomputable = False

    @record
    class Attrs:
        init_output: bool = True

        def __post_init__(self) -> None:
            refuse_kept_output(self)

    @staticmethod
    def infer_shape(a, data):
        return (data,), ((1,),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        checked_types(cls.op_name, dtypes)
        return dtypes, (float32,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return min(PIECE, prod(inputs[0]))

    @staticmethod
    def compute(t, a, data):
        return {"out": t.min(t.one_where("eq", data - data, 0.0))}

    @staticmethod
    def forward(xp, a, data, *, out, work):
        out.fill(finite_pieces(xp, (data,), work))


class multi_all_finite(Op):
    """1 if every element of all arrays is finite, else 0.

    args: `num_arrays` arrays (...) of floating types  ->  out: (1,) float32. No gradient.
    """

    variadic = "args"
    recomputable = False

    @record
    class Attrs:
        num_arrays: int = 0
        init_output: bool = True
        num_args: int = 0

        def __post_init__(self) -> None:
            refuse_kept_output(self)

    input_names = classmethod(counted_names)

    @staticmethod
    def infer_shape(a, *shapes):
        return shapes, ((1,),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        checked_types(cls.op_name, dtypes)
        return dtypes, (float32,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return min(PIECE, max(map(prod, inputs), default=0))

    @staticmethod
    def forward(xp, a, *args, out, work):
        out.fill(finite_pieces(xp, args, work))


class _contrib_allclose(Op):
    """1 if all elements of two arrays are close to each other, ``|a - b| <= atol + rtol * |b|``, else 0.

    a, b: (...), of one shape and type  ->  out: () uint8. No gradient. With `equal_nan`, the default here as
    in MXNet, nan is close to nan; an infinity is close to itself alone.
    """

    inputs = ("a", "b")
    recomputable = False

    @record
    class Attrs:
        rtol: float = 1e-5
        atol: float = 1e-8
        equal_nan: bool = True

    @staticmethod
    def infer_shape(a, *shapes):
        if shapes[0] != shapes[1]:
            raise ShapeError(f"a and b must have one shape, got {shapes[0]} and {shapes[1]}.")
        return shapes, ((),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        kind = next((d for d in dtypes if d is not None), None)
        return (kind, kind), (FLAGS[3],)

    @staticmethod
    def forward(xp, how, a, b, *, out):
        for first, second in pieces(a, b):
            if not xp.isclose(first, second, how.rtol, how.atol, equal_nan=how.equal_nan).all():
                out.fill(0)
                return
        out.fill(1)
