"""Running sums and products along an axis."""

from __future__ import annotations

from math import prod

from ...core.dtype import as_dtype
from ...core.errors import DerivativeError, ShapeError
from ...core.record import record
from ..declared import Declared


@record
class CumulativeAttrs:
    """`exclusive` leaves each element itself out, `reverse` starts at the end: ONNX's, MXNet has neither."""

    axis: int | None = None
    dtype: str | None = None
    exclusive: bool = False
    reverse: bool = False


class _Cumulative(Declared):
    """One array to its running totals."""

    abstract = True
    inputs = ("a",)
    accepts = "number"
    Attrs = CumulativeAttrs
    gradients = ("a",)

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

    backward_reads = ("d_out",)

    @staticmethod
    def compute(t, attrs, a):
        x, axis = _along(t, attrs, a)
        return {"out": t.scan(x, axis, reverse=attrs.reverse, exclusive=attrs.exclusive)}

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        if a.dtype is not None:
            raise DerivativeError("cumsum with dtype has no gradient of a gradient; Cast the result instead.")
        back = w.cumsum(heads["out"], axis=a.axis, exclusive=a.exclusive, reverse=not a.reverse)
        return {"a": back if a.axis is not None else w.reshape_like(back, ins["a"])}


class cumprod(_Cumulative):
    """Running product along `axis`, or over the flattened array, ``out[i] = a[0] * ... * a[i]``.

    a: (...)  ->  out: (...), of `dtype` if that is given; with ``axis=None`` as long as `a` has elements.
    Its gradient of a gradient is nan where `a` is 0. As numpy's cumprod; MXNet has none.
    """

    backward_reads = ("d_out", "a")

    @staticmethod
    def compute(t, attrs, a):
        x, axis = _along(t, attrs, a)
        return {"out": t.scan(0.0, axis, x, 1.0, attrs.reverse, attrs.exclusive)}

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


def _along(t, attrs, a):
    """The array, flat without an axis, and the axis; cut to whole numbers if totals are."""
    x, axis = (t.view(a, (prod(a.shape),)), 0) if attrs.axis is None else (a, attrs.axis)
    is_whole = attrs.dtype is not None and as_dtype(attrs.dtype).kind in "iu"
    return t.trunc(x) if is_whole else x, axis
