"""Parts of networks: convolutions, norms, the classifier at the end, losses."""

from __future__ import annotations

from typing import Any

from .. import symbol as sym
from ..core.errors import OpAttributeError
from ..symbol import Symbol


def convolution(
    data: Symbol, filters: int, kernel: int, name: str, stride: int = 1, *, bias: bool = False, **more: Any
) -> Symbol:
    """A square convolution padded so that stride 1 keeps the size. `more` goes to the operator."""
    pad = kernel // 2
    return sym.Convolution(
        data,
        num_filter=filters,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        **{"pad": (pad, pad), "no_bias": not bias, "name": name, **more},
    )


def norm(data: Symbol, name: str, eps: float = 1e-5, *, fix_gamma: bool = False) -> Symbol:
    """Batch normalization with a scale that is learned, unless `fix_gamma`."""
    return sym.BatchNorm(data, fix_gamma=fix_gamma, eps=eps, momentum=0.9, name=name)


def relu(data: Symbol, name: str) -> Symbol:
    return sym.Activation(data, act_type="relu", name=name)


def pool(data: Symbol, kind: str, kernel: int, stride: int, name: str, pad: int = 0, **more: Any) -> Symbol:
    """'max' or 'avg' over square windows."""
    return sym.Pooling(
        data,
        pool_type=kind,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(pad, pad),
        name=name,
        **more,
    )


def mean_over_image(data: Symbol, name: str = "pool") -> Symbol:
    """(N, C, H, W) -> (N, C, 1, 1)."""
    return sym.Pooling(data, pool_type="avg", kernel=(1, 1), global_pool=True, name=name)


def classifier(data: Symbol, classes: int, name: str = "fc") -> Symbol:
    """(N, ...) -> (N, `classes`): an affine map and the softmax that training starts from."""
    data = sym.FullyConnected(sym.Flatten(data, name="flatten"), num_hidden=classes, name=name)
    return sym.SoftmaxOutput(data, name="softmax")


LOSSES = ("softmax", "cross_entropy")


def loss_of(score: Symbol, loss: str, name: str) -> Symbol:
    """The loss of `score` (N, K) and labels `name`_label (N,): "softmax" (N, K) or "cross_entropy" (1,)."""
    require(loss in LOSSES, f"loss must be one of {', '.join(LOSSES)}, got {loss!r}.")
    if loss == "softmax":
        return sym.SoftmaxOutput(score, name=name)
    total = sym.softmax_cross_entropy(score, sym.Variable(f"{name}_label"), name=f"{name}_entropy")
    return sym.MakeLoss(total, name=name)


def image(size: int) -> dict[str, tuple[int, ...]]:
    """The input of a network for colour images of `size` by `size`, without the batch."""
    return {"data": (3, size, size)}


def require(condition: bool, message: str) -> None:
    """Raise OpAttributeError with `message` unless `condition` holds."""
    if not condition:
        raise OpAttributeError(message)
