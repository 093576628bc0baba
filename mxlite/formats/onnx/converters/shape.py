"""Operators that reshape, reorder, cut, join, repeat or pad; and those that tell or make shapes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.builder import broadcast_shapes, LARGEST_FOLDED
from ...building.errors import NotSupportedError
from ...building.moves import padded, take_range
from ...building.value import GraphValue
from ..dtypes import numpy_type
from ..node import OnnxNode


def constant(n: OnnxNode) -> GraphValue:
    b = n.builder
    makers: dict[str, Callable[[], Any]] = {
        "value": lambda: n.tensor("value"),
        "value_float": lambda: np.float32(n.real("value_float")),
        "value_floats": lambda: np.array(n.reals("value_floats"), np.float32),
        "value_int": lambda: np.int64(n.whole("value_int")),
        "value_ints": lambda: np.array(n.wholes("value_ints"), np.int64),
    }
    for name, make in makers.items():
        if n.has(name):
            return b.constant(make())
    raise NotSupportedError(f"constants given as {sorted(n.attributes)}")


def constant_of_shape(n: OnnxNode) -> GraphValue:
    shape = _lengths(n.known_ints(0, "shape") or ())
    value = n.tensor("value") if n.has("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise FormatError(f"attribute 'value' must have one element, got {value.size}.")
    return n.builder.full(shape, value.reshape(())[()], value.dtype)


def constant_fill(n: OnnxNode) -> GraphValue:
    """One number in every element. It was only ever tried out, but PyTorch writes it before opset 9."""
    shape = n.wholes("shape", ())
    if len(n):
        shape = n[0].shape if not n.flag("input_as_shape") else n.known_ints(0, "input") or ()
    dtype = numpy_type(n.whole("dtype", 1), "the result")
    return n.builder.full(_lengths((*shape, *n.wholes("extra_shape", ()))), n.real("value", 0.0), dtype)


def _lengths(values: tuple[int, ...]) -> tuple[int, ...]:
    if any(d < 0 for d in values):
        raise FormatError(f"a shape cannot have negative lengths, got {values}.")
    return values


def shape_of(n: OnnxNode) -> GraphValue:
    dims = n[0].shape
    return n.builder.ints(dims[slice(n.whole("start", 0), n.whole("end", None))])


def size_of(n: OnnxNode) -> GraphValue:
    return n.builder.constant(np.int64(n[0].size))


def reshape(n: OnnxNode) -> GraphValue:
    """Reshape: 0 keeps a length unless `allowzero`, -1 is inferred."""
    b, x = n.builder, n[0]
    codes = n.wholes("shape") if n.version < 5 else n.known_ints(1, "shape")
    if codes is None:
        raise FormatError("needs a shape.")
    return b.reshape(x, _followed(codes, x.shape, n.flag("allowzero")))


def _followed(codes: tuple[int, ...], dims: tuple[int, ...], zero_is_zero: bool) -> list[int]:
    out = list(codes)
    for i, code in enumerate(codes):
        if code == 0 and not zero_is_zero:
            if i >= len(dims):
                raise FormatError(f"shape {codes} keeps axis {i}, which data {dims} does not have.")
            out[i] = dims[i]
    if -1 in out:
        rest = prod(d for d in out if d != -1)
        out[out.index(-1)] = prod(dims) // rest if rest else 0
    return out


def flatten(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    axis = n.whole("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis == 1 and x.rank > 1 and x.entry is not None and x.size:
        return b.op("Flatten", x)
    return b.reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def squeeze(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    axes = n.axes(1)
    gone = {i for i, d in enumerate(x.shape) if d == 1} if axes is None else {b.axis(i, x.rank) for i in axes}
    if any(x.shape[i] != 1 for i in gone):
        raise FormatError(f"axes {axes} of shape {x.shape} must have length 1.")
    return b.reshape(x, (d for i, d in enumerate(x.shape) if i not in gone))


def unsqueeze(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    axes = n.axes(1) or ()
    rank = x.rank + len(axes)
    places = {b.axis(i, rank) for i in axes}
    if len(places) != len(axes):
        raise FormatError(f"axes {axes} name an axis twice.")
    dims = iter(x.shape)
    return b.reshape(x, [1 if i in places else next(dims) for i in range(rank)])


def transpose(n: OnnxNode) -> GraphValue:
    x = n[0]
    axes = n.wholes("perm", None) or tuple(range(x.rank))[::-1]
    if sorted(axes) != list(range(x.rank)):
        raise FormatError(f"perm {axes} must name each of {x.rank} axes once.")
    return n.builder.transpose(x, axes)


def concat(n: OnnxNode) -> GraphValue:
    b, values = n.builder, n.present()
    if n.version < 4:
        return b.concat(values, n.whole("axis", 1))
    return b.concat(values, b.axis(n.whole("axis"), values[0].rank))


def split(n: OnnxNode) -> tuple[GraphValue, ...]:
    n.ignore("num_outputs")
    b, x = n.builder, n[0]
    axis = b.axis(n.whole("axis", 0), x.rank)
    sizes = n.axes(1, "split")
    length, count = x.shape[axis], len(n.proto.output)
    if sizes is None:
        part = -(-length // count)
        sizes = tuple(max(0, min(part, length - i * part)) for i in range(count))
        if n.version < 18 and part * count != length:
            raise FormatError(f"axis {axis} of length {length} does not split into {count} equal parts.")
    if sum(sizes) != length or len(sizes) != count or min(sizes, default=0) < 0:
        raise FormatError(f"axis {axis} of length {length} does not split into {sizes} for {count} outputs.")
    return tuple(b.split(x, list(sizes), axis))


def cut(n: OnnxNode) -> GraphValue:
    """Slice: attributes before opset 10, inputs since; numbers out of range are clipped."""
    x = n[0]
    if n.version < 10:
        starts, ends, axes, steps = n.wholes("starts"), n.wholes("ends"), n.wholes("axes", None), None
    else:
        starts, ends = n.known_ints(1, "starts") or (), n.known_ints(2, "ends") or ()
        axes, steps = n.known_ints(3, "axes"), n.known_ints(4, "steps")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise FormatError(f"starts {starts}, ends {ends}, axes {axes}, steps {steps} do not fit each other.")
    for axis, start, end, step in zip(axes, starts, ends, steps):
        at = n.builder.axis(axis, x.rank)
        where = range(x.shape[at])[slice(start, end, step)]
        x = take_range(x, at, where)
    return x


def expand(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    return b.expand(x, broadcast_shapes(x.shape, n.known_ints(1, "shape") or ()))


def tile(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    reps = n.known_ints(1, "repeats") or ()
    if n.version < 6:
        axis, count = b.axis(int(n.known_number(2, "axis")), x.rank), int(n.known_number(1, "tiles"))
        reps = tuple(count if i == axis else 1 for i in range(x.rank))
    if len(reps) != x.rank or min(reps, default=1) < 0:
        raise FormatError(f"repeats {reps} must be one number for each of {x.rank} axes.")
    if 0 in reps:
        return b.full(tuple(d * r for d, r in zip(x.shape, reps)), 0, x.dtype)
    return b.op("tile", x, reps=reps) if reps else x


def pad(n: OnnxNode) -> GraphValue:
    """Attributes before opset 11, inputs since; axes since 18. Negative numbers cut off."""
    x = n[0]
    mode = n.choice("mode", "constant", "edge", "reflect", "wrap")
    if n.version < 11:
        pads, fill, axes = n.wholes("pads" if n.version > 1 else "paddings"), n.real("value", 0.0), None
    else:
        pads = n.known_ints(1, "pads") or ()
        fill = n.known_number(2, "constant_value", 0)
        axes = n.known_ints(3, "axes")
    rank = x.rank
    chosen = tuple(range(rank)) if axes is None else tuple(n.builder.axis(i, rank) for i in axes)
    if len(pads) != 2 * len(chosen):
        raise FormatError(f"pads {pads} must be two numbers for each of {len(chosen)} axes.")
    sides = [(0, 0)] * rank
    for i, axis in enumerate(chosen):
        sides[axis] = (pads[i], pads[i + len(chosen)])
    return padded(x, sides, mode, fill)


def center_crop_pad(n: OnnxNode) -> GraphValue:
    """Each axis cropped or padded in the middle; an odd element goes to the end."""
    x = n[0]
    wanted = n.known_ints(1, "shape") or ()
    axes = n.wholes("axes", None) or tuple(range(x.rank))
    sides = [(0, 0)] * x.rank
    for axis, length in zip(axes, wanted, strict=True):
        at = n.builder.axis(axis, x.rank)
        more = length - x.shape[at]
        # Padding adds the odd element at the end, cropping removes it there.
        sides[at] = (more // 2, more - more // 2) if more > 0 else (-(-more // 2), more + (-more // 2))
    return padded(x, sides)


def range_of(n: OnnxNode) -> GraphValue:
    start, limit, delta = (n.array(i, w) for i, w in enumerate(("start", "limit", "delta")))
    dtype = start.dtype
    first, last, step = (a.reshape(()).item() for a in (start, limit, delta))
    if step == 0:
        raise FormatError("delta must not be 0.")
    count = max(0, int(np.ceil((last - first) / step)))
    if count > LARGEST_FOLDED:
        raise NotSupportedError(f"it has {count} elements")
    return n.builder.constant((np.arange(count) * step + first).astype(dtype))


def eye_like(n: OnnxNode) -> GraphValue:
    x = n[0]
    if x.rank != 2 or x.size > LARGEST_FOLDED:
        raise FormatError(f"needs a matrix, got shape {x.shape}.")
    dtype = numpy_type(n.whole("dtype"), "the result") if n.has("dtype") else x.dtype
    return n.builder.constant(np.eye(x.shape[0], x.shape[1], n.whole("k", 0), dtype))


def trilu(n: OnnxNode) -> GraphValue:
    b, x = n.builder, n[0]
    k, upper = int(n.known_number(1, "k", 0)), n.flag("upper", True)
    if x.rank < 2:
        raise FormatError(f"needs two axes, got shape {x.shape}.")
    rows, columns = x.shape[-2:]
    if not x.size:
        return x
    # k may be any int64; beyond the matrix it says no more.
    return b.op("triu" if upper else "tril", x, k=max(-rows, min(k, columns)))


def depth_to_space(n: OnnxNode) -> GraphValue:
    b, x, size = n.builder, n[0], n.whole("blocksize")
    batch, channels, height, width = x.shape
    if n.choice("mode", "DCR", "CRD") == "DCR":
        x = b.reshape(x, (batch, size, size, channels // size**2, height, width))
        x = b.transpose(x, (0, 3, 4, 1, 5, 2))
    else:
        x = b.reshape(x, (batch, channels // size**2, size, size, height, width))
        x = b.transpose(x, (0, 1, 4, 2, 5, 3))
    return b.reshape(x, (batch, channels // size**2, height * size, width * size))


def space_to_depth(n: OnnxNode) -> GraphValue:
    b, x, size = n.builder, n[0], n.whole("blocksize")
    batch, channels, height, width = x.shape
    x = b.reshape(x, (batch, channels, height // size, size, width // size, size))
    if n.choice("mode", "DCR", "CRD") == "DCR":
        x = b.transpose(x, (0, 3, 5, 1, 2, 4))
    else:
        x = b.transpose(x, (0, 1, 3, 5, 2, 4))
    return b.reshape(x, (batch, channels * size * size, height // size, width // size))


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "CenterCropPad": center_crop_pad,
    "Concat": concat,
    "Constant": constant,
    "ConstantFill": constant_fill,
    "ConstantOfShape": constant_of_shape,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "EyeLike": eye_like,
    "Flatten": flatten,
    "Pad": pad,
    "Range": range_of,
    "Reshape": reshape,
    "Shape": shape_of,
    "Size": size_of,
    "Slice": cut,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
