"""mx.random: arrays of random numbers, the same for the same seed on every engine and in every thread timing.

Each call takes the next step number of one process-wide generator when it is pushed, and draws from the
stream of that (seed, step): see `generator.py` and `ops/philox.py`. The seed is 0 until `seed` is called.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import as_dtype, Context, OpAttributeError, ShapeError
from ..engine import get_engine
from ..ops.philox import RandomStream
from . import generator
from .generator import GENERATOR, next_stream
from .invoke import call_of, invoke, push_write
from .ndarray import NDArray
from .storage import check_shape, RawArray, target


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Start all random numbers of mxlite anew from `seed_state`.

    There is one generator for all devices, so `ctx` changes nothing; it is there for MXNet's programs.
    """
    GENERATOR.seed(seed_state)


def next_step() -> tuple[int, int]:
    """(seed, step), unique to this call: what one random operation, or one run of a program, draws from."""
    return generator.next_step()


def get_state() -> tuple[int, int]:
    """The generator's state as plain ints, for a checkpoint."""
    return GENERATOR.get_state()


def set_state(state: tuple[int, int]) -> None:
    """Continue from a state that `get_state` gave."""
    GENERATOR.set_state(state)


def uniform(
    low: float = 0, high: float = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Numbers from [low, high), all equally likely; of `shape`, (1,) if None."""
    _check_numbers("uniform", kwargs, low=low, high=high)
    return _draw("_random_uniform", shape, dtype, ctx, out, low=low, high=high)


def normal(
    loc: float = 0, scale: float = 1, shape: Any = None, dtype: Any = None, ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Normal numbers of mean `loc` and standard deviation `scale`; of `shape`, (1,) if None."""
    _check_numbers("normal", kwargs, loc=loc, scale=scale)
    return _draw("_random_normal", shape, dtype, ctx, out, loc=loc, scale=scale)


def randn(*shape: int, loc: float = 0, scale: float = 1, **kwargs: Any) -> NDArray:
    """`normal` with the shape as arguments."""
    return normal(loc, scale, shape or (1,), **kwargs)


def randint(
    low: int, high: int, shape: Any = None, dtype: Any = "int32", ctx: Context | None = None,
    out: NDArray | None = None, **kwargs: Any,
) -> NDArray:  # fmt: skip
    """Whole numbers from [low, high), of `shape`, (1,) if None; at most 2**32 different ones.

    With n different ones, some are more likely than others by a factor of up to 1 + n / 2**32.
    """
    _check_numbers("randint", kwargs, low=low, high=high)
    low, span = int(low), int(high) - int(low)
    if not 0 < span <= 2**32:
        raise ShapeError(f"randint needs low < high, at most 2**32 apart, got [{low}, {high}).")

    if out is None:
        device, kind = target(ctx, dtype)
        out = NDArray.fresh(check_shape((1,) if shape is None else shape), kind, device)
    elif shape is not None and check_shape(shape) != out.shape:
        raise ShapeError(f"randint needs out to be of shape {check_shape(shape)}, but it is {out.shape}.")
    stream, final = next_stream(), out.storage

    def draw() -> None:
        bits = np.empty(final.size, "uint32")
        stream.fill_bits(np, bits, _work())
        # The upper half of bits * span is a number in [0, span).
        wide = bits.astype("uint64")
        wide *= np.uint64(span)
        wide >>= np.uint64(32)
        final.reshape(-1)[:] = wide.astype("int64") + low

    push_write(draw, out, name="randint")
    return out


def shuffle(data: NDArray, out: NDArray | None = None) -> NDArray:
    """The rows of `data` (along its first axis) in random order, every order equally likely."""
    result = NDArray.fresh(data.shape, data.storage.dtype, data.context) if out is None else out
    if result.shape != data.shape or result.dtype != data.dtype:
        raise ShapeError(
            f"out must be {data.dtype.__name__} of shape {data.shape}, but it is {result.shape}."
        )
    stream = next_stream()
    source, final = data.storage, result.storage

    def draw() -> None:
        keys = np.empty((len(source), 2), "uint32")
        stream.fill_bits(np, keys, _work())
        final[...] = source[np.argsort(keys.view("uint64")[:, 0], kind="stable")]

    reads = (data.var, result.var) if result.partial else (data.var,)
    get_engine().push(draw, reads, (result.var,), name="shuffle")
    return result


def _draw(
    op: str, shape: Any, dtype: Any, ctx: Context | None, out: NDArray | None, **numbers: float
) -> NDArray:
    """The numbers of the next step by a random operator; shape and dtype are those of `out` if not given."""
    if out is not None:
        shape = out.shape if shape is None else shape
        dtype = out.storage.dtype if dtype is None else dtype
    size = check_shape((1,) if shape is None else shape)
    given = {**numbers, "shape": size, "dtype": str(as_dtype(dtype))}
    return invoke(call_of(op, given), (), out, ctx, NDArray)


def _check_numbers(name: str, unknown: dict[str, Any], **values: Any) -> None:
    if unknown:
        raise OpAttributeError(f"{name} has no parameter {sorted(unknown)[0]!r}.")
    for key, value in values.items():
        if isinstance(value, NDArray) or not hasattr(value, "__float__"):
            raise TypeError(f"{name} needs a number for {key!r}, got {type(value).__name__}.")


def _work() -> RawArray:
    return np.empty(RandomStream.WORK_BYTES, "uint8")
