"""Gathering and scattering by index, sorting."""

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


def scatter(n: TorchNode) -> GraphValue:
    b, x, places = n.builder, n["self"], n["index"]
    how = {None: "none", "add": "add", "multiply": "mul", "sum": "add", "prod": "mul"}.get(n.plain("reduce"))
    how = "add" if "scatter_add" in n.target else how
    if how is None or n.plain("include_self", True) is not True:
        raise NotSupportedError(f"scatter with reduce={n.plain('reduce')!r}")
    if n.plain("src") is not None:
        source = n["src"]
        for axis, length in enumerate(places.shape):
            source = b.slice(source, axis, 0, length)
    else:
        source = b.full(places.shape, n.plain("value"), x.dtype)
    axis = b.axis(n.plain("dim"), x.rank)
    return b.op("scatter_elements", x, places, b.cast(source, x.dtype), axis=axis, reduction=how)


def _indexed_axes(n: TorchNode) -> tuple[list[int], list[GraphValue]]:
    """The axes that have an index, neighbours of each other, and the indices at one shape."""
    b = n.builder
    found = n.plain("indices")
    axes = [i for i, v in enumerate(found) if v is not None]
    places = [n.value(found[i]) for i in axes]
    if any(v.dtype == np.bool_ for v in places):
        known = [v.array for v in places]
        if any(a is None for a in known):
            raise NotSupportedError("a boolean index makes a shape that depends on numbers; use where")
        if len(places) > 1 or known[0].ndim != 1:  # type: ignore[union-attr]
            raise NotSupportedError("a boolean index of several axes")
        places = [b.constant(np.flatnonzero(known[0]), np.int64)]  # type: ignore[arg-type]
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise NotSupportedError(f"indices of axes {axes}, which are no neighbours")
    shape = broadcast_shapes(*(v.shape for v in places))
    return axes, [b.expand(v, shape) if len(places) > 1 else v for v in places]


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


def index(n: TorchNode) -> GraphValue:
    b, x = n.builder, n["self"]
    axes, places = _indexed_axes(n)
    first, count = axes[0], len(axes)
    dims = x.shape[first : first + count]
    rows = _row_numbers(n, dims, places)
    flat = b.reshape(x, (*x.shape[:first], prod(dims), *x.shape[first + count :]))
    return b.reshape(b.op("take", flat, rows, axis=first), n.shape)


def index_put(n: TorchNode) -> GraphValue:
    """x[indices] = values, or += with `accumulate`; a mask as long as the data becomes a where."""
    b, x, values = n.builder, n["self"], values_of(n)
    found = n.plain("indices")
    if len(found) == 1 and found[0] is not None and n.value(found[0]).dtype == np.bool_:
        mask = n.value(found[0])
        if values.size != 1 or n.plain("accumulate", False):
            raise NotSupportedError("values written through a mask; one number could be written")
        mask = b.reshape(mask, mask.shape + (1,) * (x.rank - mask.rank))
        return b.where(mask, b.reshape(values, ()), x)
    axes, places = _indexed_axes(n)
    if axes[0] != 0:
        raise NotSupportedError(f"values written at indices of axes {axes}")
    dims, rest = x.shape[: len(axes)], x.shape[len(axes) :]
    rows = _row_numbers(n, dims, places)
    values = b.expand(values, (*rows.shape, *rest))
    flat, table = b.reshape(values, (rows.size, prod(rest))), b.reshape(x, (prod(dims), prod(rest)))
    where = b.expand(b.reshape(rows, (rows.size, 1)), flat.shape)
    how = "add" if n.plain("accumulate", False) else "none"
    return b.reshape(b.op("scatter_elements", table, where, flat, axis=0, reduction=how), x.shape)


def values_of(n: TorchNode) -> GraphValue:
    """`values` in the data's type."""
    return n.builder.cast(n["values"], n["self"].dtype)


def index_add(n: TorchNode) -> GraphValue:
    b, x, source = n.builder, n["self"], n["source"]
    axis = b.axis(n.plain("dim"), x.rank)
    alpha = n.plain("alpha", 1)
    source = source if alpha == 1 else source * float(alpha)
    dims = tuple(source.shape[axis] if i == axis else 1 for i in range(source.rank))
    where = b.expand(b.reshape(n["index"], dims), source.shape)
    return b.op("scatter_elements", x, where, source, axis=axis, reduction="add")


def one_hot(n: TorchNode) -> GraphValue:
    return n.builder.op("one_hot", n["self"], depth=n.shape[-1], dtype="int64")


def top_k(n: TorchNode) -> tuple[GraphValue, ...]:
    b, x = n.builder, n["self"]
    axis = b.axis(n.plain("dim", -1), x.rank)
    if n.plain("k") is None:
        count, ascending = x.shape[axis], not n.plain("descending", False)
    else:
        count, ascending = n.plain("k"), not n.plain("largest", True)
    return b.ops("topk", x, axis=axis, k=count, ret_typ="both", is_ascend=ascending, dtype="int64")


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "_embedding_bag": embedding_bag,
    "embedding": embedding,
    "embedding_bag": embedding_bag,
    "gather": gather,
    "index": index,
    "index_add": index_add,
    "index_put": index_put,
    "index_select": index_select,
    "one_hot": one_hot,
    "scatter": scatter,
    "scatter_add": scatter,
    "scatter_reduce": scatter,
    "sort": top_k,
    "topk": top_k,
}
