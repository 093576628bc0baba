"""Working through large arrays in small blocks, so that no kernel allocates more than a cache's worth.

Arrays that kernels get are in C order. What may be scratch of a fixed size is a local temporary of at
most PIECE elements; what grows with the arrays is declared as workspace by the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from ..graph.ir import Shape
from ..graph.opdef import DType

PIECE = 4096
"""Elements of the largest temporary: 32 KiB of float64."""

BLOCK = 16384
"""Elements of `fold`'s product at a time, where one row is not larger."""


def pieces(*arrays: Any) -> Iterator[Sequence[Any]]:
    """Yield matching flat parts of arrays of one shape, at most PIECE elements each; small arrays whole."""
    size = arrays[0].size
    if size <= PIECE:
        yield arrays
        return
    flat = [x.reshape(-1) for x in arrays]
    for begin in range(0, size, PIECE):
        yield [x[begin : begin + PIECE] for x in flat]


def copy(xp: Any, source: Any, target: Any) -> None:
    """Copy `source` into `target` of as many elements, unless they are the same memory."""
    if not xp.may_share_memory(source, target):
        xp.copyto(target, source.reshape(target.shape))


def weak(data: Any, scalar: float) -> float | int:
    """`scalar` as an operand that takes on `data`'s dtype: truncated for whole-number arrays, as in MXNet."""
    return int(scalar) if data.dtype.kind in "iu" else scalar


def iota(xp: Any, out: Any) -> None:
    """Fill the flat array `out` with 0, 1, 2, ..., by doubling, without a temporary."""
    out[:1] = 0
    done = 1
    while done < out.size:
        part = out[done : 2 * done]
        xp.add(out[: part.size], done, out=part)
        done += part.size


def fold(xp: Any, fill: Callable[..., None], operands: Sequence[Any], target: Any, work: Any) -> None:
    """Sum an elementwise expression over the axes along which `target` is one long (or that it lacks).

    fill(out, *parts): writes the expression of its operands into `out`.
    operands: arrays that broadcast to the shape of the first one, S.  target: an array that broadcasts to S.
    work: `fold_bytes` of scratch. The expression is formed for a block of rows of S at a time.
    """
    rank = operands[0].ndim
    total = target.reshape((1,) * (rank - target.ndim) + target.shape)
    shape = operands[0].shape
    axes = tuple(i for i in range(rank) if total.shape[i] != shape[i])
    if not axes:
        fill(total, *operands)
        return
    lead = _leading_ones(shape)
    aligned = [x.reshape(((1,) * (rank - x.ndim) + x.shape)[lead:]) for x in operands]
    total, shape, axes = total.reshape(total.shape[lead:]), shape[lead:], tuple(i - lead for i in axes)
    count, rows = shape[0], _rows(shape)
    split = work.nbytes - total.nbytes
    part = work[split - split % total.itemsize :][: total.nbytes].view(total.dtype).reshape(total.shape)
    for begin in range(0, count, rows):
        end = min(begin + rows, count)
        block = (end - begin, *shape[1:])
        product = work[: prod(block) * total.itemsize].view(total.dtype).reshape(block)
        fill(product, *(x[begin:end] if x.shape[0] != 1 or count == 1 else x for x in aligned))
        if 0 not in axes:
            xp.add.reduce(product, axis=axes, keepdims=True, out=total[begin:end])
        elif begin == 0:
            xp.add.reduce(product, axis=axes, keepdims=True, out=total)
        else:
            xp.add.reduce(product, axis=axes, keepdims=True, out=part)
            xp.add(total, part, out=total)


def fold_bytes(shape: Shape, targets: Sequence[Shape], dtype: DType) -> int:
    """Scratch in bytes that `fold` needs for an expression of `shape` and any of `targets`."""
    folded = [prod(t) for t in targets if prod(t) != prod(shape)]
    if not folded:
        return 0
    shape = shape[_leading_ones(shape) :]
    return (min(shape[0], _rows(shape)) * prod(shape[1:]) + max(folded)) * dtype.itemsize


def _leading_ones(shape: Shape) -> int:
    return next((i for i, d in enumerate(shape[:-1]) if d != 1), max(len(shape) - 1, 0))


def _rows(shape: Shape) -> int:
    return max(1, BLOCK // max(1, prod(shape[1:])))
