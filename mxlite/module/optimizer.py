"""The optimizers: how a weight moves, given its gradient.

In the formulas lr and wd are the rates of one parameter in this update, and products are by element. Those
with an `update_rule` can run inside the graph (see optimizer_base.py); the others are imperative only.
"""

from __future__ import annotations

import math
from typing import Any

from .. import ndarray as nd
from ..graph.update import UpdateRule
from ..ndarray import NDArray, zeros
from ..ops.optimizer_ops import _fused_adam, _fused_sgd, _fused_sgd_mom
from .optimizer_base import alias, create as create, number, Optimizer as Optimizer, register as register
from .updater import get_updater as get_updater, Updater as Updater


@alias("ccsgd")  # its name in older examples
@register
class SGD(Optimizer):
    """Stochastic gradient descent with momentum.

    `g = clip(rescale_grad * grad) + wd * weight;  m = momentum * m - lr * g;  weight += m`. The state is m,
    or None without momentum. `lazy_update` concerns sparse gradients, which mxlite does not have.
    """

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = number("momentum", momentum)
        self.lazy_update = lazy_update

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros_like(weight) if self.momentum else None

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd = self.hyper(index)
        if state is None:
            nd.sgd_update(weight, grad, out=weight, lr=lr, wd=wd, **self._gradient_attrs())
        else:
            nd.sgd_mom_update(
                weight,
                grad,
                state,
                out=weight,
                lr=lr,
                wd=wd,
                momentum=self.momentum,
                **self._gradient_attrs(),
            )

    def update_rule(self) -> UpdateRule | None:
        if self.multi_precision:
            return None
        if not self.momentum:
            return UpdateRule(_fused_sgd, self._gradient_attrs())
        return UpdateRule(_fused_sgd_mom, {"momentum": self.momentum, **self._gradient_attrs()}, ("mom",))


@register
class NAG(Optimizer):
    """Nesterov's accelerated gradient.

    `g = clip(rescale_grad * grad) + wd * weight;  m = momentum * m - lr * g;
    weight += momentum * m - lr * g`.
    MXNet 1.9.1 stores another m when it clips, and one that contains decay of the *updated* weight when it
    decays (its kernel writes the weight first); here m is the formula's.
    """

    def __init__(self, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = number("momentum", momentum)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros_like(weight) if self.momentum else None

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd = self.hyper(index)
        if state is None:
            nd.sgd_update(weight, grad, out=weight, lr=lr, wd=wd, **self._gradient_attrs())
            return
        step = (_clipped(grad * self.rescale_grad, self._clip()) + weight * wd) * lr
        state *= self.momentum
        state -= step
        weight += state * self.momentum
        weight -= step


@register
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015, Adam: a method for stochastic optimization).

    `g = clip(rescale_grad * grad + wd * weight);  m = beta1 m + (1 - beta1) g;
    v = beta2 v + (1 - beta2) g^2;  weight -= lr sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)`,
    t the count of updates of this weight. The state is (m, v). Unlike SGD's, clipping comes after decay.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = number("beta1", beta1)
        self.beta2 = number("beta2", beta2)
        self.epsilon = number("epsilon", epsilon)
        self.lazy_update = lazy_update

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros_like(weight), _zeros_like(weight)

    def hyper(self, index: Any) -> tuple[float, float]:
        """As in Optimizer, with the bias correction in the learning rate."""
        lr, wd = super().hyper(index)
        t = self._index_update_count[index]
        return lr * (math.sqrt(1.0 - self.beta2**t) / (1.0 - self.beta1**t)), wd

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd = self.hyper(index)
        mean, var = state
        nd.adam_update(weight, grad, mean, var, out=weight, lr=lr, wd=wd, **self._adam_attrs())

    def update_rule(self) -> UpdateRule | None:
        return None if self.multi_precision else UpdateRule(_fused_adam, self._adam_attrs(), ("mean", "var"))

    def _adam_attrs(self) -> dict[str, float]:
        return {
            "beta1": self.beta1,
            "beta2": self.beta2,
            "epsilon": self.epsilon,
            **self._gradient_attrs(),
        }


@register
class AdaGrad(Optimizer):
    """AdaGrad (Duchi, Hazan and Singer, 2011, Adaptive subgradient methods).

    `g = clip(rescale_grad * grad);  h += g^2;  weight -= lr * (g / sqrt(h + eps) + wd * weight)`.
    """

    def __init__(self, eps: float = 1e-7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = number("eps", eps)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return _zeros_like(weight)

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd = self.hyper(index)
        g = _clipped(grad * self.rescale_grad, self._clip())
        state += g * g
        weight -= (g / (state + self.float_stable_eps) ** 0.5 + weight * wd) * lr


@register
class RMSProp(Optimizer):
    """RMSProp (Tieleman and Hinton, 2012); with `centered`, the form of Graves (2013), equations 38 to 45.

    `g = clip(rescale_grad * grad + wd * weight);  n = gamma1 n + (1 - gamma1) g^2;
    weight -= lr * g / sqrt(n + epsilon)`. Centered: `a = gamma1 a + (1 - gamma1) g;
    d = gamma2 d - lr * g / sqrt(n - a^2 + epsilon);  weight += d`. The state is (n,) or (n, a, d).
    `clip_weights` then cuts the weight to [-clip, clip].
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1 = number("gamma1", gamma1)
        self.gamma2 = number("gamma2", gamma2)
        self.epsilon = number("epsilon", epsilon)
        self.centered = centered
        self.clip_weights = None if clip_weights is None else number("clip_weights", clip_weights)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        return tuple(_zeros_like(weight) for _ in range(3 if self.centered else 1))

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd = self.hyper(index)
        g = _clipped(grad * self.rescale_grad + weight * wd, self._clip())
        n = state[0]
        n *= self.gamma1
        n += g * g * (1 - self.gamma1)
        if self.centered:
            _, mean, delta = state
            mean *= self.gamma1
            mean += g * (1 - self.gamma1)
            delta *= self.gamma2
            delta -= g * lr / (n - mean * mean + self.epsilon) ** 0.5
            weight += delta
        else:
            weight -= g * lr / (n + self.epsilon) ** 0.5
        if self.clip_weights:
            weight[:] = _clipped(weight, self.clip_weights)


def _zeros_like(weight: NDArray) -> NDArray:
    return zeros(weight.shape, weight.context, dtype=weight.dtype)


def _clipped(x: NDArray, bound: float) -> NDArray:
    return nd.clip(x, -bound, bound) if bound > 0 else x
