"""Two small networks that every tutorial starts with."""

from __future__ import annotations

from collections.abc import Sequence

from .. import symbol as sym
from ..symbol import Symbol
from .layers import classifier, pool


def mlp(hidden: Sequence[int] = (128, 64), classes: int = 10) -> Symbol:
    """Affine layers with rectifiers between them. data: (N, ...);  softmax_label: (N,)  ->  softmax: (N,
    `classes`).
    """
    data = sym.Variable("data")
    for i, width in enumerate(hidden, 1):
        data = sym.FullyConnected(data, num_hidden=width, name=f"fc{i}")
        data = sym.Activation(data, act_type="relu", name=f"relu{i}")
    return classifier(data, classes, f"fc{len(hidden) + 1}")


def lenet(classes: int = 10) -> Symbol:
    """LeNet in the form of MXNet's examples (Y. LeCun, L. Bottou, Y. Bengio, P. Haffner 1998, "Gradient-based
    learning applied to document recognition"). data: (N, 1, 28, 28);  softmax_label: (N,)  ->  softmax: (N,
    `classes`).
    """
    data = sym.Variable("data")
    for i, filters in enumerate((20, 50), 1):
        data = sym.Convolution(data, kernel=(5, 5), num_filter=filters, name=f"conv{i}")
        data = sym.Activation(data, act_type="tanh", name=f"tanh{i}")
        data = pool(data, "max", 2, 2, f"pool{i}")
    data = sym.FullyConnected(sym.Flatten(data, name="flatten2"), num_hidden=500, name="fc1")
    data = sym.Activation(data, act_type="tanh", name="tanh3")
    return classifier(data, classes, "fc2")
