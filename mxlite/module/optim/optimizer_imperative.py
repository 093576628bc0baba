"""Optimizers that step outside the graph only: rare ones, with MXNet's formulas.

They run after backward, on gradients that have all lived until then, and take temporary arrays of a
weight's size that no plan shows. In the formulas lr and wd are the rates of one parameter in this update,
products are by element, and `g = clip(rescale_grad * grad)` unless a docstring says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...core.disk.schema import MOST, real, row, several
from ...core.errors import OpAttributeError
from ...core.wanted import number
from ...ndarray import maximum, NDArray, norm, random
from .optimizer_base import checked_progress, Optimizer, register
from .optimizer_descent import descend, zeros_like


class _Imperative(Optimizer):
    """Family: `step(weight, g, state, lr, wd, t)` changes the weight and its state; t counts from 1."""

    decays_first = False  # True if wd * weight is part of what is clipped

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd = self.hyper(index)
        g = grad * self.rescale_grad
        if self.decays_first:
            g += wd * weight
        g = self._clipped(g)
        self.step(weight, g, state, lr, wd, self._index_update_count[index])

    def step(self, weight: NDArray, g: NDArray, state: Any, lr: float, wd: float, t: int) -> None:
        """Update `weight` and `state` in place by the gradient `g`; `t` counts the updates, from 1."""
        raise NotImplementedError


@register
class Adamax(_Imperative):
    """Adam by the largest gradient (Kingma and Ba, 2015, Adam, section 7).

    `g = clip(rescale_grad * grad + wd * weight);  m = beta1 m + (1 - beta1) g;  u = max(beta2 u, |g|);
    weight -= lr / (1 - beta1^t) * m / u`, t the count of updates of this weight. The state is (m, u). Where
    u is 0, as all gradients were exactly 0, nothing moves; MXNet makes that nan.
    """

    decays_first = True
    limits = {"beta1": real(0, below=1), "beta2": real(0, below=1)}

    def __init__(
        self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = number("beta1", beta1)
        self.beta2 = number("beta2", beta2)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return zeros_like(weight), zeros_like(weight)

    def step(self, weight: NDArray, g: NDArray, state: Any, lr: float, wd: float, t: int) -> None:
        m, u = state
        m *= self.beta1
        m += (1 - self.beta1) * g
        u[:] = maximum(self.beta2 * u, g.abs())
        weight -= lr / (1 - self.beta1**t) * m / (u + (u == 0))


@register
class Nadam(_Imperative):
    """Adam with Nesterov's momentum (Dozat, 2016, Incorporating Nesterov momentum into Adam).

    `g = clip(rescale_grad * grad + wd * weight)`;  m and v as in Adam;
    `p(t) = beta1 * (1 - 0.96^(t * schedule_decay) / 2)`;  `s *= p(t)`, one for all weights as in MXNet;
    `n = (1 - p(t)) g / (1 - s) + p(t + 1) m / (1 - s p(t + 1))`;
    `weight -= lr * n / (sqrt(v / (1 - beta2^t)) + epsilon)`. The state is (m, v).
    """

    decays_first = True
    limits = {
        "beta1": real(0, below=1),
        "beta2": real(0, below=1),
        "schedule_decay": real(0, 1e6),
        "m_schedule": real(0, 1),
    }

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = number("beta1", beta1)
        self.beta2 = number("beta2", beta2)
        self.epsilon = number("epsilon", epsilon)
        self.schedule_decay = number("schedule_decay", schedule_decay)
        self.m_schedule = 1.0

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return zeros_like(weight), zeros_like(weight)

    def progress(self) -> dict[str, Any]:
        return {**super().progress(), "m_schedule": self.m_schedule}

    def set_progress(self, progress: Mapping[str, Any]) -> None:
        checked_progress(progress, {"m_schedule": real(0, 1)})
        super().set_progress(progress)
        self.m_schedule = float(progress["m_schedule"])

    def step(self, weight: NDArray, g: NDArray, state: Any, lr: float, wd: float, t: int) -> None:
        m, v = state
        now, then = (self.beta1 * (1 - 0.5 * 0.96 ** (k * self.schedule_decay)) for k in (t, t + 1))
        self.m_schedule *= now
        m *= self.beta1
        m += (1 - self.beta1) * g
        v *= self.beta2
        v += (1 - self.beta2) * g.square()
        step = (1 - now) / (1 - self.m_schedule) * g + then / (1 - self.m_schedule * then) * m
        weight -= lr * step / ((v / (1 - self.beta2**t)).sqrt() + self.epsilon)


@register
class SGLD(_Imperative):
    """Langevin dynamics: descent with noise, so that weights sample a posterior.

    `weight += -lr / 2 * (g + wd * weight) + N(0, lr)`. There is no state.

    M. Welling and Y. W. Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics.
    """

    limits = {"lr": real(0)}

    def step(self, weight: NDArray, g: NDArray, state: Any, lr: float, wd: float, t: int) -> None:
        if lr < 0:
            raise OpAttributeError(f"SGLD's noise has the variance lr, which cannot be negative; got {lr}.")
        weight -= lr / 2 * (g + wd * weight)
        weight += random.normal(0, math.sqrt(lr), weight.shape, weight.dtype, weight.context)


@register
class DCASGD(_Imperative):
    """Asynchronous descent with delay compensation (Zheng et al., 2017).

    `m = momentum * m - lr * (g + wd * weight + lamda * g^2 * (weight - before))`;  `before = weight`;
    `weight += m`. The state is (m, before), m being None without momentum.
    """

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = number("momentum", momentum)
        self.lamda = number("lamda", lamda)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return (zeros_like(weight) if self.momentum else None), weight.copy()

    def step(self, weight: NDArray, g: NDArray, state: Any, lr: float, wd: float, t: int) -> None:
        m, before = state
        step = -lr * (g + wd * weight + self.lamda * g.square() * (weight - before))
        if m is not None:
            m *= self.momentum
            m += step
            step = m
        weight.copyto(before)
        weight += step


@register
class LARS(_Imperative):
    """Descent whose rate depends, for each weight, on the ratio of its norm to that of its gradient.

    `g = clip(rescale_grad * grad)`;  `m = momentum * m - lr * r * (g + wd * weight)`;  `weight += m`;
    `r = eta * |weight| / (|rescale_grad * grad| + wd * |weight| + eps)`, or 1 where a length is 0, and for
    names that end in gamma, beta or bias. The state is m, None without momentum. With `momentum_correction`,
    momentum is multiplied by the ratio of this step's rate to that of the step before, for all weights; MXNet
    does so for the first four only. Only names that end in `_weight` decay.

    Y. You, I. Gitman and B. Ginsburg (2017), Large batch training of convolutional networks; P. Goyal and
    others (2017), Accurate, large minibatch SGD.
    """

    decayed = ("_weight",)

    master_last = True

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0.0,
        momentum_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.momentum = number("momentum", momentum)
        self.eta = number("eta", eta)
        self.eps = number("eps", eps)
        self.momentum_correction = momentum_correction
        self._steps: list[tuple[int, float]] = []  # (num_update, rate) of the last two

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return zeros_like(weight) if self.momentum else None

    def progress(self) -> dict[str, Any]:
        return {**super().progress(), "rates": [[count, rate] for count, rate in self._steps]}

    def set_progress(self, progress: Mapping[str, Any]) -> None:
        checked_progress(progress, {"rates": several(row(real(-MOST, MOST), real()), most=2)})
        super().set_progress(progress)
        self._steps = [(int(count), float(rate)) for count, rate in progress["rates"]]

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd = self.hyper(index)
        if not self._steps or self._steps[-1][0] != self.num_update:
            self._steps = [*self._steps[-1:], (self.num_update, self.learning_rate)]
        g = grad * self.rescale_grad
        rate: Any = lr
        if not str(self.idx2name.get(index, index)).endswith(("gamma", "beta", "bias")):
            rate = lr * self._ratio(norm(weight), norm(g), wd)
        correction = 1.0 if state is None else self._correction()
        descend(weight, rate * (self._clipped(g) + wd * weight), state, self.momentum * correction)

    def _ratio(self, weight: NDArray, grad: NDArray, wd: float) -> NDArray:
        """`eta` times the ratio of the norms, (1,)."""
        zero = weight * grad == 0
        ratio = self.eta * weight / (grad + wd * weight + self.eps + zero)
        return ratio * (1 - zero) + zero

    def _correction(self) -> float:
        before, now = self._steps[0][1], self._steps[-1][1]
        return now / before if self.momentum_correction and before else 1.0
