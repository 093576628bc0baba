"""Losses of class numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...building.losses import class_loss
from ..node import OnnxNode
from .activation import log_softmax_along

NO_CLASS = -(2**31)
"""An `ignore_index` that is no class, for a node without one."""


def cross_entropy(n: OnnxNode) -> Any:
    """The loss, and the logarithms of the probabilities on demand."""
    logs = log_softmax_along(n[0], 1) if n.wants(1) else None
    return _loss(n, "cross_entropy"), logs


def log_likelihood(n: OnnxNode) -> Any:
    return _loss(n, "nll_loss")


def _loss(n: OnnxNode, kind: str) -> Any:
    how = n.choice("reduction", "mean", "sum", "none")
    return class_loss(kind, n[0], n[1], n.get(2), n.whole("ignore_index", NO_CLASS), how)


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "NegativeLogLikelihoodLoss": log_likelihood,
    "SoftmaxCrossEntropyLoss": cross_entropy,
}
