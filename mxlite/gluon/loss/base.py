"""Loss: the base of all losses."""

from __future__ import annotations

from typing import Any

from ... import ndarray as nd
from ...core.errors import MissingMethodError
from ..blocks.hybrid_block import HybridBlock


class Loss(HybridBlock):
    """Base of losses: they return one number a sample, times `weight` and `sample_weight` if these are given.

    weight: a number, or None for 1.  batch_axis: the axis of samples.
    """

    def __init__(self, weight: float | None, batch_axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._weight = weight
        self._batch_axis = batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def hybrid_forward(self, F: Any, *args: Any, **kwargs: Any) -> Any:
        """The loss of each sample."""
        raise MissingMethodError(f"{type(self).__name__} has no hybrid_forward.")

    def weighted(self, F: Any, loss: Any, sample_weight: Any = None, weight: float | None = None) -> Any:
        """`loss` times the weight of each sample, of shape (N, 1), and `weight`, which None makes the loss's
        own.
        """
        return apply_weighting(F, loss, self._weight if weight is None else weight, sample_weight)

    def per_sample(self, F: Any, loss: Any) -> Any:
        """The mean over all axes but the batch's."""
        return F.mean(loss, axis=self._batch_axis, exclude=True)


def apply_weighting(F: Any, loss: Any, weight: float | None = None, sample_weight: Any = None) -> Any:
    """`loss` times the weight of each sample, of shape (N, 1), and the number `weight`; None is 1."""
    if sample_weight is not None:
        loss = F.broadcast_mul(loss, sample_weight)
    return loss if weight is None else loss * weight


def like(F: Any, x: Any, other: Any) -> Any:
    """`x` with the shape of `other`, which has as many elements: labels often lack an axis of length 1."""
    return x.reshape(other.shape) if F is nd else F.reshape_like(x, other)
