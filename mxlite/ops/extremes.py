"""Maxima and minima over axes."""

from __future__ import annotations

from math import prod as product

from ..core.dtype import as_dtype
from .reduce import kept_shape, NonEmpty, reduced_axes, spread
from .scratch import carve, scratch_bytes

BYTES = 1 << 13  # of bits at a time


class _Extreme(NonEmpty):
    """The largest or smallest of some elements.

    Backward wants to know which elements are equal to the result: one bit for each, not the elements.
    """

    outputs = ("out", "chosen")
    hidden = 1

    @classmethod
    def infer_shape(cls, a, data):
        ins, outs = super().infer_shape(a, data)
        return ins, (*outs, ((product(data) + 7) // 8,))

    @classmethod
    def infer_type(cls, a, *dtypes):
        ins, outs = super().infer_type(a, *dtypes)
        return ins, (outs[0], as_dtype("uint8"))

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return scratch_bytes(_pieces(a, inputs[0], dtype))


class max(_Extreme):
    """Largest element over axes; nan if there is one.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    Every element equal to the maximum gets the whole gradient.
    """

    aliases = ("max_axis",)

    @staticmethod
    def forward(xp, a, data, *, out, chosen, work):
        _extreme(xp, a, xp.maximum, data, out, chosen, work)

    @staticmethod
    def backward(xp, a, d_out, chosen, *, d_data):
        _where_chosen(xp, a, d_out, chosen, d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return _to_the_extreme(w, a, ins, outs, heads)


class min(_Extreme):
    """Smallest element over axes; nan if there is one.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    Every element equal to the minimum gets the whole gradient.
    """

    aliases = ("min_axis",)

    @staticmethod
    def forward(xp, a, data, *, out, chosen, work):
        _extreme(xp, a, xp.minimum, data, out, chosen, work)

    @staticmethod
    def backward(xp, a, d_out, chosen, *, d_data):
        _where_chosen(xp, a, d_out, chosen, d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return _to_the_extreme(w, a, ins, outs, heads)


def _to_the_extreme(w, a, ins, outs, heads):
    chosen = w.broadcast_equal(ins["data"], spread(w, a, outs["out"], ins["data"]))
    return {"data": w.elemwise_mul(spread(w, a, heads["out"], ins["data"]), chosen)}


def _extreme(xp, a, ufunc, data, out, chosen, work):
    """Reduce, and note in the bits of `chosen` which elements are equal to the result."""
    whole, equal = carve(work, _pieces(a, data.shape, data.dtype))
    kept = (whole if out is None else out).reshape(kept_shape(a, data.shape))
    if not kept.size:
        return
    ufunc.reduce(data, axis=reduced_axes(a, data.ndim), keepdims=True, out=kept)
    if chosen is not None:
        xp.equal(data, kept, out=equal.reshape(data.shape))
        for i in range(0, len(chosen), BYTES):
            chosen[i : i + BYTES] = xp.packbits(equal[8 * i : 8 * (i + BYTES)])


def _pieces(a, shape, dtype):
    """The result, should nobody want it, and a truth value for each element."""
    return [((product(kept_shape(a, shape)),), dtype), ((product(shape),), as_dtype("bool"))]


def _where_chosen(xp, a, d_out, chosen, d_data):
    flat = d_data.reshape(-1)
    for i in range(0, len(chosen), BYTES):
        part = flat[8 * i : 8 * (i + BYTES)]
        part[...] = xp.unpackbits(chosen[i : i + BYTES], count=part.size)
    xp.multiply(d_data, d_out.reshape(kept_shape(a, d_data.shape)), out=d_data)
