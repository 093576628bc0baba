"""Arrays that depend on nothing: constants of a graph, such as the first state of an unrolled network."""

from __future__ import annotations

from math import ceil, isfinite

from ...core.compat.npshape import from_user, UNKNOWN
from ...core.dtype import as_dtype, FLAGS
from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.opdef import Op
from ..blocks import require_finite, weak
from .like import fill_range, in_steps_of


class Constant(Op):
    """Base of operators without inputs; shape and dtype are attributes. A graph writes them at every run.

    A length of 0 or -1 is open, as in MXNet, and follows from the readers of the array; inside `np_shape`
    0 is a length like others.
    """

    cheap = True
    flops_per_output = 0

    @record
    class Attrs:
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str = "float32"

    @staticmethod
    def infer_shape(a):
        if a.shape is None:
            raise ShapeError("needs the parameter 'shape': nothing else tells it.")
        if min(a.shape, default=0) < -1:
            raise ShapeError(f"shape must be lengths, got {a.shape}.")
        return (), (from_user(a.shape),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return (), (as_dtype(None if a.dtype == "None" else a.dtype),)


class _zeros(Constant):
    """Zeros. ->  out: `shape`, of `dtype`, float32 unless given. `ctx` is where the array will live."""

    @staticmethod
    def forward(xp, a, *, out):
        out.fill(0)


class _ones(Constant):
    """Ones. ->  out: `shape`, of `dtype`, float32 unless given. `ctx` is where the array will live."""

    @staticmethod
    def forward(xp, a, *, out):
        out.fill(1)


class _full(Constant):
    """One number everywhere, `value`.

    ->  out: `shape`, of `dtype`, float32 unless given; whole-number arrays get `value` cut towards 0.
    `ctx` is where the array will live.
    """

    @record
    class Attrs:
        value: float
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: str = "float32"

    @classmethod
    def infer_type(cls, a, *dtypes):
        _, outs = super().infer_type(a, *dtypes)
        require_finite(a.value, outs[0], "value")
        return (), outs

    @staticmethod
    def forward(xp, a, *, out):
        out.fill(weak(out, a.value))


class Arange(Constant):
    """`start`, `start` + `step`, ... as long as it is before `stop`, each `repeat` times.

    ->  out: (N,) of `dtype`, float32 unless given, where N = ceil((stop - start) / step) * repeat. Without
    `stop`, from 0 to `start`; or with `infer_range` from `start`, as many as the readers of the array
    need. For a whole-number `dtype`, `start` and `step` are cut towards 0. `ctx` is where the array will
    live.
    """

    op_name = "_arange"

    @record
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
        if a.step == 0 or a.repeat < 1:
            raise OpAttributeError(
                f"_arange: step must not be 0 nor repeat below 1, got {a.step}, {a.repeat}."
            )
        if _is_open(a):
            return (), ((UNKNOWN,),)
        begin, end = range_of(a)
        if not isfinite((end - begin) / a.step):
            raise OpAttributeError(f"_arange: from {begin} to {end} by {a.step} is no finite count.")
        return (), ((max(0, ceil((end - begin) / a.step)) * a.repeat,),)

    @staticmethod
    def forward(xp, a, *, out):
        start, step = in_steps_of(out.dtype, range_of(a)[0], a.step)
        fill_range(xp, out, start, step, a.repeat)


def _is_open(a):
    return a.infer_range and a.stop is None


def range_of(a):
    return (0.0, a.start) if a.stop is None and not a.infer_range else (a.start, a.stop)


class Linspace(Constant):
    """`num` numbers from `start` to `stop`, equally far from each other.

    ->  out: (`num`,) of `dtype`, float32 unless given; whole ones are cut towards 0. With `endpoint`, the
    last one is `stop`, else the one after it would be. `ctx` is where the array will live.
    """

    op_name = "_linspace"

    @record
    class Attrs:
        start: float
        stop: float
        num: int
        endpoint: bool = True
        ctx: str = ""
        dtype: str = "float32"

    @staticmethod
    def infer_shape(a):
        if a.num < 0:
            raise OpAttributeError(f"_linspace: num must not be negative, got {a.num}.")
        return (), ((a.num,),)

    @staticmethod
    def forward(xp, a, *, out):
        gaps = a.num - 1 if a.endpoint else a.num
        step = (a.stop - a.start) / gaps if gaps else 0.0
        fill_range(xp, out, a.start, step, 1)
        if a.endpoint and gaps > 0:
            out[-1] = weak(out, a.stop)


class _zeros_without_dtype(Constant):
    """Zeros of `shape`, float32 unless `dtype` gives MXNet's number of a type. ->  out: `shape`."""

    @record
    class Attrs:
        shape: tuple[int, ...] | None = None
        ctx: str = ""
        dtype: int = -1

    @classmethod
    def infer_type(cls, a, *dtypes):
        if a.dtype != -1 and a.dtype not in FLAGS:
            raise OpAttributeError(f"_zeros_without_dtype: there is no dtype number {a.dtype}.")
        return (), (FLAGS[0 if a.dtype == -1 else a.dtype],)

    @staticmethod
    def forward(xp, a, *, out):
        out.fill(0)
