"""The optimizers: how a weight moves, given its gradient.

In the formulas lr and wd are the rates of one parameter in this update, and products are by element.
Each is an operator of `mxlite.ops` (whose docstring has formula and source) with its settings; it runs
imperatively or, by its `update_rule`, inside the graph (see optimizer_base.py), with the same bits.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from ...core.disk.schema import optional as _optional, real as _real
from ...core.wanted import number
from . import optimizer_contrib as _contrib
from .optimizer_base import alike, create as create, Optimizer as Optimizer, register as register
from .optimizer_descent import (
    LBSGD as LBSGD,
    NAG as NAG,
    OperatorOptimizer as _OperatorOptimizer,
    SGD as SGD,
    Signum as Signum,
)
from .optimizer_imperative import (
    Adamax as Adamax,
    DCASGD as DCASGD,
    LARS as LARS,
    Nadam as Nadam,
    SGLD as SGLD,
)
from .updater import get_updater as get_updater, Updater as Updater

contrib = _contrib
ccSGD = SGD  # its name in older programs


class _AdamLike(_OperatorOptimizer):
    """Family: decaying means of the gradient and of its square."""

    state_names: ClassVar[tuple[str, ...]] = ("mean", "var")
    own_settings = ("beta1", "beta2", "epsilon")
    limits = {"beta1": _real(0, below=1), "beta2": _real(0, below=1)}

    def __init__(
        self, learning_rate: float | None, beta1: float, beta2: float, epsilon: float, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = number("beta1", beta1)
        self.beta2 = number("beta2", beta2)
        self.epsilon = number("epsilon", epsilon)


@register
class Adam(_AdamLike):
    """Adam (Kingma and Ba, 2015, Adam: a method for stochastic optimization).

    `g = clip(rescale_grad * grad + wd * weight);  m = beta1 m + (1 - beta1) g;
    v = beta2 v + (1 - beta2) g^2;  weight -= lr sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon)`,
    t the count of updates of this weight. The state is (m, v). Unlike SGD's, clipping comes after decay. With
    `lazy_update` a row_sparse gradient leaves the rows alone that it has not.
    """

    rule = "adam"

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.lazy_update = lazy_update

    def settings_of_operator(self) -> dict[str, Any]:
        own = super().settings_of_operator()
        return own if self.lazy_update else {**own, "lazy_update": False}

    @alike
    def hyper(self, index: Any) -> tuple[float, ...]:
        """As in Optimizer, with the bias correction in the learning rate."""
        lr, wd = super().hyper(index)
        t = self._index_update_count[index]
        return lr * (math.sqrt(1.0 - self.beta2**t) / (1.0 - self.beta1**t)), wd


@register
class AdamW(_AdamLike):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019).

    m and v as in Adam, of `g = clip(rescale_grad * grad)`;
    `weight -= lr * (c * m / (sqrt(v) + epsilon) + wd * weight)`, where c is Adam's bias correction at this
    count of updates unless `correct_bias` is off.
    """

    rule = "adamw"

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        correct_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.correct_bias = correct_bias

    @alike
    def hyper(self, index: Any) -> tuple[float, ...]:
        """Learning rate with the bias correction in it, and decay times the learning rate without."""
        lr, wd = super().hyper(index)
        t = self._index_update_count[index]
        factor = math.sqrt(1.0 - self.beta2**t) / (1.0 - self.beta1**t) if self.correct_bias else 1.0
        return lr * factor, wd * lr


@register
class LAMB(_AdamLike):
    """LAMB (You et al., 2020): Adam's step with decay, scaled for each weight array by the norm
    of the weight over the norm of the step.

    `lower_bound` and `upper_bound` cut the weight's norm.
    """

    rule = "lamb"
    counts = True
    limits = {"lower_bound": _optional(_real()), "upper_bound": _optional(_real())}

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.lower_bound = None if lower_bound is None else number("lower_bound", lower_bound)
        self.upper_bound = None if upper_bound is None else number("upper_bound", upper_bound)
        self.bias_correction = bias_correction

    def settings_of_operator(self) -> dict[str, Any]:
        return {
            **super().settings_of_operator(),
            "bias_correction": self.bias_correction,
            "lower_bound": self.lower_bound or -1.0,
            "upper_bound": self.upper_bound or -1.0,
        }


@register
class FTML(_AdamLike):
    """FTML, follow the moving leader (Zheng and Kwok, 2017); see the operator `ftml_update`."""

    rule = "ftml"
    state_names = ("d", "v", "z")
    counts = True

    def __init__(
        self,
        beta1: float = 0.6,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        learning_rate: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)

    def settings_of_operator(self) -> dict[str, Any]:
        attrs = super().settings_of_operator()
        attrs["clip_grad"] = attrs.pop("clip_gradient")
        return attrs


@register
class AdaGrad(_OperatorOptimizer):
    """AdaGrad (Duchi, Hazan and Singer, 2011, Adaptive subgradient methods).

    `g = clip(rescale_grad * grad);  h += g^2;  weight -= lr * (g / sqrt(h + eps) + wd * weight)`.
    """

    rule = "adagrad"
    state_names = ("history",)

    def __init__(self, eps: float = 1e-7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = number("eps", eps)

    def settings_of_operator(self) -> dict[str, Any]:
        return {"epsilon": self.float_stable_eps, **self._gradient_attrs()}


@register
class AdaDelta(_OperatorOptimizer):
    """AdaDelta (Zeiler, 2012); see the operator `adadelta_update`. Its step does not depend on the
    learning rate.
    """

    rule = "adadelta"
    state_names = ("acc_g", "acc_delta")
    own_settings = ("rho", "epsilon")

    def __init__(self, rho: float = 0.9, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rho = number("rho", rho)
        self.epsilon = number("epsilon", epsilon)


@register
class Ftrl(_OperatorOptimizer):
    """FTRL-proximal (McMahan et al., 2013), which makes weights exactly zero; see the operator
    `ftrl_update`. A row_sparse gradient leaves the rows of a row_sparse weight alone that it has not.
    """

    rule = "ftrl"
    state_names = ("z", "n")
    own_settings = ("lamda1", "beta")

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.lamda1 = number("lamda1", lamda1)
        self.beta = number("beta", beta)

    lazy_update = True
    lazy_always = False


@register
class RMSProp(_OperatorOptimizer):
    """RMSProp (Tieleman and Hinton, 2012); with `centered`, the form of Graves (2013), equations 38 to 45.

    `g = clip(rescale_grad * grad + wd * weight);  n = gamma1 n + (1 - gamma1) g^2;
    weight -= lr * g / sqrt(n + epsilon)`. Centered: `a = gamma1 a + (1 - gamma1) g;
    d = gamma2 d - lr * g / sqrt(n - a^2 + epsilon);  weight += d`. The state is (n,) or (n, a, d).
    `clip_weights` then cuts the weight to [-clip, clip].
    """

    limits = {"clip_weights": _optional(_real())}

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

    def operator(self) -> tuple[str, tuple[str, ...]]:
        return ("rmspropalex", ("n", "g", "delta")) if self.centered else ("rmsprop", ("n",))

    def state_of(self, arrays: tuple[Any, ...]) -> Any:
        return arrays

    def settings_of_operator(self) -> dict[str, Any]:
        own = {"gamma1": self.gamma1, "epsilon": self.epsilon, "clip_weights": self.clip_weights or -1.0}
        if self.centered:
            own["gamma2"] = self.gamma2
        return {**own, **self._gradient_attrs()}
