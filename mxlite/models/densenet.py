"""DenseNet: every layer reads the results of all earlier ones."""

from __future__ import annotations

from .. import symbol as sym
from ..core.errors import OpAttributeError
from ..symbol import Symbol
from .layers import classifier, convolution, mean_over_image, norm, pool, relu

STAGES = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
"""Filters of the stem, growth, layers of each block."""


def densenet(depth: int = 121, classes: int = 1000, *, dropout: float = 0.0) -> Symbol:
    """DenseNet-BC (G. Huang, Z. Liu, L. van der Maaten, K. Weinberger 2017, "Densely connected convolutional
    networks").

    data: (N, 3, 224, 224);  softmax_label: (N,)  ->  softmax: (N, `classes`).  depth: a key of `STAGES`.

    Each layer's norm over all earlier results is cheap to recompute and large to keep: these networks
    gain most from recomputation (G. Pleiss et al. 2017, "Memory-efficient implementation of DenseNets").
    """
    if depth not in STAGES:
        raise OpAttributeError(f"depth must be one of {list(STAGES)}, got {depth!r}.")
    width, growth, blocks = STAGES[depth]
    data = relu(norm(convolution(sym.Variable("data"), width, 7, "stem_conv", 2), "stem_bn"), "stem_relu")
    data = pool(data, "max", 3, 2, "stem_pool", 1)
    for b, layers in enumerate(blocks, 1):
        for i in range(1, layers + 1):
            name = f"block{b}_layer{i}"
            out = relu(norm(data, f"{name}_bn1"), f"{name}_relu1")
            out = convolution(out, 4 * growth, 1, f"{name}_conv1")
            out = relu(norm(out, f"{name}_bn2"), f"{name}_relu2")
            out = convolution(out, growth, 3, f"{name}_conv2")
            if dropout:
                out = sym.Dropout(out, p=dropout, name=f"{name}_drop")
            data = sym.Concat(data, out, dim=1, name=f"{name}_concat")
        width += layers * growth
        data = relu(norm(data, f"block{b}_bn"), f"block{b}_relu")
        if b < len(blocks):
            width //= 2
            data = pool(convolution(data, width, 1, f"block{b}_conv"), "avg", 2, 2, f"block{b}_pool")
    return classifier(mean_over_image(data), classes)
