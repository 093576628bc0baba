"""Activation functions as layers."""

from __future__ import annotations

from typing import Any

from ...core.errors import RangeError
from ...module.initial import initializer
from ..blocks.hybrid_block import HybridBlock


class Activation(HybridBlock):
    """An activation by name: 'relu', 'sigmoid', 'tanh', 'softrelu' or 'softsign'."""

    def __init__(self, activation: str, **kwargs: Any) -> None:
        self._act_type = activation
        super().__init__(**kwargs)

    def _alias(self) -> str:
        return self._act_type

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """f(x), element by element."""
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


class LeakyReLU(HybridBlock):
    """x where x > 0, else `alpha` x."""

    def __init__(self, alpha: float, **kwargs: Any) -> None:
        if alpha < 0:
            raise RangeError(f"LeakyReLU: alpha must be at least 0, got {alpha}.")
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """f(x), element by element."""
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


class PReLU(HybridBlock):
    """x where x > 0, else a learnt slope times x; `in_channels` slopes, or one for all."""

    def __init__(self, alpha_initializer: Any = None, in_channels: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            init = initializer.Constant(0.25) if alpha_initializer is None else alpha_initializer
            self.alpha = self.params.get("alpha", shape=(in_channels,), init=init)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        """f(x), element by element."""
        return F.LeakyReLU(x, gamma=alpha, act_type="prelu", name="fwd")


class ELU(HybridBlock):
    """x where x > 0, else `alpha` (exp(x) - 1). Clevert et al. 2015."""

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """f(x), element by element."""
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


class SELU(HybridBlock):
    """A scaled ELU, whose scale keeps mean 0 and variance 1. Klambauer et al. 2017."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """f(x), element by element."""
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(HybridBlock):
    """x times the normal distribution function of x. Hendrycks and Gimpel 2016."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """f(x), element by element."""
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(HybridBlock):
    """x sigmoid(`beta` x). Ramachandran et al. 2017."""

    def __init__(self, beta: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._beta = beta

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """f(x), element by element."""
        return x * F.sigmoid(self._beta * x, name="fwd")


class SiLU(HybridBlock):
    """x sigmoid(x)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """f(x), element by element."""
        return x * F.sigmoid(x, name="fwd")
