"""Losses of classes."""

from __future__ import annotations

from typing import Any

from ...core.errors import OpAttributeError
from .base import like, Loss


class SigmoidBinaryCrossEntropyLoss(Loss):
    """-(label log p + (1 - label) log(1 - p)), p = sigmoid(pred); the mean of a sample's elements.

    from_sigmoid: `pred` is p itself.  A `pos_weight` multiplies the term of label 1.
    """

    def __init__(
        self, from_sigmoid: bool = False, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(
        self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None
    ) -> Any:
        """The loss of each sample."""
        label = like(F, label, pred)
        if self._from_sigmoid:
            hit, tiny = F.log(pred + 1e-12) * label, 1e-12
            hit = hit if pos_weight is None else F.broadcast_mul(hit, pos_weight)
            loss = -(hit + F.log(1.0 - pred + tiny) * (1.0 - label))
        else:
            # log(1 + exp(-|x|)) neither overflows nor loses digits.
            small = F.Activation(-F.abs(pred), act_type="softrelu")
            if pos_weight is None:
                loss = F.relu(pred) - pred * label + small
            else:
                factor = 1 + F.broadcast_mul(pos_weight - 1, label)
                loss = pred - pred * label + factor * (small + F.relu(-pred))
        return self.per_sample(F, self.weighted(F, loss, sample_weight))


class SoftmaxCrossEntropyLoss(Loss):
    """-log softmax(pred)[label], the mean of a sample's places.

    axis: that of classes.  sparse_label: `label` has the class's number, else a probability for each class.
    from_logits: `pred` holds logarithms of probabilities already.
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            loss = -F.sum(pred * like(F, label, pred), axis=self._axis, keepdims=True)
        return self.per_sample(F, self.weighted(F, loss, sample_weight))


class KLDivLoss(Loss):
    """label (log label - pred), the sum of a sample's elements; `pred` holds logarithms of probabilities.

    from_logits False: `pred` goes through a log_softmax along `axis` first.
    """

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._axis = axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        loss = self.weighted(F, label * (F.log(label + 1e-12) - pred), sample_weight)
        return F.sum(loss, axis=self._batch_axis, exclude=True)


class HingeLoss(Loss):
    """max(0, margin - pred label) for labels of -1 and 1, the mean of a sample's elements."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        loss = F.relu(self._margin - pred * like(F, label, pred))
        return self.per_sample(F, self.weighted(F, loss, sample_weight))


class SquaredHingeLoss(Loss):
    """The square of HingeLoss's terms, the mean of a sample's elements."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        loss = F.square(F.relu(self._margin - pred * like(F, label, pred)))
        return self.per_sample(F, self.weighted(F, loss, sample_weight))


class LogisticLoss(Loss):
    """log(1 + exp(-pred label)), the mean of a sample's elements.

    label_format: 'signed' for labels of -1 and 1, 'binary' for 0 and 1.
    """

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, label_format: str = "signed", **kwargs: Any
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        if label_format not in ("signed", "binary"):
            raise OpAttributeError(f"label_format must be 'signed' or 'binary', got {label_format!r}.")
        self._label_format = label_format

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        """The loss of each sample."""
        label = like(F, label, pred)
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        loss = F.relu(pred) - pred * label + F.Activation(-F.abs(pred), act_type="softrelu")
        return self.per_sample(F, self.weighted(F, loss, sample_weight))


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss
SoftmaxCELoss = SoftmaxCrossEntropyLoss
