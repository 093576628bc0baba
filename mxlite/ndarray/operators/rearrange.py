"""mx.nd functions that are an operator with its parameters said in another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

from ...core import ShapeError
from ...ops.shape.split import split_parameters
from ..calls.invoke import call_of, invoke

if TYPE_CHECKING:
    from ..ndarray import NDArray


def split_v2(
    ary: NDArray, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
) -> Any:
    """So many equal parts of `ary` along `axis`, or the parts between places; a list, unless there is one.

    split_v2(a, 3) cuts into thirds, split_v2(a, (2, 3)) into a[:2], a[2:3], a[3:].
    """
    given = {**split_parameters(indices_or_sections), "axis": axis, "squeeze_axis": squeeze_axis}
    return invoke(call_of("_split_v2", given), (ary,))


def moveaxis(tensor: NDArray, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    """`tensor` with the axes `source` at the places `destination`, the others in their order. Copies."""
    rank = tensor.ndim
    moved, places = _axes(source, rank, "source"), _axes(destination, rank, "destination")
    if len(moved) != len(places):
        raise ShapeError(f"moveaxis: source {source} and destination {destination} must be equally many.")
    order = [i for i in range(rank) if i not in moved]
    for place, axis in sorted(zip(places, moved)):
        order.insert(place, axis)
    return invoke(call_of("transpose", {"axes": tuple(order)}), (tensor,)) if rank else tensor


def _axes(given: int | Sequence[int], rank: int, what: str) -> list[int]:
    axes = [given] if isinstance(given, int) else list(given)
    if any(not -rank <= i < rank for i in axes) or len({i % rank for i in axes}) < len(axes):
        raise ShapeError(f"moveaxis: {what} {given} must name axes of an array with {rank}, each once.")
    return [i % rank for i in axes]


def onehot_encode(indices: NDArray, out: NDArray) -> NDArray:
    """Write ``out[i, indices[i]] = 1``, 0 elsewhere, and give `out`. (The old form of `one_hot`.)"""
    result: NDArray = invoke(call_of("_onehot_encode", {}), (indices, out), out)
    return result
