"""Running sums and products along an axis."""

from __future__ import annotations

from math import prod

from ...core.dtype import as_dtype
from ...core.errors import DerivativeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import PIECE
from ..scratch import accumulator


@record
class CumulativeAttrs:
    """`exclusive` leaves each element itself out, `reverse` starts at the end: ONNX's, MXNet has neither."""

    axis: int | None = None
    dtype: str | None = None
    exclusive: bool = False
    reverse: bool = False


class _Cumulative(Op):
    """One array to its running totals."""

    inputs = ("a",)
    accepts = "number"
    Attrs = CumulativeAttrs

    @staticmethod
    def infer_shape(a, data):
        if a.axis is None:
            return (data,), ((prod(data),),)
        if not -len(data) <= a.axis < len(data):
            raise ShapeError(f"axis {a.axis} is not one of an array of {len(data)} axes.")
        return (data,), (data,)

    @classmethod
    def infer_type(cls, a, *dtypes):
        ins, outs = super().infer_type(a, *dtypes)
        return ins, outs if a.dtype is None else (as_dtype(a.dtype),)


class cumsum(_Cumulative):
    """Running sum along `axis`, or over the flattened array, ``out[i] = a[0] + ... + a[i]``.

    a: (...)  ->  out: (...), of `dtype` if that is given; with ``axis=None`` as long as `a` has elements.
    The gradient is the running sum of `d_out` from the other end.
    """

    @staticmethod
    def forward(xp, attrs, a, *, out):
        _run(xp, xp.add, attrs, a, out)

    @staticmethod
    def backward(xp, attrs, d_out, *, d_a):
        back = CumulativeAttrs(attrs.axis, None, attrs.exclusive, not attrs.reverse)
        _run(xp, xp.add, back, d_out if attrs.axis is not None else d_out.reshape(d_a.shape), d_a)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        if a.dtype is not None:
            raise DerivativeError("cumsum with dtype has no gradient of a gradient; Cast the result instead.")
        back = w.cumsum(heads["out"], axis=a.axis, exclusive=a.exclusive, reverse=not a.reverse)
        return {"a": back if a.axis is not None else w.reshape_like(back, ins["a"])}


class cumprod(_Cumulative):
    """Running product along `axis`, or over the flattened array, ``out[i] = a[0] * ... * a[i]``.

    a: (...)  ->  out: (...), of `dtype` if that is given; with ``axis=None`` as long as `a` has elements.
    The gradient is the running sum of ``d_out * out`` from the other end, divided by `a`: nan where `a` is 0.
    As numpy's cumprod; MXNet has none.
    """

    @staticmethod
    def forward(xp, attrs, a, *, out):
        _run(xp, xp.multiply, attrs, a, out)

    @staticmethod
    def backward(xp, attrs, d_out, a, out, *, d_a):
        flat = d_a if attrs.axis is not None else d_a.reshape(-1)
        xp.multiply(d_out, out, out=flat, casting="unsafe")
        back = CumulativeAttrs(attrs.axis, None, attrs.exclusive, not attrs.reverse)
        _run(xp, xp.add, back, d_a, d_a)
        xp.divide(d_a, a, out=d_a, casting="unsafe")

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        if a.dtype is not None:
            raise DerivativeError(
                "cumprod with dtype has no gradient of a gradient; Cast the result instead."
            )
        terms = w.elemwise_mul(heads["out"], outs["out"])
        back = w.cumsum(terms, axis=a.axis, exclusive=a.exclusive, reverse=not a.reverse)
        back = back if a.axis is not None else w.reshape_like(back, ins["a"])
        return {"a": w.elemwise_div(back, ins["a"])}


def _run(xp, ufunc, a, data, out):
    """Blocks of at most PIECE elements; a carry goes from one to the next along the axis. May be in place."""
    if not data.size:
        return
    shape = (data.size,) if a.axis is None else data.shape
    axis = (a.axis or 0) % len(shape)
    outer, length, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    source, target = data.reshape(outer, length, inner), out.reshape(outer, length, inner)
    if a.reverse:
        source, target = source[:, ::-1], target[:, ::-1]
    long = min(length, PIECE)
    wide = min(inner, PIECE // long)
    rows = PIECE // (long * wide)
    kind = accumulator(out.dtype)
    for i in range(0, outer, rows):
        for j in range(0, inner, wide):
            carry = None
            for k in range(0, length, long):
                block = source[i : i + rows, k : k + long, j : j + wide].astype(kind)
                if carry is not None:
                    ufunc(block[:, :1], carry, out=block[:, :1])
                ufunc.accumulate(block, axis=1, out=block)
                into = target[i : i + rows, k : k + long, j : j + wide]
                if a.exclusive:
                    into[:, :1] = ufunc.identity if carry is None else carry
                    into[:, 1:] = block[:, :-1]
                else:
                    into[...] = block
                carry = block[:, -1:].copy()
