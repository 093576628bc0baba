"""Steps with an adaptive rate for each weight. See `update.py` for the variants of each step."""

from __future__ import annotations

from typing import Any

from ...core.errors import OpAttributeError
from ...core.record import record
from .update import clipped, decayed, fused, lazy, many, mixed, prepared, Update


@record
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


@record
class AdamWAttrs:
    """Rates of Adam with decoupled decay; `eta` is the schedule's multiplier of both rates."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    wd: float = 0.0
    eta: float = 1.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0


@record
class AdaGradAttrs:
    """Rates of AdaGrad."""

    lr: float
    epsilon: float = 1e-7
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0


@record
class AdaDeltaAttrs:
    """AdaDelta has no learning rate: `lr` is read and has no effect."""

    lr: float = 1.0
    rho: float = 0.9
    epsilon: float = 1e-5
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0


@record
class RMSPropAttrs:
    """`clip_weights` cuts the new weight to [-clip, clip] unless it is negative."""

    lr: float
    gamma1: float = 0.95
    epsilon: float = 1e-8
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0
    clip_weights: float = -1.0


@record
class RMSPropAlexAttrs:
    """RMSPropAttrs with `gamma2` for the momentum."""

    lr: float
    gamma1: float = 0.95
    gamma2: float = 0.9
    epsilon: float = 1e-8
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0
    clip_weights: float = -1.0


@record
class FtrlAttrs:
    """`lamda1` is the L1 penalty, `wd` the L2."""

    lr: float
    lamda1: float = 0.01
    beta: float = 1.0
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0


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


def moments(xp: Any, a: Any, grad: Any, mean: Any, var: Any, s: Any) -> None:
    """``mean = beta1*mean + (1-beta1)*grad``;  ``var = beta2*var + (1-beta2)*grad*grad``"""
    one = mean.dtype.type
    xp.multiply(mean, a.beta1, out=mean)
    xp.multiply(grad, one(1) - one(a.beta1), out=s)
    xp.add(mean, s, out=mean)
    xp.multiply(var, a.beta2, out=var)
    xp.multiply(grad, one(1) - one(a.beta2), out=s)
    xp.multiply(s, grad, out=s)
    xp.add(var, s, out=var)


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
    scratch = 2
    Attrs = AdamAttrs

    @staticmethod
    def step(
        xp: Any, a: Any, r: Any, t: Any, weight: Any, grad: Any, mean: Any, var: Any, *, out: Any
    ) -> None:
        s, t = t
        moments(xp, a, decayed(xp, a, r, weight, grad, t, s, a.clip_gradient), mean, var, s)
        xp.multiply(mean, r.lr, out=t)
        xp.sqrt(var, out=s)
        xp.add(s, a.epsilon, out=s)
        xp.divide(t, s, out=t)
        xp.subtract(weight, t, out=out)


class _adamw_update(Update):
    """Adam with decoupled weight decay; `mean` and `var` are changed in place.

    ``g = clip(rescale_grad*grad)``;  mean and var as in `adam_update`;
    ``out = weight - eta * (lr*mean / (sqrt(var) + epsilon) + wd*weight)``

    weight, grad, mean, var: (...)  ->  out: (...), usually `weight` itself. Here `rescale_grad` is a number;
    `mx.nd.contrib.adamw_update` also takes an array of one.

    I. Loshchilov and F. Hutter, 2019, "Decoupled weight decay regularization".
    """

    inputs = ("weight", "grad", "mean", "var")
    aliases = ("_contrib_adamw_update", "adamw_update")
    scratch = 2
    Attrs = AdamWAttrs

    @staticmethod
    def step(
        xp: Any, a: Any, r: Any, t: Any, weight: Any, grad: Any, mean: Any, var: Any, *, out: Any
    ) -> None:
        s, t = t
        moments(xp, a, prepared(xp, a, grad, t), mean, var, s)
        xp.multiply(mean, r.lr * a.eta, out=t)
        xp.sqrt(var, out=s)
        xp.add(s, a.epsilon, out=s)
        xp.divide(t, s, out=t)
        if r.wd:
            xp.multiply(weight, r.wd * a.eta, out=s)
            xp.add(t, s, out=t)
        xp.subtract(weight, t, out=out)


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
    scratch = 2
    Attrs = AdaGradAttrs

    @staticmethod
    def step(xp: Any, a: Any, r: Any, t: Any, weight: Any, grad: Any, history: Any, *, out: Any) -> None:
        g = prepared(xp, a, grad, t[0])
        xp.multiply(g, g, out=t[1])
        xp.add(history, t[1], out=history)
        xp.add(history, a.epsilon, out=t[1])
        xp.sqrt(t[1], out=t[1])
        xp.divide(g, t[1], out=t[0])
        if r.wd:
            xp.multiply(weight, r.wd, out=t[1])
            xp.add(t[0], t[1], out=t[0])
        xp.multiply(t[0], r.lr, out=t[0])
        xp.subtract(weight, t[0], out=out)


class adadelta_update(Update):
    """AdaDelta; `acc_g` and `acc_delta` are changed in place.

    ``g = clip(rescale_grad*grad)``;  ``acc_g = rho*acc_g + (1-rho)*g*g``;
    ``d = sqrt(acc_delta + epsilon) / sqrt(acc_g + epsilon) * g``;
    ``acc_delta = rho*acc_delta + (1-rho)*d*d``;  ``out = weight - d - wd*weight``

    weight, grad, acc_g, acc_delta: (...)  ->  out: (...), usually `weight` itself.

    M. D. Zeiler, 2012, "ADADELTA: an adaptive learning rate method".
    """

    inputs = ("weight", "grad", "acc_g", "acc_delta")
    scratch = 2
    Attrs = AdaDeltaAttrs

    @staticmethod
    def step(
        xp: Any, a: Any, r: Any, t: Any, weight: Any, grad: Any, acc_g: Any, acc_delta: Any, *, out: Any
    ) -> None:
        d, s = t
        g = prepared(xp, a, grad, d)
        xp.multiply(acc_g, a.rho, out=acc_g)
        xp.multiply(g, 1 - a.rho, out=s)
        xp.multiply(s, g, out=s)
        xp.add(acc_g, s, out=acc_g)
        xp.add(acc_g, a.epsilon, out=s)
        xp.sqrt(s, out=s)
        xp.divide(g, s, out=d)
        xp.add(acc_delta, a.epsilon, out=s)
        xp.sqrt(s, out=s)
        xp.multiply(d, s, out=d)
        xp.multiply(acc_delta, a.rho, out=acc_delta)
        xp.multiply(d, 1 - a.rho, out=s)
        xp.multiply(s, d, out=s)
        xp.add(acc_delta, s, out=acc_delta)
        if r.wd:
            xp.multiply(weight, r.wd, out=s)
            xp.add(d, s, out=d)
        xp.subtract(weight, d, out=out)


class rmsprop_update(Update):
    """RMSProp; `n` is changed in place.

    ``g = clip(rescale_grad*grad + wd*weight)``;  ``n = gamma1*n + (1-gamma1)*g*g``;
    ``out = clip(weight - lr*g / sqrt(n + epsilon), clip_weights)``

    weight, grad, n: (...)  ->  out: (...), usually `weight` itself.

    T. Tieleman and G. Hinton, 2012, lecture 6.5 of "Neural networks for machine learning".
    """

    inputs = ("weight", "grad", "n")
    scratch = 2
    Attrs = RMSPropAttrs

    @staticmethod
    def step(xp: Any, a: Any, r: Any, t: Any, weight: Any, grad: Any, n: Any, *, out: Any) -> None:
        g = decayed(xp, a, r, weight, grad, t[0], t[1], a.clip_gradient)
        xp.multiply(n, a.gamma1, out=n)
        xp.multiply(g, 1 - a.gamma1, out=t[1])
        xp.multiply(t[1], g, out=t[1])
        xp.add(n, t[1], out=n)
        xp.add(n, a.epsilon, out=t[1])
        xp.sqrt(t[1], out=t[1])
        xp.divide(g, t[1], out=t[0])
        xp.multiply(t[0], r.lr, out=t[0])
        xp.subtract(weight, t[0], out=out)
        clipped(xp, out, a.clip_weights, out)


class rmspropalex_update(Update):
    """RMSProp in Graves' form; `n`, `g` and `delta` are changed in place.

    With ``e = clip(rescale_grad*grad + wd*weight)``:  ``n = gamma1*n + (1-gamma1)*e*e``;
    ``g = gamma1*g + (1-gamma1)*e``;  ``delta = gamma2*delta - lr*e / sqrt(n - g*g + epsilon)``;
    ``out = clip(weight + delta, clip_weights)``

    weight, grad, n, g, delta: (...)  ->  out: (...), usually `weight` itself.

    A. Graves, 2013, "Generating sequences with recurrent neural networks", equations 38 to 45.
    """

    inputs = ("weight", "grad", "n", "g", "delta")
    scratch = 2
    Attrs = RMSPropAlexAttrs

    @staticmethod
    def step(
        xp: Any, a: Any, r: Any, t: Any, weight: Any, grad: Any, n: Any, g: Any, delta: Any, *, out: Any
    ) -> None:
        e = decayed(xp, a, r, weight, grad, t[0], t[1], a.clip_gradient)
        xp.multiply(n, a.gamma1, out=n)
        xp.multiply(e, 1 - a.gamma1, out=t[1])
        xp.multiply(g, a.gamma1, out=g)
        xp.add(g, t[1], out=g)
        xp.multiply(t[1], e, out=t[1])
        xp.add(n, t[1], out=n)
        xp.multiply(g, g, out=t[1])
        xp.subtract(n, t[1], out=t[1])
        xp.add(t[1], a.epsilon, out=t[1])
        xp.sqrt(t[1], out=t[1])
        xp.divide(e, t[1], out=t[0])
        xp.multiply(t[0], r.lr, out=t[0])
        xp.multiply(delta, a.gamma2, out=delta)
        xp.subtract(delta, t[0], out=delta)
        xp.add(weight, delta, out=out)
        clipped(xp, out, a.clip_weights, out)


class ftrl_update(Update):
    """FTRL-proximal; `z` and `n` are changed in place.

    ``g = clip(rescale_grad*grad)``;  ``z += g - (sqrt(n + g*g) - sqrt(n)) * weight / lr``;  ``n += g*g``;
    ``out = (sign(z)*lamda1 - z) / ((beta + sqrt(n)) / lr + wd)`` where |z| > lamda1, else 0

    weight, grad, z, n: (...)  ->  out: (...), usually `weight` itself.

    H. B. McMahan et al., 2013, "Ad click prediction: a view from the trenches".
    """

    inputs = ("weight", "grad", "z", "n")
    scratch = 3
    Attrs = FtrlAttrs

    @staticmethod
    def step(xp: Any, a: Any, r: Any, t: Any, weight: Any, grad: Any, z: Any, n: Any, *, out: Any) -> None:
        s, root, t = t
        g = prepared(xp, a, grad, s)
        xp.add(z, g, out=z)
        xp.sqrt(n, out=root)
        xp.multiply(g, g, out=t)
        xp.add(n, t, out=n)
        xp.sqrt(n, out=t)
        xp.subtract(t, root, out=root)
        xp.multiply(root, weight, out=root)
        xp.divide(root, r.lr, out=root)
        xp.subtract(z, root, out=z)
        xp.add(t, a.beta, out=t)
        xp.divide(t, r.lr, out=t)
        xp.add(t, r.wd, out=t)
        # sign(z)*lamda1 - z where |z| > lamda1, else 0: z cut to [-lamda1, lamda1], less z
        bound = z.dtype.type(a.lamda1)
        xp.maximum(z, -bound, out=s)
        xp.minimum(s, bound, out=s)
        xp.subtract(s, z, out=s)
        xp.divide(s, t, out=out)


class ftml_update(Update):
    """FTML, follow the moving leader; `d`, `v` and `z` are changed in place.

    ``g = clip(rescale_grad*grad + wd*weight)``;  ``v = beta2*v + (1-beta2)*g*g``;
    ``D = (1 - beta1**t) / lr * (sqrt(v / (1 - beta2**t)) + epsilon)``;
    ``z = beta1*z + (1-beta1)*g - (D - beta1*d) * weight``;  ``d = D``;  ``out = -z / D``

    weight, grad, d, v, z: (...)  ->  out: (...), usually `weight` itself.

    S. Zheng and J. T. Kwok, 2017, "Follow the moving leader in deep learning".
    """

    inputs = ("weight", "grad", "d", "v", "z")
    scratch = 2
    rates = ("lr", "wd", "t")
    Attrs = FTMLAttrs

    @staticmethod
    def step(
        xp: Any, a: Any, r: Any, t: Any, weight: Any, grad: Any, d: Any, v: Any, z: Any, *, out: Any
    ) -> None:
        g = decayed(xp, a, r, weight, grad, t[0], t[1], a.clip_grad)
        xp.multiply(v, a.beta2, out=v)
        xp.multiply(g, 1 - a.beta2, out=t[1])
        xp.multiply(t[1], g, out=t[1])
        xp.add(v, t[1], out=v)
        xp.multiply(z, a.beta1, out=z)
        xp.multiply(g, 1 - a.beta1, out=t[1])
        xp.add(z, t[1], out=z)
        new = t[0]
        xp.divide(v, 1 - a.beta2**r.t, out=new)
        xp.sqrt(new, out=new)
        xp.add(new, a.epsilon, out=new)
        xp.multiply(new, (1 - a.beta1**r.t) / r.lr, out=new)
        xp.multiply(d, a.beta1, out=t[1])
        xp.subtract(new, t[1], out=t[1])
        xp.multiply(t[1], weight, out=t[1])
        xp.subtract(z, t[1], out=z)
        xp.copyto(d, new)
        xp.divide(z, new, out=out)
        xp.negative(out, out=out)


_STEPS: tuple[tuple[str, type[Update]], ...] = (
    ("adam", adam_update),
    ("adamw", _adamw_update),
    ("adagrad", adagrad_update),
    ("adadelta", adadelta_update),
    ("rmsprop", rmsprop_update),
    ("rmspropalex", rmspropalex_update),
    ("ftrl", ftrl_update),
    ("ftml", ftml_update),
)
for _name, _step in _STEPS:  # the variants of each; see `update.py`
    _mp = "_mp_adamw_update" if _name == "adamw" else f"mp_{_name}_update"
    globals()[_mp] = mixed(_step, _mp)
    globals()[f"_fused_{_name}"] = fused(_step, f"_fused_{_name}")
    globals()[f"_fused_mp_{_name}"] = fused(_step, f"_fused_mp_{_name}", masters=True)
    _counts = "step_count" if _step.rates[2:] else ""
    _multi = "_multi_adamw_update" if _name == "adamw" else f"multi_{_name}_update"
    globals()[_multi] = many(_step, _multi, counts=_counts)
    _multi = "_multi_mp_adamw_update" if _name == "adamw" else f"multi_mp_{_name}_update"
    globals()[_multi] = many(_step, _multi, masters=True, counts=_counts)
del _step

_lazy_adam = lazy(adam_update, "_lazy_adam")
_lazy_ftrl = lazy(ftrl_update, "_lazy_ftrl")
_lazy_mp_adam = lazy(adam_update, "_lazy_mp_adam", masters=True)
_lazy_mp_ftrl = lazy(ftrl_update, "_lazy_mp_ftrl", masters=True)
