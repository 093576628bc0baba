"""Inception with batch normalization."""

from __future__ import annotations

from .. import symbol as sym
from ..symbol import Symbol
from .layers import classifier, convolution, mean_over_image, norm, pool, relu

Branches = tuple[int, tuple[int, int], tuple[int, int], str, int]

BLOCKS: dict[str, Branches] = {
    "3a": (64, (64, 64), (64, 96), "avg", 32),
    "3b": (64, (64, 96), (64, 96), "avg", 64),
    "3c": (0, (128, 160), (64, 96), "max", 0),
    "4a": (224, (64, 96), (96, 128), "avg", 128),
    "4b": (192, (96, 128), (96, 128), "avg", 128),
    "4c": (160, (128, 160), (128, 160), "avg", 128),
    "4d": (96, (128, 192), (160, 192), "avg", 128),
    "4e": (0, (128, 192), (192, 256), "max", 0),
    "5a": (352, (192, 320), (160, 224), "avg", 128),
    "5b": (352, (192, 320), (192, 224), "max", 128),
}
"""Filters of the four branches: 1x1; reduced and 3x3; reduced and 3x3 twice; kind of pooling and its 1x1.
A block without 1x1 has stride 2 and passes its pooling on as it is. The numbers are those of
MXNet's network, which differ from the paper's figure 5 in a few places."""


def inception_bn(classes: int = 1000) -> Symbol:
    """Inception-BN (S. Ioffe, C. Szegedy 2015, "Batch normalization"), as MXNet's image-classification
    example.

    data: (N, 3, 224, 224);  softmax_label: (N,)  ->  softmax: (N, `classes`).
    """
    data = _unit(sym.Variable("data"), 64, 7, "1", 2)
    data = pool(data, "max", 3, 2, "pool1", pooling_convention="full")
    data = _unit(data, 64, 1, "2_reduce")
    data = _unit(data, 192, 3, "2")
    data = pool(data, "max", 3, 2, "pool2", pooling_convention="full")
    for name, (one, three, double, kind, behind) in BLOCKS.items():
        stride = 1 if one else 2
        branches = [_unit(data, one, 1, f"{name}_1x1")] if one else []
        out = _unit(data, three[0], 1, f"{name}_3x3_reduce")
        branches.append(_unit(out, three[1], 3, f"{name}_3x3", stride))
        out = _unit(data, double[0], 1, f"{name}_double_3x3_reduce")
        out = _unit(out, double[1], 3, f"{name}_double_3x3_0")
        branches.append(_unit(out, double[1], 3, f"{name}_double_3x3_1", stride))
        if one:
            out = pool(data, kind, 3, 1, f"pool_{name}", 1)
            branches.append(_unit(out, behind, 1, f"{name}_proj"))
        else:
            branches.append(pool(data, kind, 3, 2, f"pool_{name}", 1))
        data = sym.Concat(*branches, dim=1, name=f"concat_{name}")
    return classifier(mean_over_image(data), classes, "fc1")


def _unit(data: Symbol, filters: int, kernel: int, name: str, stride: int = 1) -> Symbol:
    data = convolution(data, filters, kernel, f"conv_{name}", stride, bias=True)
    return relu(norm(data, f"bn_{name}"), f"relu_{name}")
