"""Arrays that depend on nothing: constants of a graph, such as the first state of an unrolled network."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from ..core.dtype import as_dtype
from ..core.errors import OpAttributeError, ShapeError
from ..graph.opdef import Op
from .blocks import PIECE


class _Constant(Op):
    """No input; the shape and the dtype are attributes. In a graph, it is written again at every run."""

    cheap = True

    @dataclass(frozen=True)
    class Attrs:
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str = "float32"

    @staticmethod
    def infer_shape(a):
        if not a.shape or min(a.shape) < 1:
            raise ShapeError(f"shape must be lengths of 1 or more, got {a.shape}: nothing else tells them.")
        return (), (a.shape,)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return (), (as_dtype(None if a.dtype == "None" else a.dtype),)

    @staticmethod
    def flops(a, inputs, outputs):
        return 0


class _zeros(_Constant):
    """Zeros. ->  out: `shape`, of `dtype`, float32 unless given. `ctx` is where the array will live."""

    @staticmethod
    def forward(xp, a, *, out):
        out.fill(0)


class _ones(_Constant):
    """Ones. ->  out: `shape`, of `dtype`, float32 unless given. `ctx` is where the array will live."""

    @staticmethod
    def forward(xp, a, *, out):
        out.fill(1)


class _full(_Constant):
    """One number everywhere, `value`.

    ->  out: `shape`, of `dtype`, float32 unless given; whole-number arrays get `value` cut towards 0.
    `ctx` is where the array will live.
    """

    @dataclass(frozen=True)
    class Attrs:
        value: float
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str = "float32"

    @staticmethod
    def forward(xp, a, *, out):
        out.fill(int(a.value) if out.dtype.kind in "iu" else a.value)


class _arange(_Constant):
    """`start`, `start` + `step`, ... as long as it is before `stop`, each `repeat` times.

    ->  out: (N,) of `dtype`, float32 unless given, where N = ceil((stop - start) / step) * repeat. Without
    `stop`, from 0 to `start`. `infer_range` is there for MXNet's files and must be False. `ctx` is where
    the array will live.
    """

    @dataclass(frozen=True)
    class Attrs:
        start: float = 0.0
        stop: float | None = None
        step: float = 1.0
        repeat: int = 1
        infer_range: bool = False
        ctx: str = ""
        dtype: str = "float32"

    @staticmethod
    def infer_shape(a):
        if a.infer_range:
            raise OpAttributeError("_arange: infer_range=True is not supported; give a stop.")
        if a.step == 0 or a.repeat < 1:
            raise OpAttributeError(
                f"_arange: step must not be 0 nor repeat below 1, got {a.step}, {a.repeat}."
            )
        begin, end = _range(a)
        count = max(0, ceil((end - begin) / a.step)) * a.repeat
        if not count:
            raise ShapeError(f"from {begin} to {end} in steps of {a.step} there is nothing.")
        return (), ((count,),)

    @staticmethod
    def forward(xp, a, *, out):
        begin, _ = _range(a)
        for first in range(0, out.size, PIECE):
            part = out[first : first + PIECE]
            values = xp.arange(first, first + part.size) // a.repeat * a.step
            values += begin
            xp.copyto(part, values, casting="unsafe")


def _range(a):
    return (0.0, a.start) if a.stop is None else (a.start, a.stop)
