"""Losses of vectors: near what belongs together, far from what does not."""

from __future__ import annotations

from typing import Any

from .base import like, Loss


class TripletLoss(Loss):
    """max(0, |pred - positive|^2 - |pred - negative|^2 + margin), |.|^2 the sum of a sample's squares."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, positive: Any, negative: Any) -> Any:
        """The loss of each sample."""
        near, far = (F.square(like(F, x, pred) - pred) for x in (positive, negative))
        return self.weighted(F, F.relu(F.sum(near - far, axis=self._batch_axis, exclude=True) + self._margin))


class CosineEmbeddingLoss(Loss):
    """1 - c for labels of 1, max(0, c - margin) for -1, c the cosine of two vectors. (N, 1)."""

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        input1 = like(F, input1, input2)
        product, *lengths = (
            F.sum(a * b, axis=-1).reshape((-1, 1))
            for a, b in ((input1, input2), (input1, input1), (input2, input2))
        )
        cosine = product / F.maximum(F.sqrt(lengths[0]) * F.sqrt(lengths[1]), 1e-12)
        label = label.reshape((-1, 1))
        loss = (1 - cosine) * (label == 1) + F.relu((label == -1) * (cosine - self._margin))
        return self.weighted(F, loss, sample_weight)


class SDMLLoss(Loss):
    """Smoothed deep metric learning: row i of one batch belongs to row i of the other. Bonadiman et al. 2019.

    The divergence of softmax(-squared distances) from a matrix with 1 - s on its diagonal and
    s / (N - 1) elsewhere, s = `smoothing_parameter`. x1, x2: (N, D) -> (N,).
    """

    def __init__(
        self, smoothing_parameter: float = 0.3, weight: float | None = 1.0, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._smoothing = smoothing_parameter

    def hybrid_forward(self, F: Any, x1: Any, x2: Any) -> Any:
        """The loss of each row of `x1`."""
        apart = F.sum(F.square(F.broadcast_sub(F.expand_dims(x1, axis=1), F.expand_dims(x2, axis=0))), axis=2)
        one = F.ones_like(F.slice_axis(apart, axis=1, begin=0, end=1))
        number = F.cumsum(one, axis=0)
        same = F.broadcast_equal(number, F.transpose(number))
        others = F.sum(one, axis=0, keepdims=True) - 1
        label = same * (1 - self._smoothing) + F.broadcast_div((1 - same) * self._smoothing, others)
        loss = label * (F.log(label + 1e-12) - F.log_softmax(-apart, axis=1))
        return F.sum(self.weighted(F, loss), axis=self._batch_axis, exclude=True)
