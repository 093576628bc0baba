"""Pooling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Literal

from ..core.dtype import as_dtype
from ..core.errors import OpAttributeError, ShapeError
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, require_kind, Shapes
from .scratch import accumulator, BLOCK, carve, Piece, scratch_bytes
from .windows import output_size, per_axis, Slices, window_slices

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


class Pooling(Op):
    """One number for each window: its maximum, mean, sum, or p-norm without absolute values.

    data: (N, C, H, W)  ->  out: (N, C, OH, OW), where OH = f((H + 2 * pad - kernel) / stride) + 1 with f =
    floor for the convention 'valid' and ceil for 'full'; for 'same' OH = ceil(H / stride), without padding,
    and windows reach beyond the end. One to three spatial axes. `global_pool` takes
    all positions as one window: (N, C, 1, 1), whatever `kernel`, `stride` and `pad` say.

    max: the first of equal maxima, row by row, gets the gradient. avg: the mean over the window as far as it
    lies in the padded data (padding counts as zeros), or with `count_include_pad=False` in the data itself.
    lp: (sum of x^p)^(1/p), p = 1, 2 or 3. `cudnn_off` has no effect.

    For max a hidden output `index` remembers which element of its window each maximum was: one byte
    for windows of up to 255 elements, else four. Backward then needs neither `data` nor `out`, which MXNet
    both keeps: for 2x2 windows an index is 1/16 of float32 data. avg and sum need nothing but d_out.
    """

    inputs = ("data",)
    outputs = ("out", "index")
    hidden = 1
    cheap = True
    accepts = "float"
    aliases = ("Pooling_v1",)

    @dataclass(frozen=True)
    class Attrs:
        kernel: tuple[int, ...] = ()
        pool_type: Literal["max", "avg", "sum", "lp"] = "max"
        global_pool: bool = False
        cudnn_off: bool = False
        pooling_convention: Literal["valid", "full", "same"] = "valid"
        stride: tuple[int, ...] = ()
        pad: tuple[int, ...] = ()
        p_value: int | None = None
        count_include_pad: bool | None = None
        layout: str | None = None

        def __post_init__(self) -> None:
            if self.layout not in (None, *_LAYOUTS.values()):
                raise OpAttributeError(
                    f"layout {self.layout!r} is not supported; use one of {[*_LAYOUTS.values()]}."
                )
            if self.pool_type == "lp" and self.p_value not in (1, 2, 3):
                raise OpAttributeError(f"p_value must be 1, 2 or 3 for pool_type 'lp', got {self.p_value}.")
            if self.global_pool:
                return
            if len(self.kernel) not in _LAYOUTS:
                raise OpAttributeError(
                    f"kernel must have 1, 2 or 3 numbers unless global_pool is set, got {self.kernel}."
                )
            for name, least in (("kernel", 1), ("stride", 1), ("pad", 0)):
                if any(v < least for v in per_axis(name, getattr(self, name), len(self.kernel), least)):
                    raise OpAttributeError(f"{name} must be at least {least}, got {getattr(self, name)}.")
            if self.pooling_convention == "same" and any(self.pad):
                raise OpAttributeError(f"pooling_convention 'same' goes without padding, got pad={self.pad}.")

    @classmethod
    def output_names(cls, a: Any) -> tuple[str, ...]:
        return cls.outputs if a.pool_type == "max" else cls.outputs[:1]

    @classmethod
    def num_visible_outputs(cls, a: Any) -> int:
        return 1

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset() if a.pool_type == "lp" else frozenset(["data", "out"])

    @classmethod
    def infer_type(
        cls, a: Any, *dtypes: DType | None
    ) -> tuple[tuple[DType | None, ...], tuple[DType | None, ...]]:
        require_kind(cls, dtypes[0])
        return dtypes, (dtypes[0], index_type(a))[: len(cls.output_names(a))]

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        rank = len(data) - 2
        if rank not in _LAYOUTS or (not a.global_pool and rank != len(a.kernel)):
            wanted = "3 to 5" if a.global_pool else len(a.kernel) + 2
            raise ShapeError(f"data must have {wanted} axes (N, C, ...), got {data}.")
        out = (*data[:2], *Windows(a, data).out)
        return (data,), (out,) * len(Pooling.output_names(a))

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(outputs[0]) * prod(Windows(a, inputs[0]).kernel)

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(pool_pieces(a, inputs[0], dtype))

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(pool_pieces(a, inputs[0], dtype))

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, index: Any = None, work: Any) -> None:
        if out is None and index is None:
            return
        w = Windows(a, data.shape)
        scratch = carve(work, pool_pieces(a, data.shape, data.dtype))
        for rows in w.parts():
            x = data.reshape(w.rows, *w.size)[rows]
            y = None if out is None else out.reshape(w.rows, *w.out)[rows]
            if a.pool_type == "max":
                where = None if index is None else index.reshape(w.rows, *w.out)[rows]
                _max(xp, w, x, y, where, *scratch)
            elif y is not None:
                _sum(xp, a, w, x, y, *scratch)

    @staticmethod
    def backward(
        xp: Any, a: Any, d_out: Any, data: Any, out: Any, index: Any, *, d_data: Any, work: Any
    ) -> None:
        if d_data is None:
            return
        w = Windows(a, d_data.shape)
        first, second, third = carve(work, pool_pieces(a, d_data.shape, d_data.dtype))
        for rows in w.parts():
            d = d_out.reshape(w.rows, *w.out)[rows]
            result = d_data.reshape(w.rows, *w.size)[rows]
            each = flat_like(second, d)
            if a.pool_type != "max":
                xp.copyto(each, d)
            if a.pool_type == "avg":
                _divide(xp, a, w, each)
            elif a.pool_type == "lp":
                _divide_by_power(xp, a, each, out.reshape(w.rows, *w.out)[rows], first, third)
            grad = flat_like(first, result)
            grad.fill(0)
            for k, inside, outputs in w.slices():
                place, term = grad[:, *inside], each[:, *outputs]
                if a.pool_type == "max":
                    chosen = flat_like(third.view("bool"), d)
                    xp.equal(index.reshape(w.rows, *w.out)[rows], k, out=chosen)
                    xp.multiply(d, chosen, out=each, casting="unsafe")
                elif a.pool_type == "lp" and a.p_value > 1:
                    x = data.reshape(w.rows, *w.size)[rows][:, *inside]
                    for _ in range(a.p_value - 1):
                        xp.multiply(x, term, out=flat_like(third, term))
                        term = flat_like(third, term)
                xp.add(place, term, out=place)
            xp.copyto(result, grad, casting="unsafe")

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        head, data = heads["out"], ins["data"]
        if a.pool_type == "max":
            return {"data": w._max_pooling_d_data(head, data, outs["index"], **asdict(a))}
        if a.pool_type != "lp" or a.p_value == 1:
            linear = asdict(a) | ({"pool_type": "sum", "p_value": None} if a.pool_type == "lp" else {})
            return {"data": w._pooling_d_data(head, data, **linear)}
        nonzero = w.elemwise_add(outs["out"], w._equal_scalar(outs["out"], scalar=0.0))
        each = w.elemwise_div(head, w._power_scalar(nonzero, scalar=a.p_value - 1.0))
        spread = w._pooling_d_data(each, data, **(asdict(a) | {"pool_type": "sum", "p_value": None}))
        return {"data": w.elemwise_mul(w._power_scalar(data, scalar=a.p_value - 1.0), spread)}


def index_type(a: Any) -> DType:
    """The smallest type that numbers the elements of a window, one number left for "none"."""
    return as_dtype("uint8") if not a.global_pool and prod(a.kernel) < 255 else as_dtype("int32")


class Windows:
    """The windows of one call over arrays read as (rows, ...): each channel of each sample is a row."""

    def __init__(self, a: Any, data: Shape) -> None:
        self.rows, self.size = prod(data[:2]), data[2:]
        rank = len(self.size)
        self.kernel = self.size if a.global_pool else a.kernel
        self.stride = (1,) * rank if a.global_pool else per_axis("stride", a.stride, rank, 1)
        self.pad = (0,) * rank if a.global_pool else per_axis("pad", a.pad, rank, 0)
        self.ones = (1,) * rank
        ceil = a.pooling_convention == "full"
        if a.pooling_convention == "same" and not a.global_pool:
            self.out = tuple(-(-n // s) for n, s in zip(self.size, self.stride))
        else:
            self.out = output_size(self.size, self.kernel, self.stride, self.ones, self.pad, ceil)

    @property
    def step(self) -> int:
        """Rows at a time."""
        return max(1, min(self.rows, BLOCK // max(1, prod(self.size), prod(self.out))))

    def parts(self) -> Iterator[slice]:
        return (slice(i, i + self.step) for i in range(0, self.rows, self.step))

    def slices(self) -> Iterator[tuple[int, Slices, Slices]]:
        """Element number, what it reads, and for which outputs."""
        return window_slices(self.size, self.kernel, self.stride, self.ones, self.pad, self.out)


def pool_pieces(a: Any, data: Shape, dtype: DType) -> list[Piece]:
    """Three arrays, each large enough for the inputs or outputs of some rows."""
    w = Windows(a, data)
    return [((w.step * max(prod(w.size), prod(w.out)),), accumulator(dtype))] * 3


def flat_like(scratch: Any, x: Any) -> Any:
    return scratch[: x.size].reshape(x.shape)


def _max(xp: Any, w: Windows, x: Any, y: Any, index: Any, first: Any, second: Any, third: Any) -> None:
    """y: the maxima; index: the first window element that equals its maximum. Either may be None."""
    best = first[: len(x) * prod(w.out)].reshape(len(x), *w.out)
    best.fill(-xp.inf)
    for _, inside, outputs in w.slices():
        place = best[:, *outputs]
        xp.maximum(place, x[:, *inside], out=place)
    if y is not None:
        xp.copyto(y, best, casting="unsafe")
    if index is None:
        return
    # Where element k equals the maximum stands count - k; the largest of these belongs to the first one.
    count = prod(w.kernel)
    index.fill(0)
    for k, inside, outputs in w.slices():
        place = index[:, *outputs]
        equal, term = flat_like(second.view("bool"), place), flat_like(third.view(index.dtype), place)
        xp.equal(x[:, *inside], best[:, *outputs], out=equal)
        xp.multiply(equal, index.dtype.type(count - k), out=term)
        xp.maximum(place, term, out=place)
    xp.subtract(index.dtype.type(count), index, out=index)


def _sum(xp: Any, a: Any, w: Windows, x: Any, y: Any, first: Any, second: Any, third: Any) -> None:
    """y: the sums, means or p-norms."""
    total = flat_like(first, y)
    total.fill(0)
    for _, inside, outputs in w.slices():
        place, term = total[:, *outputs], x[:, *inside]
        if a.pool_type == "lp":
            power = flat_like(second, term)
            xp.copyto(power, term)
            for _ in range(a.p_value - 1):
                xp.multiply(power, term, out=power)
            term = power
        xp.add(place, term, out=place)
    if a.pool_type == "avg":
        _divide(xp, a, w, total)
    elif a.pool_type == "lp" and a.p_value > 1:
        (xp.sqrt if a.p_value == 2 else xp.cbrt)(total, out=total)
    xp.copyto(y, total, casting="unsafe")


def _divide(xp: Any, a: Any, w: Windows, x: Any) -> None:
    """Divide by the number of elements that count in each window."""
    padded = a.count_include_pad is not False
    for axis, (n, k, s, p, o) in enumerate(zip(w.size, w.kernel, w.stride, w.pad, w.out)):
        starts = [i * s - p for i in range(o)]
        ends = [min(start + k, n + p) for start in starts]
        if not padded:
            starts, ends = [max(0, i) for i in starts], [min(n, i) for i in ends]
        counts = xp.array([max(1, e - b) for b, e in zip(starts, ends)], dtype=x.dtype)
        xp.divide(x, counts.reshape(-1, *(1,) * (len(w.size) - 1 - axis)), out=x)


def _divide_by_power(xp: Any, a: Any, x: Any, out: Any, first: Any, third: Any) -> None:
    """Divide by out^(p - 1), the norm's own part of its slope. All of a window is 0 where out is: then by
    1."""
    for _ in range(a.p_value - 1):
        divisor, empty = flat_like(first, out), flat_like(third.view("bool"), out)
        xp.equal(out, 0, out=empty)
        xp.add(out, empty, out=divisor)
        xp.divide(x, divisor, out=x)
