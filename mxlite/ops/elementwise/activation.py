"""Activations: functions of each element; `LeakyReLU` is in `leaky.py`.

Two-byte floats are computed in float32, a block at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod
from typing import Any, Literal

from ...core.errors import OpAttributeError
from ...core.record import record
from ...graph.ir import Entry, Shape
from ...graph.opdef import DType, Op, Shapes
from ..scratch import accumulator, BLOCK, carve, Piece, scratch_bytes
from .activation_rules import Rule, RULES
from .leaky import LeakyReLU as LeakyReLU


class _Elementwise(Op):
    """Base: one array in, one of the same shape out, the gradient from `out` or from `data`."""

    abstract = True
    inputs = ("data",)
    same_shape = True
    accepts = "float"
    in_place = {"out": "data"}
    backward_in_place = {"d_data": "d_out"}
    cheap = True

    @classmethod
    def rule(cls, a: Any) -> Rule:
        return RULES[cls.op_name]

    @classmethod
    def unneeded(cls, a: Any) -> frozenset[str]:
        return frozenset(["data"]) if cls.rule(a).keeps == "out" else frozenset(["out"])

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype, cls.rule(a).rows[0], 2))

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_bytes(_pieces(inputs[0], dtype, cls.rule(a).rows[1], 3))


def _pieces(shape: Shape, dtype: DType, rows: int, arrays: int) -> list[Piece]:
    """Rows of scratch and, for two-byte data, a float32 row for each array."""
    size = min(BLOCK, prod(shape))
    wide = accumulator(dtype)
    return [((rows, size), wide), ((arrays if wide != dtype else 0, size), wide)]


def _forward(xp: Any, a: Any, rule: Rule, data: Any, out: Any, work: Any) -> None:
    if out is None:
        return
    x, y = data.reshape(-1), out.reshape(-1)
    count = rule.rows[0]
    if x.size <= BLOCK and x.itemsize > 2:
        rule.forward(xp, a, x, y, _rows(work, count, x))
        return
    rows, wide = carve(work, _pieces(data.shape, data.dtype, count, 2))
    for i in range(0, x.size, BLOCK):
        source, target = x[i : i + BLOCK], y[i : i + BLOCK]
        size = source.size
        scratch = rows[:, :size]
        if not len(wide):
            rule.forward(xp, a, source, target, scratch)
            continue
        xp.copyto(wide[0, :size], source)
        rule.forward(xp, a, wide[0, :size], wide[1, :size], scratch)
        xp.copyto(target, wide[1, :size], casting="unsafe")


def _backward(xp: Any, a: Any, rule: Rule, d_out: Any, data: Any, out: Any, d_data: Any, work: Any) -> None:
    if d_data is None:
        return
    known = (out if rule.keeps == "out" else data).reshape(-1)
    count = rule.rows[1]
    if known.size <= BLOCK and known.itemsize > 2:
        rule.backward(xp, a, d_out.reshape(-1), known, d_data.reshape(-1), _rows(work, count, known))
        return
    rows, wide = carve(work, _pieces(known.shape, known.dtype, count, 3))
    flat = [v.reshape(-1) for v in (d_out, known, d_data)]
    for i in range(0, known.size, BLOCK):
        d, k, result = (v[i : i + BLOCK] for v in flat)
        size = d.size
        scratch = rows[:, :size]
        if not len(wide):
            rule.backward(xp, a, d, k, result, scratch)
            continue
        d32, k32, result32 = (w[:size] for w in wide)
        xp.copyto(d32, d)
        xp.copyto(k32, k)
        rule.backward(xp, a, d32, k32, result32, scratch)
        xp.copyto(result, result32, casting="unsafe")


def _rows(work: Any, count: int, like: Any) -> Any:
    """`count` rows of scratch, each like the flat array `like`."""
    return work[: count * like.nbytes].view(like.dtype).reshape(count, like.size) if count else ()


class Activation(_Elementwise):
    """The function `act_type` of each element.

    data: (...)  ->  out: (...).  relu: max(x, 0); sigmoid: 1 / (1 + exp(-x)); tanh; softrelu: log(1 +
    exp(x)); softsign: x / (1 + |x|). relu's gradient at 0 is 0, at nan nan. MXNet 1.9.1 has these; later ones
    have log_sigmoid: log(sigmoid(x)), and mish: x * tanh(log(1 + exp(x))), too.
    """

    @record
    class Attrs:
        act_type: Literal["relu", "sigmoid", "softrelu", "softsign", "tanh", "log_sigmoid", "mish"]

    @classmethod
    def rule(cls, a: Any) -> Rule:
        return RULES[a.act_type]

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        _forward(xp, a, RULES[a.act_type], data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, data: Any, out: Any, *, d_data: Any, work: Any) -> None:
        _backward(xp, a, RULES[a.act_type], d_out, data, out, d_data, work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
        slope = _SLOPES[a.act_type](w, ins["data"], outs["out"])
        return {"data": w.elemwise_mul(heads["out"], slope)}


class _ByName(_Elementwise):
    """Base: the rule of the operator's name defines it all, its slope included."""

    def __init_subclass__(cls) -> None:
        kind = cls.__name__
        rule = RULES[kind]

        def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
            _forward(xp, a, rule, data, out, work)

        def by_out(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any, work: Any) -> None:
            _backward(xp, a, rule, d_out, None, out, d_data, work)

        def by_data(xp: Any, a: Any, d_out: Any, data: Any, *, d_data: Any, work: Any) -> None:
            _backward(xp, a, rule, d_out, data, None, d_data, work)

        def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
            return {"data": w.elemwise_mul(heads["out"], _SLOPES[kind](w, ins["data"], outs["out"]))}

        cls.forward = staticmethod(forward)
        cls.backward = staticmethod(by_out if rule.keeps == "out" else by_data)
        cls.derivative = staticmethod(derivative)
        super().__init_subclass__()


class relu(_ByName):
    """Rectified linear unit, ``out = max(data, 0)``. data: (...)  ->  out: (...). The gradient at 0 is 0,
    at nan nan. Of -0.0 the result is 0.0 or -0.0."""


class sigmoid(_ByName):
    """Logistic function, ``out = 1 / (1 + exp(-data))``. data: (...)  ->  out: (...)."""


class tanh(_ByName):
    """Hyperbolic tangent. data: (...)  ->  out: (...)."""


class log_sigmoid(_ByName):
    """Logarithm of the logistic function, ``out = -log(1 + exp(-data))``. data: (...)  ->  out: (...)."""


class softplus(_Elementwise):
    """A smooth rectifier, ``out = log(1 + exp(beta * data)) / beta``. data: (...)  ->  out: (...).

    Computed without overflow whatever the data: PyTorch's `threshold` is not needed.
    """

    @record
    class Attrs:
        beta: float = 1.0

        def __post_init__(self) -> None:
            if not self.beta > 0:
                raise OpAttributeError(f"beta must be above 0, got {self.beta}.")

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        _forward(xp, a, RULES["softplus"], data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any, work: Any) -> None:
        _backward(xp, a, RULES["softplus"], d_out, None, out, d_data, work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
        slope = _below_one(w, w._mul_scalar(outs["out"], scalar=-a.beta))
        return {"data": w.elemwise_mul(heads["out"], slope)}


class silu(_ByName):
    """Sigmoid-weighted linear unit, ``out = data / (1 + exp(-data))``. data: (...)  ->  out: (...).

    S. Elfwing, E. Uchibe, K. Doya, 2018, "Sigmoid-weighted linear units for neural network function
    approximation in reinforcement learning".
    """

    aliases = ("swish",)


class mish(_ByName):
    """``out = data * tanh(log(1 + exp(data)))``. data: (...)  ->  out: (...).

    D. Misra, 2019, "Mish: a self regularized non-monotonic activation function".
    """


class hard_swish(_ByName):
    """``out = data * min(max(data + 3, 0), 6) / 6``. data: (...)  ->  out: (...).

    A. Howard et al., 2019, "Searching for MobileNetV3". The gradient at -3 is 0, at 3 it is 1.
    """


class gelu(_Elementwise):
    """Gaussian error linear unit, ``out = data * Phi(data)``. data: (...)  ->  out: (...).

    Phi is the normal distribution function, or with `approximate='tanh'` the near
    ``(1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``, which is about four times as fast.
    D. Hendrycks, K. Gimpel, 2016, "Gaussian error linear units".
    """

    flops_per_input = 10

    @record
    class Attrs:
        approximate: Literal["none", "tanh"] = "none"

    @classmethod
    def rule(cls, a: Any) -> Rule:
        return _gelu_rule(a)

    @staticmethod
    def forward(xp: Any, a: Any, data: Any, *, out: Any, work: Any) -> None:
        _forward(xp, a, _gelu_rule(a), data, out, work)

    @staticmethod
    def backward(xp: Any, a: Any, d_out: Any, data: Any, *, d_data: Any, work: Any) -> None:
        _backward(xp, a, _gelu_rule(a), d_out, data, None, d_data, work)

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> Mapping[str, Entry]:
        x = ins["data"]
        square = w.square(x)
        if a.approximate == "tanh":
            root = math.sqrt(2 / math.pi)
            cubic = w._plus_scalar(w._mul_scalar(square, scalar=0.044715), scalar=1.0)
            t = w.tanh(w._mul_scalar(w.elemwise_mul(x, cubic), scalar=root))
            inner = w._plus_scalar(w._mul_scalar(square, scalar=3 * 0.044715 * root), scalar=root)
            rest = w._rminus_scalar(w.square(t), scalar=1.0)
            twice = w.elemwise_add(
                w._plus_scalar(t, scalar=1.0), w.elemwise_mul(x, w.elemwise_mul(rest, inner))
            )
            slope = w._mul_scalar(twice, scalar=0.5)
        else:
            error = w.erf(w._mul_scalar(x, scalar=math.sqrt(0.5)))
            share = w._mul_scalar(w._plus_scalar(error, scalar=1.0), scalar=0.5)
            power = w.exp(w._mul_scalar(square, scalar=-0.5))
            density = w._mul_scalar(power, scalar=1 / math.sqrt(2 * math.pi))
            slope = w.elemwise_add(share, w.elemwise_mul(x, density))
        return {"data": w.elemwise_mul(heads["out"], slope)}


def _gelu_rule(a: Any) -> Rule:
    return RULES["gelu" if a.approximate == "none" else "gelu_tanh"]


# -- slopes written with operators, from data x and out y


def _one_minus(w: Any, x: Entry) -> Entry:
    return w._rminus_scalar(x, scalar=1.0)


def _silu_slope(w: Any, x: Entry, y: Entry) -> Entry:
    s = w.sigmoid(x)
    return w.elemwise_mul(s, w._plus_scalar(w.elemwise_mul(x, _one_minus(w, s)), scalar=1.0))


def _mish_slope(w: Any, x: Entry, y: Entry) -> Entry:
    t = w.tanh(w.softplus(x))
    return w.elemwise_add(t, w.elemwise_mul(w.elemwise_mul(x, _one_minus(w, w.square(t))), w.sigmoid(x)))


def _hard_swish_slope(w: Any, x: Entry, y: Entry) -> Entry:
    inside = w.elemwise_mul(w._greater_scalar(x, scalar=-3.0), w._lesser_scalar(x, scalar=3.0))
    line = w._plus_scalar(w._mul_scalar(x, scalar=1 / 3), scalar=0.5)
    return w.elemwise_add(w.elemwise_mul(line, inside), w._greater_equal_scalar(x, scalar=3.0))


_SLOPES: Mapping[str, Any] = {
    "relu": lambda w, x, y: w.sign(y),
    "sigmoid": lambda w, x, y: w.elemwise_mul(y, _one_minus(w, y)),
    "tanh": lambda w, x, y: _one_minus(w, w.square(y)),
    "softrelu": lambda w, x, y: _below_one(w, w.negative(y)),
    "softsign": lambda w, x, y: w.square(_one_minus(w, w.abs(y))),
    "log_sigmoid": lambda w, x, y: _below_one(w, y),
    "silu": _silu_slope,
    "mish": _mish_slope,
    "hard_swish": _hard_swish_slope,
}


def _below_one(w: Any, x: Any) -> Any:
    """1 - exp(x), for x up to 0."""
    return w.negative(w.expm1(x))
