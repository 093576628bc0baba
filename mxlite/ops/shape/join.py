"""Operators that put arrays together."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.compat.npshape import UNKNOWN
from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import agreed_shape, Op
from .cut import part_of
from .reshape import axis_of


class Concat(Op):
    """Arrays one after another along the axis `dim`.

    args: `num_args` arrays (...), equal but for axis `dim`  ->  out: (...), `dim` as long as all of them.
    """

    aliases = ("concat",)
    variadic = "args"
    cheap = True
    flops_per_output = 0

    @record
    class Attrs:
        num_args: int
        dim: int = 1

    @staticmethod
    def infer_shape(a, *shapes):
        first = shapes[0]
        axis = axis_of(a.dim, len(first), "arg0")
        for i, s in enumerate(shapes):
            if len(s) != len(first) or s[:axis] != first[:axis] or s[axis + 1 :] != first[axis + 1 :]:
                raise ShapeError(f"arg{i} {s} must equal arg0 {first} but for axis {a.dim}.")
        return shapes, ((*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :]),)

    @staticmethod
    def infer_inputs(a, inputs, outputs):
        def but_axis(s: Shape) -> Shape:
            axis = axis_of(a.dim, len(s), "arg0")
            return (*s[:axis], UNKNOWN, *s[axis + 1 :])

        common = _common([None if s is None else but_axis(s) for s in (*inputs, *outputs)])
        return (
            inputs if common is None else [common if s is None else agreed_shape(common, s) for s in inputs]
        )

    @staticmethod
    def forward(xp, a, *args, out):
        axis, begin = a.dim % out.ndim, 0
        for arg in args:
            end = begin + arg.shape[axis]
            xp.copyto(out[part_of(axis, begin, end)], arg)
            begin = end

    @staticmethod
    def backward(xp, a, d_out, *, d_args, shapes):
        axis, begin = a.dim % d_out.ndim, 0
        for d_arg, shape in zip(d_args, shapes[0]):
            end = begin + shape[axis]
            if d_arg is not None:
                xp.copyto(d_arg, d_out[part_of(axis, begin, end)])
            begin = end

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return dict(zip(ins, w.all("_unconcat", heads["out"], *ins.values(), dim=a.dim)))


class stack(Op):
    """Arrays of one shape along a new axis `axis`; -1 is the end.

    args: `num_args` arrays (...)  ->  out: one axis more, `num_args` long.
    """

    variadic = "args"
    cheap = True
    flops_per_output = 0

    @record
    class Attrs:
        num_args: int
        axis: int = 0

    @staticmethod
    def infer_shape(a, *shapes):
        first = shapes[0]
        for i, s in enumerate(shapes):
            if s != first:
                raise ShapeError(f"all arrays must have one shape, arg0 is {first}, arg{i} is {s}.")
        at = axis_of(a.axis, len(first) + 1, "the result")
        return shapes, ((*first[:at], len(shapes), *first[at:]),)

    @staticmethod
    def infer_inputs(a, inputs, outputs):
        (out,) = outputs
        if out is not None:
            at = axis_of(a.axis, len(out), "the result")
            out = (*out[:at], *out[at + 1 :])
        common = _common([*inputs, out])
        return inputs if common is None else [common] * len(inputs)

    @staticmethod
    def forward(xp, a, *args, out):
        before = (slice(None),) * (a.axis % out.ndim)
        for i, arg in enumerate(args):
            xp.copyto(out[(*before, i, ...)], arg)

    @staticmethod
    def backward(xp, a, d_out, *, d_args):
        before = (slice(None),) * (a.axis % d_out.ndim)
        for i, d_arg in enumerate(d_args):
            if d_arg is not None:
                xp.copyto(d_arg, d_out[(*before, i, ...)])

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        parts = w.all("SliceChannel", heads["out"], num_outputs=len(ins), axis=a.axis, squeeze_axis=True)
        return {n: w.reshape_like(part, ins[n]) for n, part in zip(ins, parts)}


def _common(shapes: Sequence[Shape | None]) -> Shape | None:
    """The one shape of them all, as far as any is known; None if none is."""
    common: Shape | None = None
    for shape in shapes:
        if shape is not None:
            agreed = shape if common is None else agreed_shape(common, shape)
            if agreed is None:
                raise ShapeError(f"{common} and {shape} do not go together.")
            common = agreed
    return common
