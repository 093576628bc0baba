"""Operators that reshape, reorder, cut, join, repeat or pad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building import GraphValue, NotSupportedError
from ...building.moves import padded, take_range
from ..node import TorchNode


def reshaped(n: TorchNode) -> GraphValue:
    """To the shape that PyTorch says; all reshapes are this one."""
    n.ignore("dim", "other")  # they say which shape
    return n.builder.reshape(n["self"], n.shape)


def transposed(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    if x.rank < 2:
        return x
    first, second = n.plain("dim0", n.plain("axis0", 0)), n.plain("dim1", n.plain("axis1", 1))
    order = list(range(x.rank))
    i, j = b.axis(first, x.rank), b.axis(second, x.rank)
    order[i], order[j] = order[j], order[i]
    return b.transpose(x, order)


def last_two(n: TorchNode) -> GraphValue:
    """The transposes of matrices."""
    x = n["self"]
    return n.builder.transpose(x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def permuted(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    return b.transpose(x, [b.axis(i, x.rank) for i in n.plain("dims")])


def moved_axes(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    ends = [n.plain("source"), n.plain("destination")]
    source, target = ([b.axis(i, x.rank) for i in (e if isinstance(e, list) else [e])] for e in ends)
    order = [i for i in range(x.rank) if i not in source]
    for place, axis in sorted(zip(target, source)):
        order.insert(place, axis)
    return b.transpose(x, order)


def expanded(n: TorchNode) -> GraphValue:
    n.ignore("other")  # its shape is the result's
    return n.builder.expand(n["self"], n.shape)


def meshed(n: TorchNode) -> tuple[GraphValue, ...]:
    """meshgrid: each vector along an axis of its own; the first two axes swapped with indexing="xy"."""
    b, values = n.builder, n.values("tensors")
    places = list(range(len(values)))
    if n.plain("indexing", "ij") == "xy" and len(values) > 1:
        places[:2] = 1, 0
    dims = [
        tuple(v.size if i == place else 1 for i in range(len(values))) for v, place in zip(values, places)
    ]
    return tuple(b.expand(b.reshape(v, d), tuple(r.shape)) for v, d, r in zip(values, dims, n.results))


def repeated(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    reps = n.plain("repeats", n.plain("dims"))
    x = b.reshape(x, (1,) * (len(reps) - x.rank) + x.shape)
    reps = (1,) * (x.rank - len(reps)) + tuple(reps)
    return b.op("tile", x, reps=reps)


def repeat_interleaved(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    if not isinstance(n.plain("repeats"), int):
        raise NotSupportedError("repeats in a tensor make a shape that depends on numbers")
    axis = n.plain("dim")
    n.plain("output_size")  # it spares PyTorch a sum, and says nothing new
    x = b.reshape(x, (x.size,)) if axis is None else x
    return b.op("repeat", x, repeats=int(n.plain("repeats")), axis=b.axis(axis or 0, x.rank))


def joined(n: TorchNode) -> GraphValue:
    b = n.builder
    values = [b.cast(v, n.dtype) for v in n.values("tensors") if v.shape != (0,)]
    return b.concat(values, b.axis(n.plain("dim", 0), values[0].rank))


def stacked(n: TorchNode) -> GraphValue:
    b, values = n.builder, [n.builder.cast(v, n.dtype) for v in n.values("tensors")]
    axis = b.axis(n.plain("dim", 0), values[0].rank + 1)
    dims = values[0].shape
    return b.concat([b.reshape(v, (*dims[:axis], 1, *dims[axis:])) for v in values], axis)


def joined_at_rank(n: TorchNode) -> GraphValue:
    """hstack, vstack, dstack, column_stack: tensors of fewer axes than the result get them first."""
    b, kind = n.builder, n.target.split(".")[1]
    values = [b.cast(v, n.dtype) for v in n.values("tensors")]
    rank = len(n.shape)
    grown = []
    for v in values:
        dims = v.shape
        if len(dims) < rank:
            alone = {
                "vstack": (1, *dims),
                "column_stack": (v.size, 1),
                "dstack": ((1,) * (2 - len(dims)) + dims + (1,))[-3:],
            }
            dims = alone.get(kind, (v.size,))
        grown.append(b.reshape(v, dims))
    axis = {"vstack": 0, "dstack": 2}.get(kind, min(1, rank - 1))
    return b.concat(grown, axis)


def diagonal(n: TorchNode) -> GraphValue:
    """The diagonal of two axes, which becomes the last axis."""
    b, x = n.builder, n["self"] if n.plain("self") is not None else n["A"]
    first, second = b.axis(n.plain("dim1", 0), x.rank), b.axis(n.plain("dim2", 1), x.rank)
    rest = [i for i in range(x.rank) if i not in (first, second)]
    rows, columns = x.shape[first], x.shape[second]
    offset = n.plain("offset", 0)
    count = n.shape[-1]
    start = offset if offset >= 0 else -offset * columns
    places = start + np.arange(count) * (columns + 1)
    flat = b.reshape(b.transpose(x, (*rest, first, second)), (*(x.shape[i] for i in rest), rows * columns))
    return b.op("take", flat, b.constant(places, np.int64), axis=len(rest))


def trace(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    places = np.arange(min(x.shape)) * (x.shape[1] + 1)
    return b.reduce(
        "sum", b.op("take", b.reshape(x, (x.size,)), b.constant(places, np.int64), axis=0), None, False
    )


def split(n: TorchNode) -> tuple[GraphValue, ...]:
    """split, split_with_sizes, chunk, unsafe_*: the lengths are those of PyTorch's results."""
    b, x = n.builder, n["self"]
    n.ignore("indices")
    kind = n.target.split(".")[1]
    axis = b.axis(n.plain("dim", {"hsplit": min(1, x.rank - 1), "dsplit": 2}.get(kind, 0)), x.rank)
    sizes = [r.shape[axis] for r in n.results]
    if len(sizes) == 1:
        return (x,)
    if len(set(sizes)) == 1 and sizes[0]:
        return b.ops("SliceChannel", x, num_outputs=len(sizes), axis=axis)
    ends = np.cumsum(sizes).tolist()
    return tuple(b.slice(x, axis, end - size, end) for end, size in zip(ends, sizes))


def unbound(n: TorchNode) -> tuple[GraphValue, ...]:
    b, x = n.builder, n["self"]
    axis = b.axis(n.plain("dim", 0), x.rank)
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    if x.shape[axis] == 1:
        return (b.reshape(x, rest),)
    return tuple(b.reshape(v, rest) for v in b.ops("SliceChannel", x, num_outputs=x.shape[axis], axis=axis))


def selected(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    axis, place = b.axis(n.plain("dim"), x.rank), n.plain("index")
    if not isinstance(place, int):
        raise FormatError("the place that is selected must be a number.")
    place %= x.shape[axis]
    return b.reshape(b.slice(x, axis, place, place + 1), n.shape)


def _range(n: TorchNode, length: int) -> range:
    start, end, step = n.plain("start"), n.plain("end"), n.plain("step", 1)
    return range(length)[slice(start, end, step)]


def sliced(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    axis = b.axis(n.plain("dim", 0), x.rank)
    return take_range(x, axis, _range(n, x.shape[axis]))


def narrowed(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    axis, first = b.axis(n.plain("dim"), x.rank), n.plain("start") % n["self"].shape[n.plain("dim")]
    return b.slice(x, axis, first, first + n.plain("length"))


def _written(x: GraphValue, part: GraphValue, axis: int, where: range) -> GraphValue:
    """`x` with the elements at `where` of one axis replaced by `part`."""
    b, length = x.builder, x.shape[axis]
    if where.step == 1 and len(where):
        ends = [(0, where.start), (where.stop, length)]
        before, after = (b.slice(x, axis, i, j) if i < j else None for i, j in ends)
        return b.concat([v for v in (before, part, after) if v is not None], axis)
    places = np.full(length, len(where))
    places[list(where)] = np.arange(len(where))
    order = np.where(places < len(where), places, np.arange(length) + len(where))
    return b.op("take", b.concat([part, x], axis), b.constant(order, np.int64), axis=axis)


def slice_written(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    axis = b.axis(n.plain("dim", 0), x.rank)
    where = _range(n, x.shape[axis])
    return _written(x, b.cast(n["src"], x.dtype), axis, where) if len(where) else x


def select_written(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    axis = b.axis(n.plain("dim"), x.rank)
    place = n.plain("index") % x.shape[axis]
    part = b.reshape(b.cast(n["src"], x.dtype), (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return _written(x, part, axis, range(place, place + 1))


def flipped(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    return b.op("reverse", x, axis=tuple(b.axis(i, x.rank) for i in n.plain("dims")))


def rolled(n: TorchNode) -> GraphValue:
    """Each axis as its two parts in the other order."""
    b, x = n.builder, n["self"]
    shifts, axes = n.plain("shifts"), n.plain("dims") or []
    if not axes:
        flat = b.reshape(x, (x.size,))
        return b.reshape(_rolled(flat, 0, shifts[0]), x.shape)
    for shift, axis in zip(shifts, axes):
        x = _rolled(x, b.axis(axis, x.rank), shift)
    return x


def _rolled(x: GraphValue, axis: int, shift: int) -> GraphValue:
    b, length = x.builder, x.shape[axis]
    shift %= length
    if not shift:
        return x
    return b.concat([b.slice(x, axis, length - shift, length), b.slice(x, axis, 0, length - shift)], axis)


def pad(n: TorchNode) -> GraphValue:
    """Two numbers for each axis, the last axis first."""
    x, pads = n["self"], n.plain("pad", n.plain("padding"))
    mode = n.plain("mode", "constant")
    for name in ("reflection", "replication"):
        mode = name if name in n.target else mode
    mode = {"reflection": "reflect", "replicate": "edge", "replication": "edge", "circular": "wrap"}.get(
        mode, mode
    )
    sides = [(0, 0)] * x.rank
    for i in range(len(pads) // 2):
        sides[x.rank - 1 - i] = (pads[2 * i], pads[2 * i + 1])
    return padded(x, sides, mode, float(n.plain("value", 0) or 0))


def triangle(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    kind = "triu" if "triu" in n.target else "tril"
    if x.array is not None or x.dtype == np.bool_:
        keep = getattr(np, kind)(np.ones(x.shape[-2:], np.bool_), n.plain("diagonal", 0))
        if x.array is not None:
            return b.constant(np.where(keep, x.array, np.zeros((), x.dtype)))
        return b.where(b.constant(keep), x, b.full((), 0, x.dtype))
    return b.op(kind, x, k=n.plain("diagonal", 0))


def unfolded(n: TorchNode) -> GraphValue:
    """Windows of one axis, which become a new last axis."""
    b, x = n.builder, n["self"]
    axis = b.axis(n.plain("dimension"), x.rank)
    size, step = n.plain("size"), n.plain("step")
    count = (x.shape[axis] - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    out = b.op("take", x, b.constant(places, np.int64), axis=axis)
    return b.transpose(out, [i for i in range(out.rank) if i != axis + 1] + [axis + 1])


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    **dict.fromkeys(
        "view reshape flatten unsqueeze squeeze unflatten _unsafe_view view_as reshape_as ravel "
        "atleast_1d atleast_2d atleast_3d".split(),
        reshaped,
    ),
    **dict.fromkeys(
        "split split_with_sizes chunk unsafe_split unsafe_split_with_sizes unsafe_chunk tensor_split hsplit "
        "vsplit dsplit".split(),
        split,
    ),
    **dict.fromkeys("pad constant_pad_nd".split(), pad),
    **dict.fromkeys([f"{k}_pad{r}d" for k in ("reflection", "replication") for r in (1, 2, 3)], pad),
    **dict.fromkeys(("hstack", "vstack", "dstack", "column_stack"), joined_at_rank),
    "diagonal": diagonal,
    "linalg_diagonal": diagonal,
    "trace": trace,
    "cat": joined,
    "concat": joined,
    "concatenate": joined,
    "expand": expanded,
    "expand_as": expanded,
    "broadcast_to": expanded,
    "flip": flipped,
    **dict.fromkeys("adjoint matrix_H mH mT".split(), last_two),
    "meshgrid": meshed,
    **dict.fromkeys(("moveaxis", "movedim"), moved_axes),
    **dict.fromkeys(("narrow", "narrow_copy"), narrowed),
    "numpy_T": lambda n: n.builder.transpose(n["self"], range(n["self"].rank)[::-1]),
    "permute": permuted,
    "repeat": repeated,
    "repeat_interleave": repeat_interleaved,
    "roll": rolled,
    "select": selected,
    "select_scatter": select_written,
    "slice": sliced,
    "slice_scatter": slice_written,
    "stack": stacked,
    "swapaxes": transposed,
    "swapdims": transposed,
    "t": transposed,
    "tile": repeated,
    "transpose": transposed,
    "tril": triangle,
    "triu": triangle,
    "unbind": unbound,
    "unfold": unfolded,
}
