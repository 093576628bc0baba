"""MobileNet: depthwise convolutions, then pointwise ones."""

from __future__ import annotations

from typing import Literal

from .. import symbol as sym
from ..core.errors import OpAttributeError
from ..symbol import Symbol
from .layers import classifier, convolution, mean_over_image, norm, relu

V1 = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
"""(filters, stride) of each pair of convolutions."""

V2 = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
)  # fmt: skip
"""(expansion, filters, blocks, stride of the first) of each stage."""


def mobilenet(
    version: Literal[1, 2] = 1, classes: int = 1000, *, multiplier: float = 1.0, dropout: float = 0.0
) -> Symbol:
    """MobileNet.

    data: (N, 3, 224, 224);  softmax_label: (N,)  ->  softmax: (N, `classes`).

    version 1: A. Howard et al. 2017, "MobileNets: efficient convolutional neural networks for mobile vision
    applications".  version 2: M. Sandler et al. 2018, "MobileNetV2: inverted residuals and linear
    bottlenecks". multiplier: makes every layer narrower or wider, rounded to a multiple of 8; the last layer
    of version 2 does not get narrower.
    """
    if version not in (1, 2):
        raise OpAttributeError(f"version must be 1 or 2, got {version!r}.")
    if not multiplier > 0:
        raise OpAttributeError(f"multiplier must be above 0, got {multiplier!r}.")
    build = _first if version == 1 else _second
    data = mean_over_image(build(sym.Variable("data"), multiplier))
    if dropout:
        data = sym.Dropout(data, p=dropout, name="drop")
    return classifier(data, classes)


def _first(data: Symbol, multiplier: float) -> Symbol:
    width = rounded(32 * multiplier)
    data = relu(norm(convolution(data, width, 3, "conv0", 2), "conv0_bn"), "conv0_relu")
    for i, (filters, stride) in enumerate(V1, 1):
        data = convolution(data, width, 3, f"conv{i}_dw", stride, num_group=width)
        data = relu(norm(data, f"conv{i}_dw_bn"), f"conv{i}_dw_relu")
        width = rounded(filters * multiplier)
        data = relu(norm(convolution(data, width, 1, f"conv{i}"), f"conv{i}_bn"), f"conv{i}_relu")
    return data


def _second(data: Symbol, multiplier: float) -> Symbol:
    width = rounded(32 * multiplier)
    data = _bounded(norm(convolution(data, width, 3, "conv0", 2), "conv0_bn"), "conv0_relu")
    block = 0
    for expansion, filters, blocks, first in V2:
        out_width = rounded(filters * multiplier)
        for i in range(blocks):
            block += 1
            name, stride = f"block{block}", first if not i else 1
            out, inner = data, width * expansion
            if expansion > 1:
                out = norm(convolution(out, inner, 1, f"{name}_expand"), f"{name}_expand_bn")
                out = _bounded(out, f"{name}_expand_relu")
            out = convolution(out, inner, 3, f"{name}_dw", stride, num_group=inner)
            out = _bounded(norm(out, f"{name}_dw_bn"), f"{name}_dw_relu")
            out = norm(convolution(out, out_width, 1, f"{name}_project"), f"{name}_project_bn")
            if stride == 1 and width == out_width:
                out = sym.elemwise_add(data, out, name=f"{name}_sum")
            data, width = out, out_width
    last = rounded(1280 * max(1.0, multiplier))
    return _bounded(norm(convolution(data, last, 1, "last"), "last_bn"), "last_relu")


def _bounded(data: Symbol, name: str) -> Symbol:
    """ReLU6."""
    return sym.clip(data, a_min=0.0, a_max=6.0, name=name)


def rounded(filters: float) -> int:
    """The nearest multiple of 8, at least 8, and not a tenth below `filters`."""
    nearest = max(8, int(filters + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * filters else nearest
