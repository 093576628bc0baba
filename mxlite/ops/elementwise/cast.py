"""Casts to another dtype."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ...core.dtype import as_dtype, float32, is_floating
from ...core.errors import DTypeError
from ...core.record import record
from ...graph.opdef import DType, Op
from ..shape.reshape import Move


def narrowed(w: Any, x: Any, dtype: str) -> Any:
    """x cast to `dtype` by a step; None if that is no floating type."""
    if dtype in ("float16", "bfloat16"):
        return w(f"to_{dtype}", x)
    return x if dtype == "float32" else None


def _cast(w: Any, x: Any, dtype: str, name: str) -> Any:
    made = narrowed(w, x, dtype)
    return None if made is None else {name: made}


class Cast(Move):
    """A cast to another dtype; to whole numbers values are cut towards 0.

    data: (...)  ->  out: (...) of `dtype`. The gradient is cast back.
    """

    aliases: ClassVar[tuple[str, ...]] = ("cast",)
    same_shape = True
    elementwise = True

    @record
    class Attrs:
        dtype: str

        def __post_init__(self) -> None:
            as_dtype(self.dtype)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (as_dtype(a.dtype),)

    @staticmethod
    def compute(w, a, data):
        return _cast(w, data, a.dtype, "out")

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return _cast(w, heads["out"], str(w.dtype), "d_data")

    @staticmethod
    def forward(xp, a, data, *, out):
        xp.copyto(out, data, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, *, d_data):
        xp.copyto(d_data, d_out, casting="unsafe")

    @classmethod
    def touched_rows(cls, a, ins, out_rows, csr):
        return {} if out_rows is None else {"data": out_rows}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w._cast_like(heads["out"], ins["data"])}


class amp_cast(Cast):
    """A cast to another floating type; whole numbers stay as they are.

    data: (...)  ->  out: (...) of `dtype` if `data` is floating, else as `data`. The gradient is cast back.
    """

    aliases = ()
    same_shape = True

    @classmethod
    def infer_type(cls, a, *dtypes):
        (data,) = dtypes
        out = None if data is None else as_dtype(a.dtype) if is_floating(data) else data
        return dtypes, (out,)


class CastLike(Move):
    """A cast of `lhs` to the dtype of `rhs`.

    lhs: (...);  rhs: (...), read for its dtype only  ->  out: as `lhs`. The gradient of `lhs` is cast back.
    """

    op_name = "_cast_like"
    inputs = ("lhs", "rhs")
    shape_only = ("rhs",)
    same_type = ("rhs",)

    @staticmethod
    def infer_shape(a, lhs, rhs):
        return (lhs, rhs), (lhs,)

    @staticmethod
    def forward(xp, a, lhs, rhs, *, out):
        xp.copyto(out, lhs, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, *, d_lhs):
        xp.copyto(d_lhs, d_out, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"lhs": w._cast_like(heads["out"], ins["lhs"])}


class Shore(Move):
    """A cast whose gradients are scaled on one side: see graph/mixed_precision.py.

    data: (...);  scale: (2,), float32, the scale of gradients S and 1 / S  ->  out: (...) of `dtype`.
    Gradient ``d_data = d_out / S`` if the output lies on the scaled side (`enters`), otherwise ``d_out * S``.
    """

    op_name = "_shore"
    inputs = ("data", "scale")
    inferred = ("scale",)
    shape_only = ("scale",)
    elementwise = True

    @record
    class Attrs:
        dtype: str
        enters: bool

        def __post_init__(self) -> None:
            as_dtype(self.dtype)

    @staticmethod
    def infer_shape(a, data, scale=None):
        return (data, (2,)), (data,)

    @classmethod
    def touched_rows(cls, a, ins, out_rows, csr):
        return {} if out_rows is None else {"data": out_rows}

    @classmethod
    def infer_type(cls, a, *dtypes):
        if dtypes[1] not in (None, float32):
            raise DTypeError(f"scale must be float32, got {dtypes[1]}.")
        return (dtypes[0], float32), (as_dtype(a.dtype),)

    @staticmethod
    def compute(w, a, data, scale):
        return _cast(w, data, a.dtype, "out")

    @staticmethod
    def compute_gradient(w, a, heads, arrays):
        return None  # the scale is an array of numbers

    @staticmethod
    def forward(xp, a, data, scale, *, out):
        xp.copyto(out, data, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_out, scale, *, d_data):
        wide = max(d_out.dtype, d_data.dtype, float32, key=lambda kind: kind.itemsize)
        factor = scale[1:] if a.enters else scale[:1]
        xp.multiply(d_out, factor, out=d_data, dtype=wide, casting="unsafe")


class amp_multicast(Op):
    """Several arrays in one floating type: the widest of theirs, or the narrowest with `cast_narrow`.

    args: `num_outputs` arrays (...) of any shapes  ->  output0, ...: each as its input, in the one dtype.
    Arrays of whole numbers stay as they are and have no influence. Gradients are cast back.
    """

    variadic = "args"
    variadic_outputs = "outs"
    cheap = True
    flops_per_output = 0

    @record
    class Attrs:
        num_outputs: int = 0
        cast_narrow: bool = False
        num_args: int = 0

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(cls.num_outputs_of(a)))

    @classmethod
    def num_outputs_of(cls, a: Any) -> int:
        return a.num_args or a.num_outputs

    @staticmethod
    def infer_shape(a, *shapes):
        return shapes, shapes

    @classmethod
    def infer_type(cls, a, *dtypes):
        if any(d is None for d in dtypes):
            return dtypes, tuple(d if d is not None and not is_floating(d) else None for d in dtypes)
        floats = [d for d in dtypes if is_floating(d)]
        one = (min if a.cast_narrow else max)(floats, key=_width, default=None)
        return dtypes, tuple(one if is_floating(d) else d for d in dtypes)

    @staticmethod
    def forward(xp, a, *args, outs):
        for arg, out in zip(args, outs):
            if out is not None:
                xp.copyto(out, arg, casting="unsafe")

    @staticmethod
    def backward(xp, a, d_outs, *, d_args):
        for d_out, d_arg in zip(d_outs, d_args):
            if d_arg is None:
                continue
            if d_out is None:
                d_arg.fill(0)
            else:
                xp.copyto(d_arg, d_out, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {n: w._cast_like(heads[o], ins[n]) for n, o in zip(ins, outs) if o in heads}


def _width(dtype: DType) -> tuple[int, bool]:
    """An order of types: wider types are larger; of the two-byte ones bfloat16 has the wider range."""
    return dtype.itemsize, dtype != np.dtype("float16")
