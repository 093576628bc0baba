"""Sums over all axes but the channel's, of arrays read as (N, C, P): samples, channels, positions.

The order of the axes decides the speed: over the samples first if there are few positions (rows of C * P
numbers are added), over the positions first if there are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...graph.opdef import DType
from ..scratch import BLOCK, Piece

FEW = 64  # the most positions for which a row of C * P numbers is the better unit

Block = tuple[slice, slice, slice]


def blocks(n: int, c: int, p: int) -> Iterator[Block]:
    """Cut (N, C, P) into boxes of at most BLOCK elements: whole samples, else whole channels, else less."""
    steps = tuple(max(1, d) for d in block_shape(n, c, p))
    for i in range(0, n, steps[0]):
        for j in range(0, c, steps[1]):
            for k in range(0, p, steps[2]):
                yield (
                    slice(i, min(n, i + steps[0])),
                    slice(j, min(c, j + steps[1])),
                    slice(k, min(p, k + steps[2])),
                )


def block_shape(n: int, c: int, p: int) -> tuple[int, int, int]:
    """Shape of the largest box of `blocks`."""
    if c * p <= BLOCK:
        return min(n, BLOCK // max(1, c * p)), c, p
    if p <= BLOCK:
        return 1, min(c, BLOCK // p), p
    return 1, 1, BLOCK


def sum_piece(n: int, c: int, p: int, dtype: DType) -> Piece:
    """Scratch of `channel_sum` and `channel_dot`, of the whole or of any box of `blocks`.

    A plane of more than BLOCK positions is cut, and its last box may have FEW positions or less.
    """
    return ((c, p) if p <= FEW else (max(n * c, FEW),)), dtype


def channel_sum(xp: Any, x: Any, part: Any, out: Any) -> None:
    """out[c] = sum over n, p of x[n, c, p]. part: the array of `sum_piece`; its dtype is that of the sum."""
    n, c, p = x.shape
    if p <= FEW:
        rows = part.reshape(-1)[: c * p].reshape(c, p)
        xp.add.reduce(x, axis=0, dtype=part.dtype, out=rows)
        xp.add.reduce(rows, axis=1, out=out)
    else:
        rows = part.reshape(-1)[: n * c].reshape(n, c)
        xp.add.reduce(x, axis=2, dtype=part.dtype, out=rows)
        xp.add.reduce(rows, axis=0, out=out)


def channel_dot(xp: Any, x: Any, y: Any, part: Any, out: Any) -> None:
    """out[c] = sum over n, p of x[n, c, p] * y[n, c, p]; all of one dtype."""
    n, c, p = x.shape
    if p <= FEW:
        rows = part.reshape(-1)[: c * p].reshape(c, p)
        xp.einsum("ncp,ncp->cp", x, y, out=rows)
        xp.add.reduce(rows, axis=1, out=out)
    else:
        rows = part.reshape(-1)[: n * c].reshape(n, c)
        xp.einsum("ncp,ncp->nc", x, y, out=rows)
        xp.add.reduce(rows, axis=0, out=out)


def spread_shape(c: int, p: int) -> tuple[int, int]:
    """Shape of the array in which `spread` holds one number for each channel."""
    return (c, p) if p <= FEW else (c, 1)


def spread(xp: Any, values: Any, out: Any) -> Any:
    """Numbers (C,) as an array that fits (N, C, P): repeated over few positions, broadcast over many."""
    xp.copyto(out, values[:, None], casting="same_kind")
    return out
