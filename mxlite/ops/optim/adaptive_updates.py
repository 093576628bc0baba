"""Steps with an adaptive rate for each weight. See `update.py` for the variants of each step."""

from __future__ import annotations

from typing import Any

from ...core.errors import OpAttributeError
from ...core.record import record
from .update import clipped, cut, decayed, forms, parameters, prepared, Update

_ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
_CLIPPED = {"clip_weights": -1.0}


@record
class FTMLAttrs:
    """`t` counts updates of the weight from 1; the bound of the gradient is called `clip_grad` here."""

    lr: float
    t: int
    beta1: float = 0.6
    beta2: float = 0.999
    epsilon: float = 1e-8
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_grad: float = -1.0

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 <= 1 and 0 <= self.beta2 <= 1):  # a power of a negative one is no real number
            raise OpAttributeError(f"beta1 and beta2 must be in [0, 1], got {self.beta1}, {self.beta2}.")


def moments(a: Any, grad: Any, mean: Any, var: Any) -> tuple[Any, Any]:
    """``beta1*mean + (1-beta1)*grad``, ``beta2*var + (1-beta2)*grad*grad``"""
    one = mean.dtype.type
    mean = mean * a.beta1 + grad * (one(1) - one(a.beta1))
    return mean, var * a.beta2 + grad * (one(1) - one(a.beta2)) * grad


class adam_update(Update):
    """Adam; `mean` and `var` are changed in place.

    ``g = clip(rescale_grad*grad + wd*weight)``;  ``mean = beta1*mean + (1-beta1)*g``;
    ``var = beta2*var + (1-beta2)*g*g``;  ``out = weight - lr*mean / (sqrt(var) + epsilon)``

    weight, grad, mean, var: (...)  ->  out: (...), usually `weight` itself. The gradient is clipped, after
    the decay is added, to [-`clip_gradient`, `clip_gradient`] unless that is negative. The bias correction
    is the caller's: ``lr * sqrt(1 - beta2**t) / (1 - beta1**t)``.

    D. P. Kingma and J. Ba, 2015, "Adam: a method for stochastic optimization".
    """

    inputs = ("weight", "grad", "mean", "var")
    Attrs = parameters("AdamAttrs", **_ADAM, last={"lazy_update": True})

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
        mean, var = moments(a, decayed(xp, a, r, weight, grad, a.clip_gradient), mean, var)
        return weight - mean * r.lr / (xp.sqrt(var) + a.epsilon), mean, var


class _adamw_update(Update):
    """Adam with decoupled weight decay; `mean` and `var` are changed in place.

    ``g = clip(rescale_grad*grad)``;  mean and var as in `adam_update`;
    ``out = weight - eta * (lr*mean / (sqrt(var) + epsilon) + wd*weight)``

    weight, grad, mean, var: (...)  ->  out: (...), usually `weight` itself. `eta` is the schedule's
    multiplier of both rates. Here `rescale_grad` is a number; `mx.nd.contrib.adamw_update` also takes an
    array of one.

    I. Loshchilov and F. Hutter, 2019, "Decoupled weight decay regularization".
    """

    inputs = ("weight", "grad", "mean", "var")
    aliases = ("_contrib_adamw_update", "adamw_update")
    Attrs = parameters("AdamWAttrs", **_ADAM, wd=0.0, eta=1.0)

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, mean: Any, var: Any) -> Any:
        mean, var = moments(a, prepared(xp, a, grad), mean, var)
        move = mean * (r.lr * a.eta) / (xp.sqrt(var) + a.epsilon)
        if r.wd:
            move = move + weight * (r.wd * a.eta)
        return weight - move, mean, var


class adagrad_update(Update):
    """AdaGrad; `history` is changed in place.

    ``g = clip(rescale_grad*grad)``;  ``history += g*g``;
    ``out = weight - lr * (g / sqrt(history + epsilon) + wd*weight)``

    weight, grad, history: (...)  ->  out: (...), usually `weight` itself.

    J. Duchi, E. Hazan, Y. Singer, 2011, "Adaptive subgradient methods for online learning and stochastic
    optimization".
    """

    inputs = ("weight", "grad", "history")
    aliases = ("_sparse_adagrad_update",)
    Attrs = parameters("AdaGradAttrs", epsilon=1e-7)

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, history: Any) -> Any:
        grad = prepared(xp, a, grad)
        history = history + grad * grad
        move = grad / xp.sqrt(history + a.epsilon)
        if r.wd:
            move = move + weight * r.wd
        return weight - move * r.lr, history


class adadelta_update(Update):
    """AdaDelta; `acc_g` and `acc_delta` are changed in place.

    ``g = clip(rescale_grad*grad)``;  ``acc_g = rho*acc_g + (1-rho)*g*g``;
    ``d = sqrt(acc_delta + epsilon) / sqrt(acc_g + epsilon) * g``;
    ``acc_delta = rho*acc_delta + (1-rho)*d*d``;  ``out = weight - d - wd*weight``

    weight, grad, acc_g, acc_delta: (...)  ->  out: (...), usually `weight` itself. There is no learning rate:
    `lr` is read and has no effect.

    M. D. Zeiler, 2012, "ADADELTA: an adaptive learning rate method".
    """

    inputs = ("weight", "grad", "acc_g", "acc_delta")
    Attrs = parameters("AdaDeltaAttrs", lr=1.0, rho=0.9, epsilon=1e-5)

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, acc_g: Any, acc_delta: Any) -> Any:
        grad = prepared(xp, a, grad)
        acc_g = acc_g * a.rho + grad * (1 - a.rho) * grad
        move = grad / xp.sqrt(acc_g + a.epsilon) * xp.sqrt(acc_delta + a.epsilon)
        acc_delta = acc_delta * a.rho + move * (1 - a.rho) * move
        if r.wd:
            move = move + weight * r.wd
        return weight - move, acc_g, acc_delta


class rmsprop_update(Update):
    """RMSProp; `n` is changed in place.

    ``g = clip(rescale_grad*grad + wd*weight)``;  ``n = gamma1*n + (1-gamma1)*g*g``;
    ``out = clip(weight - lr*g / sqrt(n + epsilon), clip_weights)``

    weight, grad, n: (...)  ->  out: (...), usually `weight` itself. A negative `clip_weights` does not cut.

    T. Tieleman and G. Hinton, 2012, lecture 6.5 of "Neural networks for machine learning".
    """

    inputs = ("weight", "grad", "n")
    Attrs = parameters("RMSPropAttrs", gamma1=0.95, epsilon=1e-8, last=_CLIPPED)

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, n: Any) -> Any:
        grad = decayed(xp, a, r, weight, grad, a.clip_gradient)
        n = n * a.gamma1 + grad * (1 - a.gamma1) * grad
        moved = weight - grad / xp.sqrt(n + a.epsilon) * r.lr
        return clipped(xp, moved, a.clip_weights), n


class rmspropalex_update(Update):
    """RMSProp in Graves' form; `n`, `g` and `delta` are changed in place.

    With ``e = clip(rescale_grad*grad + wd*weight)``:  ``n = gamma1*n + (1-gamma1)*e*e``;
    ``g = gamma1*g + (1-gamma1)*e``;  ``delta = gamma2*delta - lr*e / sqrt(n - g*g + epsilon)``;
    ``out = clip(weight + delta, clip_weights)``

    weight, grad, n, g, delta: (...)  ->  out: (...), usually `weight` itself.

    A. Graves, 2013, "Generating sequences with recurrent neural networks", equations 38 to 45.
    """

    inputs = ("weight", "grad", "n", "g", "delta")
    Attrs = parameters("RMSPropAlexAttrs", gamma1=0.95, gamma2=0.9, epsilon=1e-8, last=_CLIPPED)

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, n: Any, g: Any, delta: Any) -> Any:
        grad = decayed(xp, a, r, weight, grad, a.clip_gradient)
        part = grad * (1 - a.gamma1)
        g = g * a.gamma1 + part
        n = n * a.gamma1 + part * grad
        delta = delta * a.gamma2 - grad / xp.sqrt(n - g * g + a.epsilon) * r.lr
        return clipped(xp, weight + delta, a.clip_weights), n, g, delta


class ftrl_update(Update):
    """FTRL-proximal; `z` and `n` are changed in place.

    ``g = clip(rescale_grad*grad)``;  ``z += g - (sqrt(n + g*g) - sqrt(n)) * weight / lr``;  ``n += g*g``;
    ``out = (sign(z)*lamda1 - z) / ((beta + sqrt(n)) / lr + wd)`` where |z| > lamda1, else 0

    weight, grad, z, n: (...)  ->  out: (...), usually `weight` itself. `lamda1` is the L1 penalty, `wd` the
    L2.

    H. B. McMahan et al., 2013, "Ad click prediction: a view from the trenches".
    """

    inputs = ("weight", "grad", "z", "n")
    Attrs = parameters("FtrlAttrs", lamda1=0.01, beta=1.0)

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, z: Any, n: Any) -> Any:
        grad = prepared(xp, a, grad)
        root = xp.sqrt(n)
        n = n + grad * grad
        new_root = xp.sqrt(n)
        z = z + grad - (new_root - root) * weight / r.lr
        below = (new_root + a.beta) / r.lr + r.wd
        # sign(z)*lamda1 - z where |z| > lamda1, else 0: z cut to [-lamda1, lamda1], less z
        return (cut(xp, z, a.lamda1) - z) / below, z, n


class ftml_update(Update):
    """FTML, follow the moving leader; `d`, `v` and `z` are changed in place.

    ``g = clip(rescale_grad*grad + wd*weight)``;  ``v = beta2*v + (1-beta2)*g*g``;
    ``D = (1 - beta1**t) / lr * (sqrt(v / (1 - beta2**t)) + epsilon)``;
    ``z = beta1*z + (1-beta1)*g - (D - beta1*d) * weight``;  ``d = D``;  ``out = -z / D``

    weight, grad, d, v, z: (...)  ->  out: (...), usually `weight` itself.

    S. Zheng and J. T. Kwok, 2017, "Follow the moving leader in deep learning".
    """

    inputs = ("weight", "grad", "d", "v", "z")
    rates = ("lr", "wd", "t")
    Attrs = FTMLAttrs

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, d: Any, v: Any, z: Any) -> Any:
        grad = decayed(xp, a, r, weight, grad, a.clip_grad)
        v = v * a.beta2 + grad * (1 - a.beta2) * grad
        new = (xp.sqrt(v / (1 - a.beta2**r.t)) + a.epsilon) * ((1 - a.beta1**r.t) / r.lr)
        z = z * a.beta1 + grad * (1 - a.beta1) - (new - d * a.beta1) * weight
        return -(z / new), new, v, z


_LAZY: tuple[type[Update], ...] = (adam_update, ftrl_update)
_OTHERS: tuple[type[Update], ...] = (
    _adamw_update, adagrad_update, adadelta_update, rmsprop_update, rmspropalex_update, ftml_update
)  # fmt: skip
for _step in (*_LAZY, *_OTHERS):
    globals().update(forms(_step, lazily=(False, True) if _step in _LAZY else ()))
del _step
