"""Steps of gradient descent: plain, with momentum, by sign. See `update.py` for the variants of each.

The order of operations and the roundings are MXNet's.
"""

from __future__ import annotations

from typing import Any

from .update import forms, parameters, prepared, Update


class sgd_update(Update):
    """Stochastic gradient descent, ``out = (1 - lr*wd) * weight - lr * clip(rescale_grad * grad)``.

    weight, grad: (...)  ->  out: (...), usually `weight` itself. The gradient is clipped to
    [-`clip_gradient`, `clip_gradient`] unless that is negative. With `lazy_update` a row_sparse gradient
    changes its own rows alone.
    """

    inputs = ("weight", "grad")
    Attrs = parameters("SGDAttrs", last={"lazy_update": True})

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any) -> Any:
        if r.wd:
            weight = weight * (1 - r.lr * r.wd)
        return weight - prepared(xp, a, grad) * r.lr


class sgd_mom_update(Update):
    """Stochastic gradient descent with momentum; `mom` is changed in place.

    ``mom = momentum*mom - lr*wd*weight - lr*clip(rescale_grad*grad)``;  ``out = weight + mom``

    weight, grad, mom: (...)  ->  out: (...), usually `weight` itself. The gradient is clipped to
    [-`clip_gradient`, `clip_gradient`] unless that is negative.
    """

    inputs = ("weight", "grad", "mom")
    Attrs = parameters("SGDMomAttrs", momentum=0.0, last={"lazy_update": True})

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, mom: Any) -> Any:
        mom = mom * a.momentum
        if r.wd:
            mom = mom - weight * (r.lr * r.wd)
        mom = mom - prepared(xp, a, grad) * r.lr
        return weight + mom, mom

    @staticmethod
    def growth(a: Any) -> tuple[float, float] | None:
        return (a.momentum, -a.rescale_grad) if a.clip_gradient < 0 else None

    @staticmethod
    def rest(xp: Any, a: Any, r: Any, weight: Any, mom: Any) -> Any:
        if r.wd:
            mom = mom - weight * (r.lr * r.wd)
        return weight + mom, mom


class nag_mom_update(Update):
    """Nesterov's accelerated gradient; `mom` is changed in place.

    ``g = clip(rescale_grad*grad) + wd*weight``;  ``mom = momentum*mom - lr*g``;
    ``out = weight + momentum*mom - lr*g``

    weight, grad, mom: (...)  ->  out: (...), usually `weight` itself. MXNet 1.9.1 stores another `mom`
    when it clips, and one that contains the decay of the *updated* weight when it decays: its kernel writes
    the weight first. Here `mom` is the formula's.

    I. Sutskever, J. Martens, G. Dahl, G. Hinton, 2013, "On the importance of initialization and momentum in
    deep learning".
    """

    inputs = ("weight", "grad", "mom")
    Attrs = parameters("NAGAttrs", momentum=0.0)

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, mom: Any) -> Any:
        grad = prepared(xp, a, grad)
        if r.wd:
            grad = grad + weight * r.wd
        move = grad * r.lr
        mom = mom * a.momentum - move
        return weight + (mom * a.momentum - move), mom


class signsgd_update(Update):
    """Descent by the gradient's sign, ``out = (1 - lr*wd) * weight - lr * sign(grad)``.

    weight, grad: (...)  ->  out: (...), usually `weight` itself. `rescale_grad` and `clip_gradient` do not
    change a sign; they are read as in MXNet.

    J. Bernstein, Y.-X. Wang, K. Azizzadenesheli, A. Anandkumar, 2018, "signSGD: compressed optimisation for
    non-convex problems".
    """

    inputs = ("weight", "grad")
    Attrs = parameters("SignSGDAttrs")

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any) -> Any:
        return weight * (1 - r.lr * r.wd) - xp.sign(grad) * r.lr


class signum_update(Update):
    """Descent by the sign of a momentum; `mom` is changed in place.

    ``mom = momentum*mom - (1-momentum)*(clip(rescale_grad*grad) + wd*weight)``;
    ``out = (1 - lr*wd_lh) * weight + lr * sign(mom)``

    weight, grad, mom: (...)  ->  out: (...), usually `weight` itself. `wd_lh` is weight decay applied to the
    weight itself, beside `wd`, which goes into the momentum. Source: as `signsgd_update`.
    """

    inputs = ("weight", "grad", "mom")
    Attrs = parameters("SignumAttrs", momentum=0.0, last={"wd_lh": 0.0})

    @staticmethod
    def step(xp: Any, a: Any, r: Any, weight: Any, grad: Any, mom: Any) -> Any:
        rest = 1 - a.momentum
        mom = mom * a.momentum
        if r.wd:
            mom = mom - weight * (rest * r.wd)
        mom = mom - prepared(xp, a, grad) * rest
        return weight * (1 - r.lr * a.wd_lh) + xp.sign(mom) * r.lr, mom


globals().update(forms(sgd_update, lazily=(False,), preloaded=True))
globals().update(forms(sgd_mom_update, lazily=(False,), preloaded=True))
for _step in (nag_mom_update, signsgd_update, signum_update):
    globals().update(forms(_step))
del _step
