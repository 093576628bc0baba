"""Loops over large arrays in small blocks, so that no kernel allocates more than a cache's worth.

Kernels get arrays in C order. Scratch of a fixed size is a local temporary of at most PIECE elements;
scratch that grows with the arrays is declared as workspace by the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..core.errors import DTypeError
from ..graph.ir import Shape
from ..graph.opdef import DType
from .scratch import accumulator, carve, scratch_bytes

PIECE = 4096
"""Size of the largest temporary in elements: 32 KiB of float64."""


def pieces(*arrays: Any, size: int = PIECE) -> Iterator[Sequence[Any]]:
    """Yield matching flat parts of arrays of one shape, at most `size` elements each; small arrays whole.

    An array without axes becomes one of one element: numpy gives numbers, not arrays, for sums of such.
    """
    if arrays[0].size <= size and arrays[0].ndim:
        yield arrays
        return
    flat = [x.reshape(-1) for x in arrays]
    for begin in range(0, arrays[0].size, size):
        yield [x[begin : begin + size] for x in flat]


def copy(xp: Any, source: Any, target: Any) -> None:
    """Copy `source` into `target`, which has as many elements, unless they are the same memory."""
    if not xp.may_share_memory(source, target):
        xp.copyto(target, source.reshape(target.shape))


def weak(data: Any, scalar: float) -> float | int:
    """`scalar` as an operand of `data`'s dtype: for whole numbers cut and wrapped round, as in MXNet."""
    if data.dtype.kind not in "iu" or not math.isfinite(scalar):
        return scalar
    return int(np.asarray(int(scalar) % 2**64, np.uint64).astype(data.dtype))


def require_finite(value: float, dtype: DType | None, name: str) -> None:
    """Raise DTypeError if `value`, the parameter `name`, has no counterpart in whole numbers of `dtype`."""
    if dtype is not None and dtype.kind in "iu" and not math.isfinite(value):
        raise DTypeError(
            f"{name} must be finite for {dtype}, got {value}; convert data with astype('float32')."
        )


def power(xp: Any, base: Any, exponent: Any, out: Any) -> None:
    """``base ** exponent``; of whole numbers in float64 and cut towards 0: exponents may be negative."""
    if out.dtype.kind in "iu":
        xp.power(base, exponent, out=out, dtype="float64", casting="unsafe")
    elif isinstance(exponent, float) and exponent == 0.5:
        # The power of -0.0 is 0.0 and that of -inf is inf. Newer versions of numpy take a root instead, where
        # one exponent serves all bases.
        for x, into in pieces(base, out):
            endless = x == -xp.inf
            xp.add(x, 0.0, out=into)
            xp.sqrt(into, out=into)
            xp.copyto(into, xp.inf, where=endless)
    else:
        xp.power(base, exponent, out=out)


def iota(xp: Any, out: Any) -> None:
    """Fill the flat array `out` with 0, 1, 2, ..., by doubling, without a temporary."""
    out[:1] = 0
    done = 1
    while done < out.size:
        part = out[done : 2 * done]
        xp.add(out[: part.size], done, out=part)
        done += part.size


def accumulate(
    xp: Any,
    ufunc: Any,
    source: Any,
    axes: tuple[int, ...],
    target: Any,
    work: Any,
    finish: Callable[[Any], None] = lambda total: None,
) -> None:
    """Reduce `source` over `axes` by `ufunc` into `target` of as many axes; two-byte floats in float32.

    work: `accumulate_bytes` of scratch. finish(total): applied to the total, in place, before the cast.
    """
    wide = accumulator(target.dtype)
    total = target if wide == target.dtype else carve(work, [(target.shape, wide)])[0]
    ufunc.reduce(source, axis=axes, dtype=wide, keepdims=True, out=total)
    finish(total)
    if total is not target:
        xp.copyto(target, total, casting="unsafe")


def accumulate_bytes(target: Shape, dtype: DType) -> int:
    """Scratch in bytes that `accumulate` needs for a target of that shape and type."""
    return scratch_bytes([(target, accumulator(dtype))]) if accumulator(dtype) != dtype else 0
