"""Reshapes, and the base of all operators that only move elements."""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from ...core.compat.npshape import UNKNOWN
from ...core.dtype import float32
from ...core.errors import ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import Op, require_rank
from ..blocks import copy


def axis_of(axis: int, rank: int, what: str = "data") -> int:
    """`axis` counted from the front. Raises ShapeError when there is no such axis."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is not one of {what} with {rank} axes.")
    return axis % rank


class Move(Op):
    """Base: elements are moved; nothing is computed."""

    inputs: ClassVar[tuple[str, ...]] = ("data",)
    cheap = True
    flops_per_output = 0


class Rearrangement(Move):
    """Base: `forward` only copies parts of `data`; so its gradient is the same copies, backwards."""

    abstract = True

    def __init_subclass__(cls) -> None:
        forward = cls.forward

        def backward(xp: Any, a: Any, d_out: Any, *, d_data: Any) -> None:
            if d_out.size < d_data.size:
                d_data.fill(0)  # of what is not copied
            forward(_Backwards(xp), a, d_data, out=d_out)

        cls.backward = staticmethod(backward)
        super().__init_subclass__()


class _Backwards:
    """An array module whose copies go from the target to the source, which gets the sum of its copies."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._xp, name)

    def copyto(self, target: Any, source: Any) -> None:
        many = tuple(i for i, (m, n) in enumerate(zip(source.shape, target.shape)) if m != n)
        if many:  # numpy is told to sum two-byte floats in float32
            wide = float32 if source.dtype.itemsize == 2 else None
            self._xp.add.reduce(target, axis=many, keepdims=True, out=source, dtype=wide)
        else:
            self._xp.copyto(source, target)


class View(Rearrangement):
    """The same elements in the same order under another shape: nothing is done if in place."""

    abstract = True
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}

    @staticmethod
    def infer_inputs(a, inputs, outputs):
        (data,), (out,) = inputs, outputs
        if data is None or out is None or UNKNOWN in out or data.count(UNKNOWN) != 1:
            return inputs
        rest = prod(d for d in data if d != UNKNOWN)
        if not rest or prod(out) % rest:
            return inputs
        return (tuple(prod(out) // rest if d == UNKNOWN else d for d in data),)

    @staticmethod
    def forward(xp, a, data, *, out):
        copy(xp, data, out)

    @staticmethod
    def derivative(w, a, ins, outs, heads):
        return {"data": w.reshape_like(heads["out"], ins["data"])}


class Flatten(View):
    """Each sample as one row.

    data: (N, ...)  ->  out: (N, K), K the elements of a sample. Costs nothing when done in place.
    """

    aliases = ("flatten",)

    @staticmethod
    def infer_shape(a, data):
        require_rank(data, 1, "data")
        return (data,), ((data[0], prod(data[1:])),)


class Reshape(View):
    """The same elements under another shape.

    data: (...)  ->  out: `shape`, where in `shape`
      0   keeps the axis of `data` at this place
      -1  is inferred (once)
      -2  keeps all remaining axes
      -3  merges the next two axes into one
      -4  splits the next axis into the two numbers that follow, one of which may be -1
    With `reverse` axes and codes are matched from the right. Without `shape` the old `target_shape` is used:
    its 0 is inferred, and `keep_highest` keeps the first axis. Costs nothing when done in place.
    """

    aliases = ("reshape",)

    @record
    class Attrs:
        shape: tuple[int, ...] = ()
        reverse: bool = False
        target_shape: tuple[int, ...] = ()
        keep_highest: bool = False

    @classmethod
    def infer_inputs(cls, a, inputs, outputs):
        """Input shapes: a target shape without codes is that of the result, whatever data may be."""
        whole = a.shape if all(d > 0 for d in a.shape) else ()
        return super().infer_inputs(a, inputs, (whole or outputs[0],))

    @staticmethod
    def infer_shape(a, data):
        if a.shape:
            codes, dims = (a.shape[::-1], data[::-1]) if a.reverse else (a.shape, data)
            out, open_axis = _follow(codes, dims, a.shape, data)
            if a.reverse:
                out, open_axis = out[::-1], None if open_axis is None else len(out) - 1 - open_axis
        else:
            if not a.target_shape:
                raise ShapeError("needs the parameter 'shape'.")
            out = list(a.target_shape)
            if a.keep_highest:
                require_rank(data, 1, "data")
                out[0] = data[0]
            gaps = [i for i, d in enumerate(out) if d == 0]
            if len(gaps) > 1:
                raise ShapeError(f"target_shape {a.target_shape} may have one 0.")
            open_axis = gaps[0] if gaps else None
        if open_axis is not None:
            out[open_axis] = 1
            out[open_axis] = prod(data) // prod(out) if prod(out) else 0
        if any(d < 0 for d in out) or prod(out) != prod(data):
            raise ShapeError(
                f"data {data} of {prod(data)} elements does not fit shape {a.shape or a.target_shape}."
            )
        return (data,), (tuple(out),)


def _follow(codes: Shape, dims: Shape, shape: Shape, data: Shape) -> tuple[list[int], int | None]:
    """Output axes and the index of the one to be inferred, from Reshape's codes."""
    out: list[int] = []
    open_axis, source, i = None, 0, 0

    def take() -> int:
        nonlocal source
        if source >= len(dims):
            raise ShapeError(f"shape {shape} asks for more axes than data {data} has.")
        source += 1
        return dims[source - 1]

    while i < len(codes):
        code = codes[i]
        if code == 0:
            out.append(take())
        elif code == -1:
            if open_axis is not None:
                raise ShapeError(f"shape {shape} may have one -1.")
            open_axis = len(out)
            out.append(1)
            source += 1
        elif code == -2:
            out += dims[source:]
            source = len(dims)
        elif code == -3:
            out.append(take() * take())
        elif code == -4:
            if i + 2 >= len(codes):
                raise ShapeError(f"shape {shape}: two numbers must follow a -4.")
            whole, first, second = take(), codes[i + 1], codes[i + 2]
            if first == -1 and second > 0:
                first = whole // second
            elif second == -1 and first > 0:
                second = whole // first
            if first < 0 or second < 0 or first * second != whole:
                raise ShapeError(
                    f"shape {shape}: -4 cannot split {whole} into {codes[i + 1]}, {codes[i + 2]}."
                )
            out += [first, second]
            i += 2
        elif code > 0:
            out.append(code)
            source += 1
        else:
            raise ShapeError(f"shape {shape}: the code {code} has no meaning; codes are 0, -1, -2, -3, -4.")
        i += 1
    return out, open_axis


class _reshape_to(View):
    """The same elements under exactly the shape `shape`.

    data: (...)  ->  out: `shape`, every number of which is a length: 0 is no code, and () makes an array
    without axes of one element. Costs nothing when done in place.
    """

    @record
    class Attrs:
        shape: tuple[int, ...]

    @staticmethod
    def infer_shape(a, data):
        if any(d < 0 for d in a.shape) or prod(a.shape) != prod(data):
            raise ShapeError(f"data {data} of {prod(data)} elements does not fit shape {a.shape}.")
        return (data,), (a.shape,)


class expand_dims(View):
    """Axes of length 1 inserted at the indices `axis` of the result; -1 is the end.

    data: (...)  ->  out: one axis more for each number in `axis`. Costs nothing when done in place.
    """

    @record
    class Attrs:
        axis: int | tuple[int, ...]

    @staticmethod
    def infer_shape(a, data):
        places = (a.axis,) if isinstance(a.axis, int) else a.axis
        rank = len(data) + len(places)
        at = {axis_of(i, rank, "the result") for i in places}
        if len(at) < len(places):
            raise ShapeError(f"axis {a.axis} names a place of the result twice.")
        rest = iter(data)
        return (data,), (tuple(1 if i in at else next(rest) for i in range(rank)),)


class squeeze(View):
    """Axes of length 1 left out: those in `axis`, or all.

    data: (...)  ->  out: fewer axes; (1,) if none is left. Costs nothing when done in place.
    """

    @record
    class Attrs:
        axis: tuple[int, ...] | None = None

    @staticmethod
    def infer_shape(a, data):
        if a.axis is None:
            gone = {i for i, d in enumerate(data) if d == 1}
        else:
            gone = {axis_of(i, len(data)) for i in a.axis}
            if any(data[i] != 1 for i in gone):
                raise ShapeError(f"axis {a.axis} of data {data} must have length 1 to be squeezed.")
        return (data,), (tuple(d for i, d in enumerate(data) if i not in gone) or (1,),)
