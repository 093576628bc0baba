"""Losses of numbers: distances of a prediction from what it should be."""

from __future__ import annotations

from math import pi
from typing import Any

from .base import like, Loss


class L2Loss(Loss):
    """weight / 2 (label - pred)^2, the mean of a sample's elements."""

    def __init__(self, weight: float | None = 1.0, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        loss = F.square(like(F, label, pred) - pred)
        half = 0.5 if self._weight is None else self._weight / 2
        return self.per_sample(F, self.weighted(F, loss, sample_weight, half))


class L1Loss(Loss):
    """|label - pred|, the mean of a sample's elements."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        loss = F.abs(like(F, label, pred) - pred)
        return self.per_sample(F, self.weighted(F, loss, sample_weight))


class HuberLoss(Loss):
    """|d| - rho / 2 where the distance |d| is above `rho`, else d^2 / (2 rho); the mean of a sample's
    elements.
    """

    def __init__(
        self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._rho = rho

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        far = F.abs(like(F, label, pred) - pred)
        loss = F.where(far > self._rho, far - self._rho / 2, F.square(far) * (0.5 / self._rho))
        return self.per_sample(F, self.weighted(F, loss, sample_weight))


class PoissonNLLLoss(Loss):
    """The negative logarithm of a Poisson distribution's probability of `target`; the mean of all elements.

    from_logits: `pred` is the logarithm of the rate.  compute_full: add Stirling's term for log(target!).
    """

    def __init__(
        self,
        weight: float | None = None,
        from_logits: bool = True,
        batch_axis: int = 0,
        compute_full: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._compute_full = compute_full

    def hybrid_forward(
        self, F: Any, pred: Any, target: Any, sample_weight: Any = None, epsilon: float = 1e-08
    ) -> Any:
        """The mean loss."""
        target = like(F, target, pred)
        loss = F.exp(pred) - target * pred if self._from_logits else pred - target * F.log(pred + epsilon)
        if self._compute_full:
            stirling = target * F.log(target) - target + 0.5 * F.log(2 * pi * target)
            loss = loss + F.where(target > 1, stirling, F.zeros_like(target))
        return F.mean(self.weighted(F, loss, sample_weight))
