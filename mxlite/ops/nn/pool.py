"""Pooling."""

from __future__ import annotations

from dataclasses import asdict
from math import prod
from typing import Any, ClassVar, Literal

from ...core.errors import OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Shape
from ...graph.opdef import DType, Op, require_kind, Shapes, Types
from .conv import LAYOUTS
from .pool_kernels import backward_bytes, forward_bytes, index_type, pool, spread, windows
from .windows import per_axis


class Pooling(Op):
    """One number for each window: its maximum, mean, sum, or p-norm without absolute values.

    data: (N, C, H, W)  ->  out: (N, C, OH, OW), where OH = f((H + 2 * pad - kernel) / stride) + 1 with f =
    floor for the convention 'valid' and ceil for 'full'; for 'same' OH = ceil(H / stride), without padding
    (zeros in `pad` may be as many as one likes, and MXNet 1.9.1 asks for three), and windows reach beyond the
    end. One to three spatial axes. `global_pool` takes
    all positions as one window: (N, C, 1, 1), whatever `kernel`, `stride` and `pad` say.

    max: the first of equal maxima, row by row, gets the gradient. avg: the mean over the window as far as it
    lies in the padded data (padding counts as zeros), or with `count_include_pad=False` in the data itself.
    lp: (sum of x^p)^(1/p), p = 1, 2 or 3. `cudnn_off` has no effect.

    For max a hidden output `index` stores which element of its window each maximum was: one byte
    for windows of up to 255 elements, else four. Backward then needs neither `data` nor `out`, both of which
    MXNet keeps: for 2x2 windows an index is 1/16 of float32 data. avg and sum need only d_out.
    """

    inputs = ("data",)
    outputs = ("out", "index")
    hidden = 1
    cheap = True
    accepts = "float"
    aliases = ("Pooling_v1",)
    last: ClassVar[bool] = False  # True if the channels are the last axis

    @record
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
            if self.layout not in (None, *LAYOUTS.values()):
                raise OpAttributeError(
                    f"layout {self.layout!r} is not supported; use one of {[*LAYOUTS.values()]}."
                )
            if self.pool_type == "lp" and self.p_value not in (1, 2, 3):
                raise OpAttributeError(f"p_value must be 1, 2 or 3 for pool_type 'lp', got {self.p_value}.")
            if self.global_pool:
                return
            if len(self.kernel) not in LAYOUTS:
                raise OpAttributeError(
                    f"kernel must have 1, 2 or 3 numbers unless global_pool is set, got {self.kernel}."
                )
            same = self.pooling_convention == "same"
            if same and any(self.pad):
                raise OpAttributeError(f"pooling_convention 'same' goes without padding, got pad={self.pad}.")
            for name, least in (("kernel", 1), ("stride", 1), ("pad", 0))[: 2 if same else 3]:
                if any(v < least for v in per_axis(name, getattr(self, name), len(self.kernel), least)):
                    raise OpAttributeError(f"{name} must be at least {least}, got {getattr(self, name)}.")

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
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        require_kind(cls, dtypes[0])
        return dtypes, (dtypes[0], index_type(a))[: len(cls.output_names(a))]

    @classmethod
    def infer_shape(cls, a: Any, *shapes: Any) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        check_rank(a, data, "(N, ..., C)" if cls.last else "(N, C, ...)")
        lengths = windows(a, data, cls.last).out
        out = (data[0], *lengths, data[-1]) if cls.last else (*data[:2], *lengths)
        return (data,), (out,) * len(cls.output_names(a))

    @classmethod
    def flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return prod(outputs[0]) * prod(windows(a, inputs[0], cls.last).kernel)

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return forward_bytes(windows(a, inputs[0], cls.last), dtype)

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return backward_bytes(windows(a, inputs[0], cls.last), dtype)

    @classmethod
    def forward(cls, xp: Any, a: Any, data: Any, *, out: Any, index: Any = None, work: Any) -> None:
        if out is not None or index is not None:
            pool(xp, a, windows(a, data.shape, cls.last), data, out, index, work)

    @classmethod
    def backward(
        cls, xp: Any, a: Any, d_out: Any, data: Any, out: Any, index: Any, *, d_data: Any, work: Any
    ) -> None:
        if d_data is not None:
            spread(xp, a, windows(a, d_data.shape, cls.last), d_out, data, out, index, d_data, work)

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


def check_rank(a: Any, data: Shape, axes: str) -> None:
    """Raise ShapeError unless `data` has as many spatial axes as `a` has windows for, and as its layout."""
    rank = len(data) - 2
    if rank not in LAYOUTS or (not a.global_pool and rank != len(a.kernel)):
        wanted = "3 to 5" if a.global_pool else len(a.kernel) + 2
        raise ShapeError(f"data must have {wanted} axes {axes}, got {data}.")
    if a.layout not in (None, LAYOUTS[rank]):
        raise ShapeError(f"layout {a.layout!r} is not that of data {data}, which is {LAYOUTS[rank]!r}.")
