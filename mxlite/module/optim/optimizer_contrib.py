"""`mx.optimizer.contrib`: what MXNet kept apart from its other optimizers."""

from __future__ import annotations

from typing import Any

from ...core.errors import OpAttributeError, ShapeError
from ...core.wanted import number
from ...ndarray import NDArray, zeros
from ...ndarray.calls.invoke import call_of, invoke
from .optimizer_base import Optimizer, register


@register
class GroupAdaGrad(Optimizer):
    """AdaGrad with one rate for each row of a matrix.

    `g = clip(rescale_grad * grad);  h = h + mean(g^2, axis=1);  weight -= lr * g / sqrt(h + eps)`. The state
    is h, (rows, 1). A row_sparse gradient leaves the rows alone that it has not. There is no weight decay: a
    rate other than 0 raises OpAttributeError.
    """

    def __init__(self, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = number("eps", eps)

    def create_state(self, index: Any, weight: NDArray) -> Any:
        if weight.ndim != 2:
            raise ShapeError(f"GroupAdaGrad updates matrices, got a weight of shape {weight.shape}.")
        return zeros((weight.shape[0], 1), weight.context, weight.dtype)

    def update(self, index: Any, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd = self.hyper(index)
        if wd:
            raise OpAttributeError(f"GroupAdaGrad has no weight decay, got {wd} for {index!r}.")
        attrs = {"lr": lr, "epsilon": self.float_stable_eps, **self._gradient_attrs()}
        invoke(call_of("_contrib_group_adagrad_update", attrs), (weight, grad, state), weight)
