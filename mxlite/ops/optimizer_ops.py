"""Steps of the optimizers: weights and states are changed in place.

Each rule is one function, used by two operators: the public one, whose rates are attributes
(`mx.nd.sgd_update(w, g, lr=0.1, out=w)`), and the fused one, which is a node of a training program. A
fused operator has no output; it changes `weight` and the states, and reads its rates from a row of
`hyper`, a float64 array (P, 2) of [lr, wd], when it runs: a schedule needs no new program. Both give the
same bits, and so do the order of operations and the roundings: they are MXNet's.

All arithmetic is in the dtype of the weight, in chunks whose scratch stays in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from ..core.dtype import FLAGS
from ..core.errors import DTypeError, ShapeError
from ..graph.opdef import Op

CHUNK = 16384  # elements at a time

_float64 = FLAGS[1]


def _scratch(count: int) -> Callable[..., int]:
    """`Op.workspace` for `count` arrays like a chunk of the first input."""
    return lambda a, inputs, outputs, dtype: count * min(CHUNK, prod(inputs[0])) * dtype.itemsize


def _chunks(work: Any, count: int, weight: Any, *others: Any) -> Any:
    """((`count` scratch arrays, weight, *others), ...) in matching parts of at most CHUNK elements."""
    size = weight.size
    if size <= CHUNK:
        scratch = work[: count * size * weight.itemsize].view(weight.dtype)
        if count == 1:
            return ((scratch.reshape(weight.shape), weight, *others),)
        return ((scratch.reshape(count, *weight.shape), weight, *others),)
    flat = [x.reshape(-1) for x in (weight, *others)]
    return _long_chunks(work, count, flat)


def _long_chunks(work: Any, count: int, flat: list[Any]) -> Any:
    scratch = work[: count * CHUNK * flat[0].itemsize].view(flat[0].dtype).reshape(count, CHUNK)
    for begin in range(0, flat[0].size, CHUNK):
        parts = [x[begin : begin + CHUNK] for x in flat]
        yield (scratch[0, : parts[0].size] if count == 1 else scratch[:, : parts[0].size], *parts)


def _scaled(xp: Any, a: Any, grad: Any, t: Any) -> Any:
    """``clip(rescale_grad * grad)``: `grad` itself, or in `t`."""
    if a.rescale_grad != 1:
        grad = xp.multiply(grad, a.rescale_grad, out=t)
    if a.clip_gradient >= 0:
        xp.maximum(grad, grad.dtype.type(-a.clip_gradient), out=t)
        grad = xp.minimum(t, grad.dtype.type(a.clip_gradient), out=t)
    return grad


def _sgd(xp: Any, a: Any, lr: Any, wd: Any, weight: Any, grad: Any, out: Any, work: Any) -> None:
    """``out = (1 - lr*wd) * weight - lr * clip(rescale*grad)``"""
    for t, w, g, o in _chunks(work, 1, weight, grad, out):
        xp.multiply(_scaled(xp, a, g, t), lr, out=t)
        if wd:
            w = xp.multiply(w, 1 - lr * wd, out=o)
        xp.subtract(w, t, out=o)


def _sgd_mom(
    xp: Any, a: Any, lr: Any, wd: Any, weight: Any, grad: Any, mom: Any, out: Any, work: Any
) -> None:
    """``mom = momentum*mom - lr*wd*weight - lr*clip(rescale*grad)``; ``out = weight + mom``"""
    for t, w, g, m, o in _chunks(work, 1, weight, grad, mom, out):
        xp.multiply(m, a.momentum, out=m)
        if wd:
            xp.multiply(w, lr * wd, out=t)
            xp.subtract(m, t, out=m)
        xp.multiply(_scaled(xp, a, g, t), lr, out=t)
        xp.subtract(m, t, out=m)
        xp.add(w, m, out=o)


def _adam(
    xp: Any, a: Any, lr: Any, wd: Any, weight: Any, grad: Any, mean: Any, var: Any, out: Any, work: Any
) -> None:
    """``g = clip(rescale*grad + wd*weight)``; ``mean = beta1*mean + (1-beta1)*g``;
    ``var = beta2*var + (1-beta2)*g*g``; ``out = weight - lr*mean / (sqrt(var) + epsilon)``"""
    one = type(lr)
    rest1, rest2 = one(1) - one(a.beta1), one(1) - one(a.beta2)
    for (s, t), w, g, m, v, o in _chunks(work, 2, weight, grad, mean, var, out):
        if a.rescale_grad != 1:
            g = xp.multiply(g, a.rescale_grad, out=t)
        if wd:
            xp.multiply(w, wd, out=s)
            g = xp.add(g, s, out=t)
        if a.clip_gradient >= 0:
            xp.maximum(g, one(-a.clip_gradient), out=t)
            g = xp.minimum(t, one(a.clip_gradient), out=t)
        xp.multiply(m, a.beta1, out=m)
        xp.multiply(g, rest1, out=s)
        xp.add(m, s, out=m)
        xp.multiply(v, a.beta2, out=v)
        xp.multiply(g, rest2, out=s)
        xp.multiply(s, g, out=s)
        xp.add(v, s, out=v)
        xp.multiply(m, lr, out=t)
        xp.sqrt(v, out=s)
        xp.add(s, a.epsilon, out=s)
        xp.divide(t, s, out=t)
        xp.subtract(w, t, out=o)


@dataclass(frozen=True)
class SGDAttrs:
    """`lazy_update` is about sparse gradients in MXNet; here it is read and has no effect."""

    lr: float
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0
    lazy_update: bool = True


@dataclass(frozen=True)
class SGDMomAttrs:
    """As SGDAttrs, with momentum."""

    lr: float
    momentum: float = 0.0
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0
    lazy_update: bool = True


@dataclass(frozen=True)
class AdamAttrs:
    """Rates of Adam; the caller folds the bias correction into `lr`."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0
    lazy_update: bool = True


class _Update(Op):
    """A step whose rates are attributes; `out` is usually `weight`."""

    in_place = {"out": "weight"}
    same_shape = True
    recomputable = False
    workspace = staticmethod(_scratch(1))

    @staticmethod
    def flops(a, inputs, outputs):
        return 4 * len(inputs) * prod(inputs[0])


class sgd_update(_Update):
    """Stochastic gradient descent, ``out = (1 - lr*wd) * weight - lr * clip(rescale_grad * grad)``.

    weight, grad: (...)  ->  out: (...), usually `weight` itself. The gradient is clipped to
    [-`clip_gradient`, `clip_gradient`] unless that is negative.
    """

    inputs = ("weight", "grad")
    Attrs = SGDAttrs

    @staticmethod
    def forward(xp, a, weight, grad, *, out, work):
        real = weight.dtype.type
        _sgd(xp, a, real(a.lr), real(a.wd), weight, grad, out, work)


class sgd_mom_update(_Update):
    """Stochastic gradient descent with momentum; `mom` is changed in place.

    ``mom = momentum*mom - lr*wd*weight - lr*clip(rescale_grad*grad)``;  ``out = weight + mom``

    weight, grad, mom: (...)  ->  out: (...), usually `weight` itself. The gradient is clipped to
    [-`clip_gradient`, `clip_gradient`] unless that is negative.
    """

    inputs = ("weight", "grad", "mom")
    mutates = ("mom",)
    Attrs = SGDMomAttrs

    @staticmethod
    def forward(xp, a, weight, grad, mom, *, out, work):
        real = weight.dtype.type
        _sgd_mom(xp, a, real(a.lr), real(a.wd), weight, grad, mom, out, work)


class adam_update(_Update):
    """Adam; `mean` and `var` are changed in place.

    ``g = clip(rescale_grad*grad + wd*weight)``;  ``mean = beta1*mean + (1-beta1)*g``;
    ``var = beta2*var + (1-beta2)*g*g``;  ``out = weight - lr*mean / (sqrt(var) + epsilon)``

    weight, grad, mean, var: (...)  ->  out: (...), usually `weight` itself. The gradient is clipped, after
    the decay is added, to [-`clip_gradient`, `clip_gradient`] unless that is negative. The bias correction
    is the caller's: ``lr * sqrt(1 - beta2**t) / (1 - beta1**t)``.

    D. P. Kingma and J. Ba, 2015, "Adam: a method for stochastic optimization".
    """

    inputs = ("weight", "grad", "mean", "var")
    mutates = ("mean", "var")
    workspace = staticmethod(_scratch(2))
    Attrs = AdamAttrs

    @staticmethod
    def forward(xp, a, weight, grad, mean, var, *, out, work):
        real = weight.dtype.type
        _adam(xp, a, real(a.lr), real(a.wd), weight, grad, mean, var, out, work)


@dataclass(frozen=True)
class FusedSGDAttrs:
    """`row` of `hyper` holds this parameter's lr and wd."""

    row: int
    momentum: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0


@dataclass(frozen=True)
class FusedAdamAttrs:
    """`row` of `hyper` holds this parameter's lr (bias correction folded in) and wd."""

    row: int
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0


class _Fused(Op):
    """A step inside a training program: no output; reads the weight, its gradient, states, and `hyper`."""

    outputs = ()
    recomputable = False
    workspace = staticmethod(_scratch(1))

    @staticmethod
    def infer_shape(a, *shapes):
        weight, hyper = shapes[0], shapes[-1]
        if any(s is not None and s != weight for s in shapes[1:-1]):
            raise ShapeError(
                f"the gradient and the states must be as the weight, {weight}, got {shapes[1:-1]}."
            )
        if len(hyper) != 2 or hyper[1] != 2 or not 0 <= a.row < hyper[0]:
            raise ShapeError(f"hyper must be (P, 2) with a row {a.row}, got {hyper}.")
        return (*(weight for _ in shapes[:-1]), hyper), ()

    @classmethod
    def infer_type(cls, a, *dtypes):
        known = [d for d in dtypes[:-1] if d is not None]
        if any(d != known[0] for d in known):
            raise DTypeError(
                f"weight, gradient and states must have one dtype, got {[str(d) for d in dtypes]}."
            )
        if dtypes[-1] not in (None, _float64):
            raise DTypeError(f"hyper must be float64, got {dtypes[-1]}.")
        return ((known[0] if known else None),) * (len(dtypes) - 1) + (_float64,), ()

    @staticmethod
    def flops(a, inputs, outputs):
        return 4 * len(inputs) * prod(inputs[0])


class _fused_sgd(_Fused):
    """`sgd_update` in a program: ``weight = (1 - lr*wd) * weight - lr * clip(rescale_grad * grad)``.

    weight, grad: (...);  hyper: (P, 2) float64, row `row` is [lr, wd], read when the operator runs.
    """

    inputs = ("weight", "grad", "hyper")
    mutates = ("weight",)
    Attrs = FusedSGDAttrs

    @staticmethod
    def forward(xp, a, weight, grad, hyper, *, work):
        real, row = weight.dtype.type, a.row
        _sgd(xp, a, real(hyper[row, 0]), real(hyper[row, 1]), weight, grad, weight, work)


class _fused_sgd_mom(_Fused):
    """`sgd_mom_update` in a program: `weight` and `mom` are changed.

    weight, grad, mom: (...);  hyper: (P, 2) float64, row `row` is [lr, wd], read when the operator runs.
    """

    inputs = ("weight", "grad", "mom", "hyper")
    inferred = ("mom",)
    mutates = ("weight", "mom")
    Attrs = FusedSGDAttrs

    @staticmethod
    def forward(xp, a, weight, grad, mom, hyper, *, work):
        real, row = weight.dtype.type, a.row
        _sgd_mom(xp, a, real(hyper[row, 0]), real(hyper[row, 1]), weight, grad, mom, weight, work)


class _fused_adam(_Fused):
    """`adam_update` in a program: `weight`, `mean` and `var` are changed.

    weight, grad, mean, var: (...);  hyper: (P, 2) float64, row `row` is [lr, wd], read when it runs.
    """

    inputs = ("weight", "grad", "mean", "var", "hyper")
    inferred = ("mean", "var")
    mutates = ("weight", "mean", "var")
    workspace = staticmethod(_scratch(2))
    Attrs = FusedAdamAttrs

    @staticmethod
    def forward(xp, a, weight, grad, mean, var, hyper, *, work):
        real, row = weight.dtype.type, a.row
        _adam(xp, a, real(hyper[row, 0]), real(hyper[row, 1]), weight, grad, mean, var, weight, work)
