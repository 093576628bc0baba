"""VGG: stacks of 3x3 convolutions."""

from __future__ import annotations

from .. import symbol as sym
from ..core.errors import OpAttributeError
from ..symbol import Symbol
from .layers import classifier, convolution, norm, pool, relu

STAGES = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions per stage: configurations A, B, D and E of the paper."""

FILTERS = (64, 128, 256, 512, 512)


def vgg(depth: int = 16, classes: int = 1000, *, batch_norm: bool = False, dropout: float = 0.5) -> Symbol:
    """VGG of 11, 13, 16 or 19 layers (K. Simonyan, A. Zisserman 2015, "Very deep convolutional networks for
    large-scale image recognition").

    data: (N, 3, 224, 224);  softmax_label: (N,)  ->  softmax: (N, `classes`). Other sizes down to 32 change
    the first of the three affine layers.  batch_norm: a norm after each convolution, not in the paper.
    """
    if depth not in STAGES:
        raise OpAttributeError(f"depth must be one of {list(STAGES)}, got {depth!r}.")
    data = sym.Variable("data")
    for stage, (count, filters) in enumerate(zip(STAGES[depth], FILTERS), 1):
        for i in range(1, count + 1):
            data = convolution(data, filters, 3, f"conv{stage}_{i}", bias=True)
            if batch_norm:
                data = norm(data, f"bn{stage}_{i}")
            data = relu(data, f"relu{stage}_{i}")
        data = pool(data, "max", 2, 2, f"pool{stage}")
    data = sym.Flatten(data, name="flatten5")
    for i in (6, 7):
        data = relu(sym.FullyConnected(data, num_hidden=4096, name=f"fc{i}"), f"relu{i}")
        if dropout:
            data = sym.Dropout(data, p=dropout, name=f"drop{i}")
    return classifier(data, classes, "fc8")
