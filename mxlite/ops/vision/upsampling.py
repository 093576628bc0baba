"""UpSampling by a whole factor."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, Shapes
from ..nn.deconv import Deconvolution
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes


class UpSampling(Op):
    """Images enlarged: every number repeated, or a transposed convolution with a kernel of weights.

    nearest:  arg0, arg1, ...: (N, C_i, H_i, W_i)  ->  out: (N, sum of C_i, `scale` * H_0, `scale` * W_0).
    Each input is repeated as often as it takes to come to that size; H_i must divide it.
    `multi_input_mode`: "concat" puts them one after the other along the channels, "sum" adds them up.
    bilinear: data: (N, C, H, W);  weight: (C, 1, K, K) with K = 2 * scale - scale % 2  ->  out: (N, C,
    scale * H, scale * W), a Deconvolution of each channel with stride `scale` and padding ceil((scale - 1)
    / 2). `num_filter` is C. The initializer Bilinear fills `weight`.

    `workspace` has no effect. Gradients of nearest read no input.
    """

    variadic = "args"
    accepts = "float"

    @record
    class Attrs:
        scale: int
        sample_type: Literal["nearest", "bilinear"]
        num_filter: int = 0
        multi_input_mode: Literal["concat", "sum"] = "concat"
        num_args: int = 1
        workspace: int = 512

        def __post_init__(self) -> None:
            if self.scale < 1:
                raise OpAttributeError(f"scale must be at least 1, got {self.scale}.")
            if self.sample_type == "bilinear" and (self.num_filter < 1 or self.num_args > 2):
                raise OpAttributeError(
                    f"sample_type 'bilinear' needs num_filter, the number of channels, and takes data and "
                    f"weight; got num_filter={self.num_filter} and {self.num_args} inputs."
                )

    @classmethod
    def input_names(cls, a: Any) -> tuple[str, ...]:
        if a.sample_type == "bilinear":
            return ("data", "weight")
        return ("data",) if a.num_args == 1 else tuple(f"arg{i}" for i in range(a.num_args))

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset(cls.input_names(a)) if a.sample_type == "nearest" else frozenset()

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        first = shapes[0]
        known = [s for s in shapes if s is not None]
        if first is None or any(len(s) != 4 for s in known):
            raise ShapeError(f"inputs must have 4 axes (N, C, H, W), got {shapes}.")
        if a.sample_type == "bilinear":
            if first[1] != a.num_filter:
                raise ShapeError(
                    f"num_filter={a.num_filter} must be the {first[1]} channels of data {first}."
                )
            (data, weight), out = Deconvolution.infer_shape(as_deconvolution(a), first, None)
            return (data, weight), out
        size = (a.scale * first[2], a.scale * first[3])
        for s in known:
            if s[0] != first[0] or any(not n or m % n for n, m in zip(s[2:], size)):
                raise ShapeError(f"{s} cannot be repeated to ({first[0]}, C, {size[0]}, {size[1]}).")
        if a.multi_input_mode == "sum" and any(s[1] != first[1] for s in known):
            raise ShapeError(f"inputs that are added must have as many channels, got {shapes}.")
        channels = first[1] if a.multi_input_mode == "sum" else sum(s[1] for s in known)
        return tuple(s if s is not None else first for s in shapes), ((first[0], channels, *size),)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        if a.sample_type == "bilinear":
            return Deconvolution.workspace(as_deconvolution(a), inputs, outputs, dtype)
        if a.multi_input_mode == "concat" or len(inputs) == 1:
            return 0
        return scratch_bytes([_piece(outputs[0], dtype)])

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        if a.sample_type == "bilinear":
            return Deconvolution.backward_workspace(as_deconvolution(a), inputs, outputs, dtype)
        return max(scratch_bytes([_piece(s, dtype)]) for s in inputs)

    @staticmethod
    def forward(xp: Any, a: Any, *args: Any, out: Any, work: Any) -> None:
        if out is None:
            return
        if a.sample_type == "bilinear":
            Deconvolution.forward(xp, as_deconvolution(a), *args, out=out, work=work)
            return
        total = a.multi_input_mode == "sum" and len(args) > 1
        if total:
            for where, sums in _blocks(out, work):
                for k, x in enumerate(args):
                    for place in _shifts(sums, x[where]):
                        (xp.add(place, x[where], out=place) if k else xp.copyto(place, x[where]))
                xp.copyto(out[where], sums, casting="unsafe")
            return
        channel = 0
        for x in args:
            for place in _shifts(out[:, channel : channel + x.shape[1]], x):
                xp.copyto(place, x)
            channel += x.shape[1]

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, args: Any, *, d_args: Any, work: Any, shapes: Any) -> None:
        if a.sample_type == "bilinear":
            d_data, d_weight = d_args
            Deconvolution.backward(
                xp,
                as_deconvolution(a),
                d_out,
                *args,
                d_data=d_data,
                d_weight=d_weight,
                d_bias=None,
                work=work,
            )
            return
        channel = 0
        for d_x, shape in zip(d_args, shapes[0]):
            total = a.multi_input_mode == "sum"
            d = d_out if total else d_out[:, channel : channel + shape[1]]
            channel += shape[1]
            if d_x is None:
                continue
            for where, sums in _blocks(d_x, work):
                for k, part in enumerate(_shifts(d[where], d_x[where])):
                    (xp.add(sums, part, out=sums) if k else xp.copyto(sums, part))
                xp.copyto(d_x[where], sums, casting="unsafe")


# Only the bilinear kind has an input of that name, which the check of declarations cannot know.
UpSampling.inferred = ("weight",)


def _shifts(large: Any, small: Any) -> Iterator[Any]:
    """The parts of `large` that get each number of `small` once: every s-th row and column."""
    if not small.size:
        return
    rows, columns = large.shape[2] // small.shape[2], large.shape[3] // small.shape[3]
    for i in range(rows):
        for j in range(columns):
            yield large[:, :, i::rows, j::columns]


def _piece(shape: Shape, dtype: DType) -> Piece:
    """Scratch for some channels of one sample, at least one."""
    plane = prod(shape[2:])
    channels = max(1, min(shape[1], BLOCK // max(1, plane)))
    return (channels * plane,), accumulator(dtype)


def _blocks(x: Any, work: Any) -> Iterator[tuple[tuple[slice, slice], Any]]:
    """Parts of (N, C, H, W) and an array in `work` of each part's shape."""
    (scratch,) = carve(work, [_piece(x.shape, x.dtype)])
    n, c, *size = x.shape
    step = max(1, len(scratch) // max(1, prod(size)))
    for i in range(n):
        for j in range(0, c, step):
            where = slice(i, i + 1), slice(j, min(c, j + step))
            m = where[1].stop - j
            yield where, scratch[: m * prod(size)].reshape(1, m, *size)


def as_deconvolution(a: Any) -> Any:
    """The attributes of the Deconvolution that sample_type 'bilinear' is."""
    scale, k = a.scale, 2 * a.scale - a.scale % 2
    return Deconvolution.Attrs(
        kernel=(k, k),
        num_filter=a.num_filter,
        stride=(scale, scale),
        pad=(scale // 2, scale // 2),
        num_group=a.num_filter,
    )
