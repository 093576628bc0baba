"""Sorted elements: sort, argsort and topk. The algorithm is in `order.py`."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np

from ...core.dtype import as_dtype
from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import Op
from .order import Lines, order_bytes, orders, put_back, take_values

_INT32 = np.dtype("int32")
_COUNTS_TO = {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}


def _logarithm(length: int) -> int:
    return max(1, length - 1).bit_length()


class _Ordered(Op):
    inputs = ("data",)

    @staticmethod
    def flops(a, inputs, outputs):
        return prod(inputs[0]) * _logarithm(Lines.of(inputs[0], a.axis).length)

    @classmethod
    def backward_flops(cls, a, inputs, outputs):
        return 0

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return order_bytes(inputs[0], a.axis, dtype)


class sort(_Ordered):
    """The elements in order along `axis`; those of the flattened array if `axis` is None.

    data: (...)  ->  out: (...), same shape; (elements,) without an axis. The order is stable; nan is the
    largest. The gradient goes where the elements came from; for it, their positions are kept as int32.
    """

    outputs = ("out", "places")
    hidden = 1

    @record
    class Attrs:
        axis: int | None = -1
        is_ascend: bool = True

    @staticmethod
    def infer_shape(a, data):
        return (data,), (_whole(a, data),) * 2

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (dtypes[0], _INT32)

    @staticmethod
    def forward(xp, a, data, *, out, places, work):
        lines = Lines.of(data.shape, a.axis)
        for block, positions, spare in orders(xp, data, a.axis, lines.length, a.is_ascend, work):
            if places is not None:
                lines.seen(places)[block] = positions
            if out is not None:
                lines.places(xp, block, positions)
                take_values(xp, data, positions, spare, lines.seen(out)[block])

    @staticmethod
    def backward(xp, a, d_out, places, *, d_data):
        put_back(xp, a.axis, places, d_out, d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": _put_back(w, a, ins["data"], outs["places"], heads["out"])}


def _whole(a: Any, data: Shape) -> Shape:
    """The shape of the sorted array."""
    lines = Lines.of(data, a.axis)
    if lines.length >= 1 << 31:
        raise ShapeError(f"lines of 2**31 elements or more are not sorted, data is {data}.")
    return data if a.axis is not None else (lines.length,)


def _put_back(w: Any, a: Any, data: Any, places: Any, head: Any) -> Any:
    zeros = w.zeros_like(data)
    if a.axis is None:
        flat = w.Reshape(zeros, shape=(-1,))
        return w.reshape_like(w.scatter_elements(flat, places, head, axis=0, reduction="add"), data)
    return w.scatter_elements(zeros, places, head, axis=a.axis, reduction="add")


class argsort(_Ordered):
    """The positions of the elements in order along `axis`; in the flattened array when `axis` is None.

    data: (...)  ->  out: (...) of `dtype`, same shape; (elements,) without an axis. The order is stable; nan
    is the largest. No gradient.
    """

    @record
    class Attrs:
        axis: int | None = -1
        is_ascend: bool = True
        dtype: str = "float32"

        def __post_init__(self) -> None:
            as_dtype(self.dtype)

    @staticmethod
    def infer_shape(a, data):
        out = _whole(a, data)
        _countable(a, data)
        return (data,), (out,)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (as_dtype(a.dtype),)

    @staticmethod
    def forward(xp, a, data, *, out, work):
        lines = Lines.of(data.shape, a.axis)
        for block, positions, _ in orders(xp, data, a.axis, lines.length, a.is_ascend, work):
            lines.seen(out)[block] = positions


def _countable(a: Any, data: Shape) -> None:
    """Raise ShapeError unless `a.dtype` holds every position exactly."""
    dtype = as_dtype(a.dtype)
    most = _COUNTS_TO.get(str(dtype)) or (2 if dtype.kind == "b" else int(np.iinfo(dtype).max) + 1)
    length = Lines.of(data, a.axis).length
    if length > most:
        raise ShapeError(
            f"dtype {dtype} does not hold positions up to {length}; take dtype='int32' or wider."
        )


class topk(_Ordered):
    """The `k` largest elements along `axis`, largest first; the smallest with `is_ascend`; all if `k` is 0.

    data: (...)  ->  by `ret_typ`
      "value"    the elements, `axis` k long
      "indices"  their positions, as `dtype`
      "both"     two outputs, these
      "mask"     the shape of `data`: 1 at those elements, 0 elsewhere
    Without an axis (None) the flattened array is searched, and values and indices are (k,). Equals come in
    their order; nan is the largest. The gradient of values goes to their sources; indices and masks
    have none.
    """

    outputs = ("output0", "output1", "places")

    @record
    class Attrs:
        axis: int | None = -1
        k: int = 1
        ret_typ: Literal["both", "indices", "mask", "value"] = "indices"
        is_ascend: bool = False
        dtype: str = "float32"

        def __post_init__(self) -> None:
            as_dtype(self.dtype)

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        return {"value": ("output0", "places"), "both": cls.outputs}.get(a.ret_typ, ("output0",))

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 2 if a.ret_typ == "both" else 1

    @staticmethod
    def infer_shape(a, data):
        lines = Lines.of(data, a.axis)
        _whole(a, data)
        if not 0 <= a.k <= lines.length:
            raise ShapeError(f"k={a.k} must be in [0, {lines.length}] for data {data} and axis {a.axis}.")
        if a.ret_typ in ("indices", "both"):
            _countable(a, data)
        if a.ret_typ == "mask":
            return (data,), (data,)
        k = a.k or lines.length
        axis = None if a.axis is None else a.axis % len(data)
        part = (k,) if axis is None else (*data[:axis], k, *data[axis + 1 :])
        return (data,), (part,) * len(topk.output_names(a))

    @classmethod
    def infer_type(cls, a, *dtypes):
        (data,) = dtypes
        made = {
            "value": (data, _INT32),
            "both": (data, as_dtype(a.dtype), _INT32),
            "indices": (as_dtype(a.dtype),),
            "mask": (data,),
        }
        return dtypes, made[a.ret_typ]

    @staticmethod
    def forward(xp, a, data, *, output0, output1, places, work):
        lines = Lines.of(data.shape, a.axis)
        k = a.k or lines.length
        values = output0 if a.ret_typ in ("value", "both") else None
        indices = output1 if a.ret_typ == "both" else output0 if a.ret_typ == "indices" else None
        if a.ret_typ == "mask":
            output0.fill(0)
        for block, found, spare in orders(xp, data, a.axis, k, a.is_ascend, work):
            for positions in (indices, places):
                if positions is not None:
                    lines.seen(positions, k)[block] = found
            lines.places(xp, block, found)
            if a.ret_typ == "mask":
                output0.reshape(-1)[found] = 1
            if values is not None:
                take_values(xp, data, found, spare, lines.seen(values, k)[block])

    @staticmethod
    def backward(xp, a, d_output0, places, *, d_data):
        if d_output0 is None or places is None:
            d_data.fill(0)
        else:
            put_back(xp, a.axis, places, d_output0, d_data)

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset() if a.ret_typ in ("value", "both") else frozenset(("d_output0",))

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        if a.ret_typ not in ("value", "both") or "output0" not in heads:
            return {}
        return {"data": _put_back(w, a, ins["data"], outs["places"], heads["output0"])}
