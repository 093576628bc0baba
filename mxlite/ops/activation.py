"""Activations and softmax; `LeakyReLU` is in `leaky.py`.

The gradient of every one that allows it is taken from `out`, not from `data`: then `data` may be
overwritten, and a chain of layers keeps one array where it would keep two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from ..core.dtype import as_dtype
from ..core.errors import OpAttributeError, ShapeError
from ..graph.ir import Shape
from ..graph.opdef import DType, Op, Shapes
from .leaky import LeakyReLU as LeakyReLU
from .scratch import BLOCK

_ZEROS = 2048  # elements; numpy takes the maximum with an array faster than with a number

Rule = Callable[[Any, Any, Any, Any], None]


def _parts(work: Any, dtype: DType, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Scratch, then flat parts of the arrays, as many elements each as the scratch has room for."""
    scratch = work.view(dtype)
    flat = [x.reshape(-1) for x in arrays]
    size = flat[0].size
    if size <= BLOCK:
        yield scratch[:size], *flat
        return
    for i in range(0, size, BLOCK):
        yield scratch[: min(BLOCK, size - i)], *(x[i : i + BLOCK] for x in flat)


def _scratch_bytes(shape: Shape, dtype: DType) -> int:
    return min(BLOCK, prod(shape)) * dtype.itemsize


# -- rules: forward(xp, data, out, scratch), backward(xp, d_out, out, d_data, scratch) on flat parts
# ----------


def _relu(xp: Any, data: Any, out: Any, scratch: Any) -> None:
    zeros = scratch[:_ZEROS]
    zeros.fill(0)
    whole = data.size - data.size % zeros.size
    rows = (-1, zeros.size)
    xp.maximum(data[:whole].reshape(rows), zeros, out=out[:whole].reshape(rows))
    xp.maximum(data[whole:], zeros[: data.size - whole], out=out[whole:])


def _relu_gradient(xp: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    positive = scratch.view("bool")[: out.size]
    xp.greater(out, 0, out=positive)
    xp.multiply(d_out, positive, out=d_data)


def _sigmoid(xp: Any, data: Any, out: Any, scratch: Any) -> None:
    xp.negative(data, out=out)
    with xp.errstate(over="ignore"):  # exp gives infinity, and 1 / infinity the right 0
        xp.exp(out, out=out)
    xp.add(out, 1, out=out)
    xp.divide(1, out, out=out)


def _sigmoid_gradient(xp: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    xp.subtract(1, out, out=scratch)
    xp.multiply(scratch, out, out=scratch)
    xp.multiply(d_out, scratch, out=d_data)


def _tanh(xp: Any, data: Any, out: Any, scratch: Any) -> None:
    xp.tanh(data, out=out)


def _tanh_gradient(xp: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    xp.multiply(out, out, out=scratch)
    xp.subtract(1, scratch, out=scratch)
    xp.multiply(d_out, scratch, out=d_data)


def _softrelu(xp: Any, data: Any, out: Any, scratch: Any) -> None:
    # log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)): no overflow, no digits lost
    xp.absolute(data, out=scratch)
    xp.negative(scratch, out=scratch)
    xp.exp(scratch, out=scratch)
    xp.log1p(scratch, out=scratch)
    xp.maximum(data, 0, out=out)
    xp.add(out, scratch, out=out)


def _softrelu_gradient(xp: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    # sigmoid(x) = 1 - exp(-out)
    xp.negative(out, out=scratch)
    xp.expm1(scratch, out=scratch)
    xp.negative(scratch, out=scratch)
    xp.multiply(d_out, scratch, out=d_data)


def _softsign(xp: Any, data: Any, out: Any, scratch: Any) -> None:
    xp.absolute(data, out=scratch)
    xp.add(scratch, 1, out=scratch)
    xp.divide(data, scratch, out=out)


def _softsign_gradient(xp: Any, d_out: Any, out: Any, d_data: Any, scratch: Any) -> None:
    # 1 / (1 + |x|)^2 = (1 - |out|)^2
    xp.absolute(out, out=scratch)
    xp.subtract(1, scratch, out=scratch)
    xp.multiply(scratch, scratch, out=scratch)
    xp.multiply(d_out, scratch, out=d_data)


RULES: Mapping[str, tuple[Rule, Callable[..., None]]] = {
    "relu": (_relu, _relu_gradient),
    "sigmoid": (_sigmoid, _sigmoid_gradient),
    "tanh": (_tanh, _tanh_gradient),
    "softrelu": (_softrelu, _softrelu_gradient),
    "softsign": (_softsign, _softsign_gradient),
}


class _Elementwise(Op):
    """Family: one array in, one of the same shape out, the gradient from `out`."""

    inputs = ("data",)
    same_shape = True
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    cheap = True

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _scratch_bytes(inputs[0], dtype)

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return _scratch_bytes(inputs[0], dtype)


def _forward(kind: str, xp: Any, data: Any, out: Any, work: Any) -> None:
    if out is not None:
        for scratch, x, y in _parts(work, data.dtype, data, out):
            RULES[kind][0](xp, x, y, scratch)


def _backward(kind: str, xp: Any, d_out: Any, out: Any, d_data: Any, work: Any) -> None:
    if d_data is not None:
        for scratch, d, y, result in _parts(work, out.dtype, d_out, out, d_data):
            RULES[kind][1](xp, d, y, result, scratch)


class Activation(_Elementwise):
    """The function `act_type` of each element.

    data: (...)  ->  out: (...).  relu: max(x, 0); sigmoid: 1 / (1 + exp(-x)); tanh; softrelu: log(1 +
    exp(x)); softsign: x / (1 + |x|). relu's gradient at 0 is 0.
    """

    @dataclass(frozen=True)
    class Attrs:
        act_type: Literal["relu", "sigmoid", "tanh", "softrelu", "softsign"]

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        _forward(a.act_type, xp, data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any, work: Any) -> None:
        _backward(a.act_type, xp, d_out, out, d_data, work)


class relu(_Elementwise):
    """Rectified linear unit, ``out = max(data, 0)``. data: (...)  ->  out: (...). The gradient at 0 is 0."""

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        _forward("relu", xp, data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any, work: Any) -> None:
        _backward("relu", xp, d_out, out, d_data, work)


class sigmoid(_Elementwise):
    """Logistic function, ``out = 1 / (1 + exp(-data))``. data: (...)  ->  out: (...)."""

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        _forward("sigmoid", xp, data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any, work: Any) -> None:
        _backward("sigmoid", xp, d_out, out, d_data, work)


class tanh(_Elementwise):
    """Hyperbolic tangent. data: (...)  ->  out: (...)."""

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        _forward("tanh", xp, data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any, work: Any) -> None:
        _backward("tanh", xp, d_out, out, d_data, work)


class softmax(Op):
    """Softmax along one axis, ``out = exp(data / temperature) / sum of exp(data / temperature)``.

    data: (...)  ->  out: (...), of `dtype` where given. The largest number is subtracted first, so nothing
    overflows. `use_length` is not supported.
    """

    inputs = ("data",)
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}

    @dataclass(frozen=True)
    class Attrs:
        axis: int = -1
        temperature: float | None = None
        dtype: str | None = None
        use_length: bool = False

        def __post_init__(self) -> None:
            if self.use_length:
                raise OpAttributeError("use_length=True is not supported; mask the data before softmax.")
            if self.dtype not in (None, "float16", "float32", "float64"):
                raise OpAttributeError(f"dtype must be float16, float32 or float64, got {self.dtype!r}.")
            if self.temperature is not None and not self.temperature > 0:
                raise OpAttributeError(f"temperature must be above 0, got {self.temperature}.")

    @staticmethod
    def infer_shape(a: Any, *shapes: Shape | None) -> tuple[Shapes, Shapes]:
        data = shapes[0]
        assert data is not None
        if not -len(data) <= a.axis < len(data):
            raise ShapeError(f"axis {a.axis} is not an axis of data {data}.")
        return (data,), (data,)

    @classmethod
    def infer_type(
        cls, a: Any, *dtypes: DType | None
    ) -> tuple[tuple[DType | None, ...], tuple[DType | None, ...]]:
        return dtypes, (dtypes[0] if a.dtype is None else as_dtype(a.dtype),)

    @staticmethod
    def flops(a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 5 * prod(inputs[0])

    @classmethod
    def backward_flops(cls, a: Any, inputs: Shapes, outputs: Shapes) -> int:
        return 4 * prod(inputs[0])

    @staticmethod
    def workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        n, _, p = cube(inputs[0], a.axis)
        return n * p * 8  # of the output's type, which may be wider than the data's

    @staticmethod
    def backward_workspace(a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        n, _, p = cube(inputs[0], a.axis)
        return 2 * n * p * 8

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        if out is not None:
            shape = cube(data.shape, a.axis)
            softmax_rows(xp, data.reshape(shape), out.reshape(shape), work, a.temperature)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any, work: Any) -> None:
        # d_data = out * (d_out - sum of d_out * out) / temperature
        if d_data is None:
            return
        n, k, p = shape = cube(out.shape, a.axis)
        y, d, result = (x.reshape(shape) for x in (out, d_out, d_data))
        total = work[: n * p * y.itemsize].view(y.dtype).reshape(n, 1, p)
        if y.dtype.kind == "f":
            xp.einsum("nkp,nkp->np", d, y, out=total[:, 0])
        else:  # bfloat16, which einsum does not know
            term = work[n * p * y.itemsize : 2 * n * p * y.itemsize].view(y.dtype).reshape(n, p)
            total.fill(0)
            for i in range(k):
                xp.multiply(d[:, i], y[:, i], out=term)
                xp.add(total[:, 0], term, out=total[:, 0])
        xp.subtract(d, total, out=result, casting="unsafe")
        xp.multiply(result, y, out=result, casting="unsafe")
        if a.temperature is not None:
            xp.divide(result, a.temperature, out=result)


def cube(shape: Shape, axis: int) -> tuple[int, int, int]:
    """(N, K, P): elements before, along and behind an axis."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def softmax_rows(xp: Any, x: Any, out: Any, work: Any, temperature: float | None = None) -> None:
    """Softmax of x (N, K, P) over K. work: N * P elements of out's type. `out` may be x."""
    n, _, p = x.shape
    each = work[: n * p * out.itemsize].view(out.dtype).reshape(n, 1, p)
    xp.maximum.reduce(x, axis=1, keepdims=True, out=each)
    xp.subtract(x, each, out=out, casting="unsafe")
    if temperature is not None:
        xp.divide(out, temperature, out=out)
    xp.exp(out, out=out)
    xp.add.reduce(out, axis=1, keepdims=True, out=each)
    xp.divide(out, each, out=out)
