"""Random classes from arrays of probabilities."""

from __future__ import annotations

from math import prod
from typing import Literal

import numpy as np

from ...core.dtype import as_dtype, float32, is_floating
from ...core.errors import DTypeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..scratch import carve, scratch_bytes
from .philox import RandomStream

_PIECE = 1024  # samples at a time
_ROWS = 1024  # the most distributions at a time: their number takes ten bits of a sum's 53


class SampleMultinomial(Op):
    """Random classes, class k with probability ``data[..., k]``.

    data: (s..., K)  ->  out: (s..., t...), where (t...) = `shape`, in `dtype`;  with `get_prob` also prob:
    the same shape, log(data[..., out]), of data's dtype. For one distribution and no `shape`, (1,).

    Probabilities that do not sum to 1 are divided by their sum (MXNet 1.9.1 returns class K then, now and
    then). The gradient, of `prob` only, is d_prob / data at the classes drawn: with rewards as d_prob that is
    REINFORCE (R. J. Williams, 1992).
    """

    op_name = "_sample_multinomial"
    aliases = ("sample_multinomial",)
    inputs = ("data",)
    outputs = ("out", "prob")
    random = True

    @record
    class Attrs:
        shape: tuple[int, ...] = ()
        get_prob: bool = False
        dtype: Literal["float16", "float32", "float64", "int32", "uint8", "int64"] = "int32"

    @classmethod
    def output_names(cls, a):
        return cls.outputs if a.get_prob else cls.outputs[:1]

    @classmethod
    def infer_shape(cls, a, *shapes):
        data = shapes[0]
        if len(data) < 1 or data[-1] < 1:
            raise ShapeError(f"data must be (..., classes), with a class at least, got {data}.")
        out = (*data[:-1], *a.shape) or (1,)
        return shapes, (out,) * len(cls.output_names(a))

    @classmethod
    def infer_type(cls, a, *dtypes):
        data = dtypes[0] or float32
        if not is_floating(data):
            raise DTypeError(f"data must be floating, got {data}; convert with Cast (astype).")
        return (data,), (as_dtype(a.dtype), data)[: 1 + a.get_prob]

    @staticmethod
    def flops(a, inputs, outputs):
        return 2 * prod(inputs[0]) + 20 * prod(outputs[0])

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return scratch_bytes(multinomial_pieces(inputs[0][-1]))

    @staticmethod
    def forward(xp, a, data, *, out, rng, work, prob=None):
        classes = data.shape[-1]
        table = data.reshape(-1, classes)
        each = prod(a.shape)
        cumulated, bits, own = carve(work, multinomial_pieces(classes))
        for begin in range(0, len(table) if each else 0, len(cumulated)):
            rows = table[begin : begin + len(cumulated)]
            sums = cumulated[: len(rows)]
            xp.copyto(sums, rows)
            xp.cumsum(sums, axis=1, out=sums)
            # Divided by the last, row r goes from r to r + 1: one ascending sequence and one search.
            xp.divide(sums, sums[:, -1:].copy(), out=sums)
            xp.add(sums, xp.arange(len(rows))[:, None], out=sums)
            for i in range(0, len(rows) * each, _PIECE):
                first = begin * each + i
                count = min(_PIECE, len(rows) * each - i)
                rng.fill_bits(xp, bits[:count], own, first)
                row = xp.arange(i, i + count) // each
                place = xp.searchsorted(sums.reshape(-1), (bits[:count] + 0.5) * 2.0**-32 + row, side="right")
                drawn = xp.clip(place - row * classes, 0, classes - 1)
                if out is not None:
                    xp.copyto(out.reshape(-1)[first : first + count], drawn, casting="unsafe")
                if prob is not None:
                    chosen = rows[row, drawn].astype("float64")
                    xp.copyto(prob.reshape(-1)[first : first + count], xp.log(chosen), casting="unsafe")

    @staticmethod
    def backward(xp, a, d_prob, data, out, *, d_data):
        if d_data is None:
            return
        classes, each = data.shape[-1], prod(a.shape)
        xp.copyto(d_data, 0)
        total, table = d_data.reshape(-1, classes), data.reshape(-1, classes)
        if d_prob is None:
            return
        drawn, heads = out.reshape(-1), d_prob.reshape(-1)
        for begin in range(0, drawn.size, _PIECE):
            part = slice(begin, begin + _PIECE)
            column = drawn[part].astype("int64")
            row = xp.arange(begin, begin + len(column)) // each
            share = heads[part].astype("float64") / table[row, column].astype("float64")
            xp.add.at(total, (row, column), share.astype(total.dtype))


def multinomial_pieces(classes):
    rows = max(1, min(_ROWS, 8192 // classes))
    bits = np.dtype("uint32")
    return [
        ((rows, classes), np.dtype("float64")),
        ((_PIECE,), bits),
        ((RandomStream.work_bytes(_PIECE),), np.dtype("uint8")),
    ]


class Shuffle(Op):
    """The rows of `data`, along its first axis, in random order, every order equally likely.

    data: (N, ...)  ->  out: (N, ...). No gradient, as in MXNet. Rows are sorted by random keys of 64 bits,
    whose lower bits are replaced by the row's number: ties, in one of about 2**(64 - 3 * log2(N)) calls, keep
    their order.
    """

    op_name = "_shuffle"
    aliases = ("shuffle",)
    inputs = ("data",)
    same_shape = True
    random = True

    @staticmethod
    def infer_shape(a, *shapes):
        if not shapes[0]:
            raise ShapeError("data must have at least 1 axis, got ().")
        return shapes, shapes

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return scratch_bytes(_shuffle_pieces(inputs[0][0]))

    @staticmethod
    def forward(xp, a, data, *, out, rng, work):
        if out is None or not data.size:
            return
        keys, own = carve(work, _shuffle_pieces(len(data)))
        rng.fill_bits(xp, keys.view("uint32"), own)
        mask = (1 << (len(data) - 1).bit_length()) - 1
        xp.bitwise_and(keys, xp.uint64(2**64 - 1 - mask), out=keys)
        for i in range(0, len(keys), _PIECE):
            part = keys[i : i + _PIECE]
            xp.bitwise_or(part, xp.arange(i, i + len(part), dtype="uint64"), out=part)
        keys.sort()
        xp.bitwise_and(keys, xp.uint64(mask), out=keys)
        rest = data.size // len(data)
        xp.take(data.reshape(-1, rest), keys.view("int64"), axis=0, out=out.reshape(-1, rest), mode="clip")


def _shuffle_pieces(rows):
    return [((rows,), np.dtype("uint64")), ((RandomStream.work_bytes(2 * rows),), np.dtype("uint8"))]
