"""Arrays of random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

from ..core.dtype import as_dtype, is_floating
from ..core.errors import DTypeError
from ..graph.opdef import Op
from .philox import RandomStream

_PAIRS = 4096  # normal numbers formed at a time


class _Draw(Op):
    """No input; the shape and the dtype are attributes."""

    random = True

    @staticmethod
    def infer_shape(a):
        return (), (a.shape or (1,),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        dtype = as_dtype(None if a.dtype == "None" else a.dtype)
        if not is_floating(dtype):
            raise DTypeError(f"dtype must be floating, got {dtype}.")
        return (), (dtype,)


class _random_uniform(_Draw):
    """Independent uniform random numbers in [`low`, `high`).

    ->  out: `shape`, (1,) if it is empty, of `dtype`, float32 if None. `ctx` is where the array will live.
    """

    aliases = ("uniform", "random_uniform")

    @dataclass(frozen=True)
    class Attrs:
        low: float = 0.0
        high: float = 1.0
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str | None = None

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return RandomStream.WORK_BYTES

    @staticmethod
    def forward(xp, a, *, out, rng, work):
        rng.fill_uniform(xp, out, work)
        if a.high - a.low != 1:
            xp.multiply(out, a.high - a.low, out=out)
        if a.low != 0:
            xp.add(out, a.low, out=out)


class _random_normal(_Draw):
    """Independent normal random numbers of mean `loc` and standard deviation `scale`.

    ->  out: `shape`, (1,) if it is empty, of `dtype`, float32 if None. `ctx` is where the array will live.

    By G. E. P. Box and M. E. Muller, 1958, "A note on the generation of random normal deviates": number i is
    made of the uniform numbers 2*i and 2*i + 1. Only one of the pair's two results is used, so that an
    element depends on its own two numbers alone. With 24 bits, no number is further than 5.8 `scale` from
    `loc`.
    """

    aliases = ("normal", "random_normal")

    @dataclass(frozen=True)
    class Attrs:
        loc: float = 0.0
        scale: float = 1.0
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str | None = None

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return RandomStream.WORK_BYTES + 2 * 8 * _PAIRS

    @staticmethod
    def forward(xp, a, *, out, rng, work):
        flat = out.reshape(-1)
        scratch = work[RandomStream.WORK_BYTES :].view("float64")
        for begin in range(0, flat.size, _PAIRS):
            part = flat[begin : begin + _PAIRS]
            uniform = scratch[: 2 * part.size]
            rng.fill_uniform(xp, uniform, work, 2 * begin)
            radius, angle = uniform[0::2], uniform[1::2]
            xp.subtract(1.0, radius, out=radius)  # (0, 1]: its logarithm is finite
            xp.log(radius, out=radius)
            xp.multiply(radius, -2.0 * a.scale * a.scale, out=radius)
            xp.sqrt(radius, out=radius)
            xp.multiply(angle, 2 * pi, out=angle)
            xp.cos(angle, out=angle)
            xp.multiply(radius, angle, out=radius)
            xp.add(radius, a.loc, out=radius)
            xp.copyto(part, radius, casting="unsafe")
