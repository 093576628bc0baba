"""Maxima and minima over axes."""

from __future__ import annotations

from math import prod as product
from typing import ClassVar

from ...core.dtype import as_dtype
from ...core.errors import ShapeError
from ...graph.opdef import Op
from ..scratch import carve, scratch_bytes
from .reduce import kept_shape, NonEmpty, reduced_axes, spread

BYTES = 1 << 13  # bytes of bits processed at a time


class _Extreme(NonEmpty):
    """Base: the largest or smallest of some elements, by numpy's `function`.

    Backward reads which elements are equal to the result: one bit for each, not the elements.
    """

    abstract = True
    outputs = ("out", "chosen")
    hidden = 1
    function: ClassVar[str]

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

    @classmethod
    def compute(cls, t, a, data):
        """Which elements are chosen is one bit for each, which no tensor is."""
        return {"out": t.reduce(f"reduce_{cls.function[:3]}", data, reduced_axes(a, len(data.shape)))}

    @classmethod
    def forward(cls, xp, a, data, *, out, chosen, work):
        _extreme(xp, a, getattr(xp, cls.function), data, out, chosen, work)

    @staticmethod
    def backward(xp, a, d_out, chosen, *, d_data):
        _unpack(xp, chosen, d_data)
        xp.multiply(d_data, d_out.reshape(kept_shape(a, d_data.shape)), out=d_data)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        x = ins["data"]
        return {"data": w.elemwise_mul(spread(w, a, heads["out"], x), w._bits_like(outs["chosen"], x))}


class max(_Extreme):
    """Largest element over axes; nan if there is one.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    Every element equal to the maximum gets the whole gradient; where that is nan, every nan.
    """

    aliases = ("max_axis",)
    function = "maximum"


class min(_Extreme):
    """Smallest element over axes; nan if there is one.

    data: (...)  ->  out: `data`'s shape without the axes `axis`; (1,) if none is left.
    Every element equal to the minimum gets the whole gradient; where that is nan, every nan.
    """

    aliases = ("min_axis",)
    function = "minimum"


def _extreme(xp, a, ufunc, data, out, chosen, work):
    """Reduce, and store in the bits of `chosen` which elements are equal to the result, or nan as it is."""
    whole, equal = carve(work, _pieces(a, data.shape, data.dtype))
    kept = (whole if out is None else out).reshape(kept_shape(a, data.shape))
    if not kept.size:
        return
    ufunc.reduce(data, axis=reduced_axes(a, data.ndim), keepdims=True, out=kept)
    if chosen is not None:
        xp.equal(data, kept, out=equal.reshape(data.shape))
        flat = data.reshape(-1)
        for i in range(0, len(chosen), BYTES):
            part = slice(8 * i, 8 * (i + BYTES))
            equal[part] |= flat[part] != flat[part]  # a nan among the elements is the result
            chosen[i : i + BYTES] = xp.packbits(equal[part])


def _pieces(a, shape, dtype):
    """The result, if it is not an output, and a truth value for each element."""
    return [((product(kept_shape(a, shape)),), dtype), ((product(shape),), as_dtype("bool"))]


def _unpack(xp, bits, out):
    flat = out.reshape(-1)
    for i in range(0, len(bits), BYTES):
        part = flat[8 * i : 8 * (i + BYTES)]
        part[...] = xp.unpackbits(bits[i : i + BYTES], count=part.size)


class BitsLike(Op):
    """The bits of `data` as 0 and 1, ``out[i] = data[i // 8] >> (7 - i % 8) & 1`` of flat arrays. No
    gradient.

    data: (ceil(elements / 8),) uint8;  like: (...), read for its shape and type only  ->  out: as `like`.
    """

    op_name = "_bits_like"
    inputs = ("data", "like")
    shape_only = ("like",)

    @staticmethod
    def infer_shape(a, *shapes):
        data, like = shapes
        if data != ((product(like) + 7) // 8,):
            raise ShapeError(f"the bits for {like} are ({(product(like) + 7) // 8},), got {data}.")
        return (data, like), (like,)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return (as_dtype("uint8"), dtypes[1]), (dtypes[1],)

    @staticmethod
    def forward(xp, a, data, like, *, out):
        _unpack(xp, data, out)
