"""Softmax along one axis, its logarithm, and its old forms.

The largest number is subtracted first, so nothing overflows. Backward reads `out`, never the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np

from ...core.dtype import as_dtype
from ...core.errors import DerivativeError, DTypeError, OpAttributeError, ShapeError
from ...core.record import record
from ...graph.ir import Entry, Shape
from ...graph.opdef import DType, require_kind, require_rank, Shapes, Types
from ..declared import Declared
from ..norm.layer_norm import require_axis
from ..norm.views import along, View

_INT = as_dtype("int32")
_BOOL = as_dtype("bool")


class _Softmax(Declared):
    """Base: softmax of `sign` * data, or its logarithm."""

    abstract = True
    inputs = ("data", "length")
    inferred = ("length",)
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": ("d_out", "out")}
    flops_per_input = 5
    optional = {"length": "use_length"}
    backward_reads: ClassVar[tuple[str, ...]] = ("d_out", "out")
    sign: ClassVar[float] = 1.0

    @record
    class Attrs:
        axis: int = -1
        temperature: float | None = None
        dtype: str | None = None
        use_length: bool = False

        def __post_init__(self) -> None:
            if self.dtype not in (None, "float16", "bfloat16", "float32", "float64"):
                raise OpAttributeError(
                    f"dtype must be float16, bfloat16, float32 or float64, got {self.dtype!r}."
                )
            if self.temperature is not None and not self.temperature > 0:
                raise OpAttributeError(f"temperature must be above 0, got {self.temperature}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        axis = require_axis(a.axis, data)
        rest = (*data[:axis], *data[axis + 1 :])
        if len(shapes) == 2 and shapes[1] not in (None, rest) and -1 not in (shapes[1] or ()):
            raise ShapeError(f"length must be {rest} for data {data} and axis {a.axis}, got {shapes[1]}.")
        return (data, rest)[: len(shapes)], (data,)

    @classmethod
    def infer_type(cls, a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
        data, *length = dtypes
        require_kind(cls, data)
        if length == [_BOOL]:
            raise DTypeError("length must be of numbers, got bool.")
        return (data, *(n or _INT for n in length)), (data if a.dtype is None else as_dtype(a.dtype),)

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 4 * prod(inputs[0])

    @classmethod
    def scale(cls, a: Any) -> float:
        """The factor of data."""
        return cls.sign / (a.temperature or 1)

    @classmethod
    def compute(cls, t: Any, a: Any, data: Any, length: Any = None) -> Mapping[str, Any]:
        view = along(data.shape, a.axis)
        return {"out": computed_softmax(t, view, data, scale=cls.scale(a), length=length)}

    @classmethod
    def compute_gradient(
        cls, t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        out = arrays["out"]
        return computed_gradient(t, along(out.shape, a.axis), heads["out"], out, cls.scale(a))

    @classmethod
    def derivative(cls, w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
        """scale * out * (d - sum of d * out)."""
        _require_one_type(a)
        d, out = heads["out"], outs["out"]
        total = w.sum(w.elemwise_mul(d, out), axis=a.axis, keepdims=True)
        return {"data": _scaled(w, w.elemwise_mul(out, w.broadcast_sub(d, total)), cls.scale(a))}


def computed_softmax(
    t: Any, view: View, data: Any, *, scale: float = 1.0, length: Any = None, log: bool = False
) -> Any:
    """Softmax of scale * data over axis C of the view as a tensor, or its logarithm."""
    x = t.view(data, view)
    if scale != 1:
        x = x * t.constant(scale)
    if length is not None:
        n, g, _, s, p = view
        inside = t.lt(t.index(x, 2), t.view(length, (n, g, 1, s, p)))
        x = t.select(inside, x, float("-inf"))
    most = t.max(x, (2,))
    if length is not None:  # for a sequence of length 0: -inf - -inf would be nan
        most = t("max", most, -float(np.finfo("f").max))
    power = t.exp(x - most)
    total = t.sum(power, (2,))
    if length is not None:  # for empty sums: no quotient or logarithm is infinite
        total = t("max", total, 1e-30)
    if not log:
        return power * (1 / total)
    made = x - most - t.log(total)
    return made if length is None else t.select(inside, made, 0.0)


def computed_gradient(t: Any, view: View, d_out: Any, out: Any, scale: float = 1.0) -> Mapping[str, Any]:
    """Gradient of a softmax by its result, ``scale * out * (d_out - sum of d_out * out over axis C)``."""
    y, d = t.view(out, view), t.view(d_out, view)
    made = y * (d - t.sum(d * y, (2,)))
    return {"d_data": made if scale == 1 else made * t.constant(scale)}


class softmax(_Softmax):
    """Softmax along one axis, ``out = exp(data / temperature) / sum of exp(data / temperature)``.

    data: (..., K, ...) with K at `axis`;  length: data's shape without that axis  ->  out: as data, of
    `dtype` where given.

    With `use_length` only the first `length` numbers along the axis take part; the others get 0.
    """


class softmin(_Softmax):
    """Softmax of the negated data, ``out = exp(-data / temperature) / sum of exp(-data / temperature)``.

    data: (..., K, ...) with K at `axis`;  length: data's shape without that axis  ->  out: as data, of
    `dtype` where given.

    With `use_length` only the first `length` numbers along the axis take part; the others get 0.
    """

    sign = -1.0


class log_softmax(_Softmax):
    """Logarithm of the softmax, ``out = x - log(sum of exp(x))`` with ``x = data / temperature``.

    data: (..., K, ...) with K at `axis`;  length: data's shape without that axis  ->  out: as data, of
    `dtype` where given.

    With `use_length` only the first `length` numbers along the axis take part; the others get 0, not the
    -inf that would be log 0.
    """

    backward_reads = ("d_out", "out", "length")

    @classmethod
    def compute(cls, t: Any, a: Any, data: Any, length: Any = None) -> Mapping[str, Any]:
        view = along(data.shape, a.axis)
        return {"out": computed_softmax(t, view, data, scale=cls.scale(a), length=length, log=True)}

    @classmethod
    def compute_gradient(
        cls, t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        view, scale = along(arrays["out"].shape, a.axis), cls.scale(a)
        y, d = t.view(arrays["out"], view), t.view(heads["out"], view)
        inside = None
        if a.use_length:
            n, g, _, s, p = view
            inside = t.lt(t.index(y, 2), t.view(arrays["length"], (n, g, 1, s, p)))
            d = t.select(inside, d, 0.0)
        made = d - t.exp(y) * t.sum(d, (2,))
        made = made if scale == 1 else made * t.constant(scale)
        return {"d_data": made if inside is None else t.select(inside, made, 0.0)}

    @classmethod
    def derivative(cls, w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
        if a.use_length:  # elements beyond the length would need a mask
            raise DerivativeError("log_softmax with use_length=True has no gradient of a gradient.")
        _require_one_type(a)
        d = heads["out"]
        total = w.sum(d, axis=a.axis, keepdims=True)
        return {
            "data": _scaled(w, w.elemwise_sub(d, w.broadcast_mul(w.exp(outs["out"]), total)), cls.scale(a))
        }


class SoftmaxActivation(Declared):
    """Softmax over the last axis, or over the channels at each position.

    data: (N, ...)  ->  out: (N, ...). `mode` 'instance': over the last axis; 'channel': over axis 1. MXNet's
    documentation says "for each instance", and 1.9.1 takes the last axis.
    """

    inputs = ("data",)
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": ("d_out", "out")}
    flops_per_input = 5
    backward_reads = ("d_out", "out")

    @record
    class Attrs:
        mode: Literal["channel", "instance"] = "instance"

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        require_rank(data, 2, "data")
        return (data,), (data,)

    @staticmethod
    def compute(t: Any, a: Any, data: Any) -> Mapping[str, Any]:
        return {"out": computed_softmax(t, _mode_view(a, data.shape), data)}

    @staticmethod
    def compute_gradient(
        t: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return computed_gradient(t, _mode_view(a, arrays["out"].shape), heads["out"], arrays["out"])


def _mode_view(a: Any, shape: Shape) -> View:
    return along(shape, 1 if a.mode == "channel" else -1)


def _scaled(w: Any, x: Entry, scale: float) -> Entry:
    return x if scale == 1 else w._mul_scalar(x, scalar=scale)


def _require_one_type(a: Any) -> None:
    if a.dtype:
        raise DerivativeError(
            "softmax with `dtype` has no gradient of a gradient; use Cast before or after it instead."
        )
