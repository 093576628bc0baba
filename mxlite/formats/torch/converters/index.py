"""Gathering by index; bags of rows."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ...building import broadcast_shapes, GraphValue, NotSupportedError
from ..node import TorchNode


def embedding(n: TorchNode) -> GraphValue:
    """`padding_idx` matters to the gradient alone: that row gets none."""
    b, weight, places = n.builder, n["weight"], n["indices"]
    padding = n.plain("padding_idx", -1)
    if n.plain("scale_grad_by_freq", False):
        raise NotSupportedError("an embedding whose gradient is scaled by how often a row is read")
    if padding >= 0 and weight.array is None:
        keep = np.ones((weight.shape[0], 1), weight.dtype)
        keep[padding] = 0
        still = b.op("BlockGrad", weight)
        free = b.binary("mul", weight, b.constant(keep))
        weight = b.binary("add", free, b.binary("mul", still, b.constant(1 - keep)))
    rows, width = weight.shape
    return b.op("Embedding", places, weight, input_dim=rows, output_dim=width)


def embedding_bag(n: TorchNode) -> tuple[Any, ...]:
    """Bags whose offsets are known: sums, means, weighted sums."""
    b, weight, places, offsets = n.builder, n["weight"], n["indices"], n["offsets"]
    padding = n.plain("padding_idx", -1)
    each = n.get("per_sample_weights")
    if offsets.array is None or n.plain("scale_grad_by_freq", False) or n.plain("mode", 0) == 2:
        raise NotSupportedError(
            "an embedding bag whose offsets are inputs, whose gradient is scaled, or of largest numbers"
        )
    starts = offsets.array.tolist()
    ends = [*starts[1:], places.size]
    if n.plain("include_last_offset", False):
        starts, ends = starts[:-1], starts[1:]
    lengths = [end - start for start, end in zip(starts, ends)]
    if starts[:1] != [0] or ends[-1] != places.size:
        raise NotSupportedError("embedding bags of a part of the indices")
    rows, width = weight.shape
    found = b.op("Embedding", places, weight, input_dim=rows, output_dim=width)
    if padding >= 0:
        kept = b.cast(b.compare("not_equal", places, padding), weight.dtype)
        each = kept if each is None else b.binary("mul", each, kept)
    if each is not None:
        found = b.binary("mul", found, b.reshape(each, (places.size, 1)))
    if len(set(lengths)) == 1:
        bags = b.reshape(found, (len(lengths), lengths[0], width))
        out = b.reduce("sum", bags, [1], False)
    else:
        of_bag = np.repeat(np.arange(len(lengths)), lengths)[:, None].repeat(width, 1)
        none = b.full((len(lengths), width), 0, weight.dtype)
        out = b.op("scatter_elements", none, b.constant(of_bag, np.int64), found, axis=0, reduction="add")
    if n.plain("mode", 0) == 1:
        of_bag = np.arange(len(lengths))[:, None] == np.repeat(np.arange(len(lengths)), lengths)
        counts = b.constant(of_bag.sum(1), weight.dtype)
        if padding >= 0:
            counts = b.matmul(b.constant(of_bag, weight.dtype), b.reshape(kept, (places.size,)))
        counts = b.binary("maximum", counts, 1.0)
        out = b.binary("div", out, b.reshape(counts, (len(lengths), 1)))
    return out, None, None, None


def index_select(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    places = n["index"]
    return b.op("take", x, b.reshape(places, (places.size,)), axis=b.axis(n.plain("dim"), x.rank))


def gather(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    return b.op("gather_elements", x, n["index"], axis=b.axis(n.plain("dim"), x.rank))


def indexed_axes(n: TorchNode) -> tuple[list[int], list[GraphValue]]:
    """The axes that have an index, and the indices at one shape."""
    b = n.builder
    found = n.plain("indices")
    axes = [i for i, v in enumerate(found) if v is not None]
    places = [n.value(found[i]) for i in axes]
    if any(v.dtype == np.bool_ for v in places):
        axes, places = _known_places(n, axes, places)
    shape = broadcast_shapes(*(v.shape for v in places))
    return axes, [b.expand(v, shape) if len(places) > 1 else v for v in places]


def _known_places(
    n: TorchNode, axes: list[int], places: list[GraphValue]
) -> tuple[list[int], list[GraphValue]]:
    """The axes and indices of one mask whose numbers are known, which may have several axes."""
    if len(places) > 1 or places[0].array is None:
        raise NotSupportedError("a boolean index makes a shape that depends on numbers; use where")
    found = np.nonzero(places[0].array)
    return [axes[0] + i for i in range(len(found))], [n.builder.constant(at, np.int64) for at in found]


def _row_numbers(n: TorchNode, dims: tuple[int, ...], places: list[GraphValue]) -> GraphValue:
    """The places in the indexed axes seen as one; a negative index counts from the end."""
    b = n.builder
    total: GraphValue | None = None
    for i, place in enumerate(places):
        place = b.op("_mod_scalar", b.cast(place, np.int64), scalar=float(dims[i]))
        term = place * prod(dims[i + 1 :]) if i + 1 < len(dims) else place
        total = term if total is None else b.binary("add", total, term)
    assert total is not None
    return total


def beginning(axes: list[int]) -> int:
    """The first of the axes of indices in the result: in front, unless the indexed axes are neighbours."""
    return axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0


def index(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    axes, places = indexed_axes(n)
    first, count = beginning(axes), len(axes)
    rest = [i for i in range(x.rank) if i not in axes]
    x = b.transpose(x, (*rest[:first], *axes, *rest[first:]))
    dims = x.shape[first : first + count]
    rows = _row_numbers(n, dims, places)
    flat = b.reshape(x, (*x.shape[:first], prod(dims), *x.shape[first + count :]))
    return b.reshape(b.op("take", flat, rows, axis=first), n.shape)


def flat_taken(n: TorchNode) -> GraphValue:
    """take: elements of all, by their number."""
    b, x, places = n.builder, n["self"], n["index"]
    return b.op("take", b.reshape(x, (x.size,)), _row_numbers(n, (x.size,), [places]), axis=0)


def one_hot(n: TorchNode) -> GraphValue:
    n.ignore("num_classes")  # the last length of the result
    return n.builder.op("one_hot", n["self"], depth=n.shape[-1], dtype="int64")


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "_embedding_bag": embedding_bag,
    "embedding": embedding,
    "embedding_bag": embedding_bag,
    "gather": gather,
    "index": index,
    "index_select": index_select,
    "one_hot": one_hot,
    "take": flat_taken,
}
