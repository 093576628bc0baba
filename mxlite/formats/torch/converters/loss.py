"""Losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...building import GraphValue, is_float
from ...building.losses import class_loss as of_classes
from ..node import TorchNode
from .arithmetic import expand_both, squared_error

_REDUCTIONS = ("none", "mean", "sum")


def reduced(n: TorchNode, each: GraphValue) -> GraphValue:
    """The losses of all elements as `reduction` says."""
    how = _REDUCTIONS[n.plain("reduction", 1)]
    return each if how == "none" else n.builder.reduce(how, each, None, False)


def class_loss(n: TorchNode) -> GraphValue:
    """cross_entropy_loss and nll_loss of class numbers; probabilities and smoothing by the formula."""
    b, x, target = n.builder, n["self"], n["target"]
    kind = "cross_entropy" if "cross_entropy" in n.target else "nll_loss"
    weight, smoothing = n.get("weight"), float(n.plain("label_smoothing", 0.0))
    how = _REDUCTIONS[n.plain("reduction", 1)]
    alone = x.rank == 1
    if alone:
        x, target = b.reshape(x, (1, *x.shape)), b.reshape(target, (1, *target.shape))
    if is_float(target.dtype) or smoothing:
        return b.reshape(_soft(n, x, target, weight, smoothing, how), n.shape)
    return b.reshape(of_classes(kind, x, target, weight, n.plain("ignore_index", -100), how), n.shape)


def _soft(
    n: TorchNode, x: GraphValue, target: GraphValue, weight: GraphValue | None, smoothing: float, how: str
) -> GraphValue:
    """Cross-entropy of probabilities, or of class numbers that are smoothed, with weights of the classes."""
    b, classes = n.builder, x.shape[1]
    logs = b.op("log_softmax", x, axis=1)
    weighed = logs
    if weight is not None:
        weighed = b.binary("mul", logs, b.reshape(weight, (classes, *(1,) * (x.rank - 2))))
    if is_float(target.dtype):
        n.ignore("ignore_index")
        wanted = target if not smoothing else target * (1 - smoothing) + smoothing / classes
        each = b.op("negative", b.reduce("sum", b.binary("mul", wanted, weighed), [1], False))
        return each if how == "none" else b.reduce(how, each, None, False)
    counted = b.compare("not_equal", target, n.plain("ignore_index", -100))
    places = b.where(counted, target, b.full((), 0, target.dtype))
    shares = b.cast(counted, x.dtype)
    if weight is not None:
        shares = b.binary("mul", shares, b.op("take", weight, places, axis=0))
    picked = b.binary("mul", b.op("nll_loss", logs, places, reduction="none"), shares)
    spread = b.op("negative", b.reduce("mean", weighed, [1], False))
    spread = b.where(counted, spread, b.full((), 0, x.dtype))
    each = b.binary("add", picked * (1 - smoothing), spread * smoothing)
    if how == "none":
        return each
    total = b.reduce("sum", each, None, False)
    return total if how == "sum" else b.binary("div", total, b.reduce("sum", shares, None, False))


def nll_forward(n: TorchNode) -> tuple[Any, ...]:
    return class_loss(n), None


def mse(n: TorchNode) -> GraphValue:
    return reduced(n, squared_error(n["self"], n["target"]))


def mean_absolute(n: TorchNode) -> GraphValue:
    return reduced(n, n.builder.op("abs", n.builder.binary("sub", n["self"], n["target"])))


def smooth_l1(n: TorchNode) -> GraphValue:
    """Huber's: quadratic up to beta, linear beyond; huber_loss is beta times smooth_l1_loss."""
    b = n.builder
    is_huber = "huber" in n.target
    beta = float(n.plain("delta" if is_huber else "beta", 1.0))
    if beta == 0:
        return mean_absolute(n)
    gap = b.binary("sub", n["self"], n["target"])
    return reduced(n, b.op("smooth_l1", gap, scalar=beta**-0.5) * (beta if is_huber else 1.0))


def binary_cross_entropy(n: TorchNode) -> GraphValue:
    """The cross-entropy of probabilities; the logarithms are at least -100, as PyTorch's."""
    b, x, target = n.builder, n["self"], n["target"]
    yes = b.binary("maximum", b.op("log", x), -100.0)
    no = b.binary("maximum", b.op("log", b.reverse("sub", x, 1.0)), -100.0)
    rest = b.reverse("sub", target, 1.0)
    each = b.op("negative", b.binary("add", b.binary("mul", target, yes), b.binary("mul", rest, no)))
    weight = n.get("weight")
    return reduced(n, each if weight is None else b.binary("mul", each, weight))


def binary_cross_entropy_with_logits(n: TorchNode) -> GraphValue:
    """(1 - y) x + (1 + (w - 1) y) softplus(-x)"""
    b = n.builder
    x, target = expand_both(n["self"], n["target"])
    soft = b.op("softplus", b.op("negative", x))
    positive = n.get("pos_weight")
    if positive is not None:
        soft = b.binary("mul", soft, b.binary("mul", target, positive + -1.0) + 1.0)
    each = b.binary("add", b.binary("mul", b.reverse("sub", target, 1.0), x), soft)
    weight = n.get("weight")
    return reduced(n, each if weight is None else b.binary("mul", each, weight))


def multilabel_margin(n: TorchNode) -> GraphValue:
    """The mean over all C classes of max(0, 1 - x[t] + x[j]), over targets t and classes j that are none.

    The targets of a sample end before its first -1. (PyTorch's decomposition counts those behind it, too.)
    """
    b, classes = n.builder, n["self"].shape[-1]
    x, target = (b.reshape(v, (v.size // classes, classes)) for v in (n["self"], n["target"]))
    numbers = b.constant(np.arange(classes), target.dtype)
    ends = b.where(target < 0, b.expand(numbers, target.shape), b.full((), classes, target.dtype))
    counted = b.compare("lesser", numbers, b.reduce("min", ends, [1]))
    places = b.where(counted, target, b.full((), 0, target.dtype))
    counted = b.cast(counted, x.dtype)
    none = b.full(x.shape, 0, x.dtype)
    others = 1.0 - b.op("scatter_elements", none, places, counted, axis=1, reduction="max")
    wanted = b.op("gather_elements", x, places, axis=1)
    gap = b.binary("sub", b.reshape(x, (x.shape[0], 1, classes)), b.reshape(wanted, (x.shape[0], classes, 1)))
    pairs = b.matmul(b.op("relu", gap + 1.0), b.reshape(others, (x.shape[0], classes, 1)))
    each = b.reduce("sum", b.binary("mul", b.reshape(pairs, x.shape), counted), [1], False) * (1 / classes)
    return b.reshape(reduced(n, each), n.shape)


def divergence(n: TorchNode) -> GraphValue:
    """kl_div: target (log target - input), 0 where the target is 0."""
    b, x, target = n.builder, n["self"], n["target"]
    if n.plain("log_target", False):
        return reduced(n, b.binary("mul", b.op("exp", target), b.binary("sub", target, x)))
    safe = b.where(target > 0.0, target, b.full((), 1, np.dtype(target.dtype)))
    return reduced(n, b.binary("mul", target, b.binary("sub", b.op("log", safe), x)))


CONVERTERS: dict[str, Callable[[TorchNode], Any]] = {
    "binary_cross_entropy": binary_cross_entropy,
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "cross_entropy_loss": class_loss,
    "huber_loss": smooth_l1,
    "kl_div": divergence,
    "l1_loss": mean_absolute,
    "mse_loss": mse,
    "multilabel_margin_loss": multilabel_margin,
    "nll_loss": class_loss,
    "nll_loss_forward": nll_forward,
    "nll_loss_nd": class_loss,
    "smooth_l1_loss": smooth_l1,
}
