"""Which of the kernels here, cut how, for a convolution; and how long it takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..threads import num_threads
from .convolve import Convolution
from .correlate import Correlation
from .layer import fits, part_of
from .tiles import Epilogue


def forward(
    n: int,
    h: int,
    w: int,
    c: int,
    f: int,
    pad: tuple[int, int],
    dtype: Any,
    add: bool = False,
    relu: bool = False,
    **cut: Any,
) -> Convolution | None:
    """data (n, h, w, c), weight (f, c, 3, 3) and bias -> out."""
    return _convolution(n, h, w, c, f, pad, dtype, False, Epilogue(add, relu), **cut)


def d_data(
    n: int, h: int, w: int, c: int, f: int, pad: tuple[int, int], dtype: Any, **cut: Any
) -> Convolution | None:
    """The gradient of the data of `forward` with the same arguments: d_out and weight -> d_data."""
    oh, ow = h + 2 * pad[0] - 2, w + 2 * pad[1] - 2
    return _convolution(n, oh, ow, f, c, (2 - pad[0], 2 - pad[1]), dtype, True, Epilogue(), **cut)


def _convolution(
    n: int,
    h: int,
    w: int,
    c: int,
    f: int,
    pad: tuple[int, int],
    dtype: Any,
    flipped: bool,
    epilogue: Epilogue,
    m: int = 4,
    parts: tuple[int, int] | None = None,
    group: int | None = None,
    most: int | None = None,
) -> Convolution | None:
    if not fits(n, h, w, c, f, pad, dtype):
        return None
    threads = num_threads()
    tiles = n * -(-(h + 2 * pad[0] - 2) // m) * -(-(w + 2 * pad[1] - 2) // m)
    if parts is None:
        made = c * f <= 128 * 128
        parts = (c, f) if made else (part_of(c, 64), part_of(f, 32))
    else:
        made = parts == (c, f)
    group = group or (14 if made else 128)
    groups = -(-tiles // group)
    if made:
        groups = max(1, min(tiles, -(-groups // threads) * threads))
    return Convolution(
        n, h, w, c, f, (pad[0], pad[1]), str(np.dtype(dtype)), m, threads, flipped, epilogue, parts, groups,
        most or 28, made,
    )  # fmt: skip


def d_weight(
    n: int,
    h: int,
    w: int,
    c: int,
    f: int,
    pad: tuple[int, int],
    dtype: Any,
    m: int = 4,
    most: int = 28,
    parts: tuple[int, int] | None = None,
    splits: int | None = None,
) -> Correlation | None:
    """The gradient of the weights of `forward` with the same arguments: d_out and data -> d_weight."""
    if not fits(n, h, w, c, f, pad, dtype):
        return None
    threads = num_threads()
    if parts is None:
        parts = part_of(c, 64), part_of(f, 64)
    if splits is None:
        items = (c // parts[0]) * (f // parts[1])
        splits = 1 if items % threads == 0 or items > 8 * threads else threads
    tiles = n * -(-(h + 2 * pad[0] - 2) // m) * -(-(w + 2 * pad[1] - 2) // m)
    splits = min(splits, tiles)  # each has something to add
    return Correlation(
        n, h, w, c, f, (pad[0], pad[1]), str(np.dtype(dtype)), m, threads, parts, splits, most
    )
