"""Residual networks: three orders of convolution, norm and rectifier, for large and for small images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .. import symbol as sym
from ..core.errors import OpAttributeError
from ..symbol import Symbol
from .layers import classifier, convolution, mean_over_image, norm, pool, relu, require

STAGES = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
    500: (3, 64, 96, 3),
    1001: (3, 131, 196, 3),
}
"""Blocks per stage for large images. 18 to 200: He et al. 2016; 269 is MXNet's. The two largest grow the
middle stages only: the stages of the 1000-layer network that Chen et al. 2016 plan are not known to us."""

PLAIN = 50  # networks below this depth have blocks of two convolutions, others bottlenecks of three
DEEP = 164  # the same for small images, version 2


def resnet(
    depth: int = 50,
    version: Literal[1, 2, "memonger"] = 1,
    classes: int = 1000,
    *,
    stages: Sequence[int] | None = None,
    stride_in: Literal["1x1", "3x3"] = "3x3",
) -> Symbol:
    """Residual network for images of 224x224.

    data: (N, 3, H, W);  softmax_label: (N,)  ->  softmax: (N, `classes`).

    version 1    convolution, norm, rectifier; a rectifier after each sum (K. He, X. Zhang, S. Ren, J. Sun
                 2016, "Deep residual learning for image recognition")
    version 2    norm, rectifier, convolution; nothing after the sums ("Identity mappings in deep residual
                 networks", by the same). MXNet's example, with the copy and the norm it starts with
    "memonger"   convolution with bias, norm, leaky rectifier; nothing after the sums. The network of dmlc's
                 memonger examples, marks at block outputs included

    depth: a key of `STAGES`, or any number if `stages` gives the blocks of each stage.  stride_in: which
    convolution of a bottleneck of version 1 has stride 2; the paper's is 1x1.
    """
    if stages is None:
        if depth not in STAGES:
            raise OpAttributeError(f"depth must be one of {list(STAGES)}, got {depth!r}; or give stages=.")
        stages = STAGES[depth]
    require(min(stages, default=0) >= 1, f"stages must be blocks, at least 1 in each, got {stages!r}.")
    require(stride_in in ("1x1", "3x3"), f"stride_in must be '1x1' or '3x3', got {stride_in!r}.")
    if version == 1:
        data = convolution(sym.Variable("data"), 64, 7, "stem_conv", 2)
        data = relu(norm(data, "stem_bn"), "stem_relu")
        data = pool(data, "max", 3, 2, "stem_pool", 1)
        data = _post_activation(data, stages, 64, depth >= PLAIN, stride_in)
        return classifier(mean_over_image(data), classes)
    if version == 2:
        data = sym.identity(sym.Variable("data"), name="id")
        data = norm(data, "data_bn", 2e-5, fix_gamma=True)
        data = _activated(convolution(data, 64, 7, "stem_conv", 2), "stem")
        data = pool(data, "max", 3, 2, "stem_pool", 1)
        data = _pre_activation(data, stages, 256 if depth >= PLAIN else 64, depth >= PLAIN)
        return classifier(mean_over_image(_activated(data, "head")), classes)
    if version == "memonger":
        return _memonger(stages, classes)
    raise OpAttributeError(f"version must be 1, 2 or 'memonger', got {version!r}.")


def resnet_cifar(
    depth: int = 56, version: Literal[1, 2] = 1, classes: int = 10, *, width: int = 16
) -> Symbol:
    """Residual network for images of 32x32, of three stages (the same two papers, section "CIFAR-10").

    data: (N, 3, H, W);  softmax_label: (N,)  ->  softmax: (N, `classes`).

    Blocks of two convolutions, depth 6n + 2 (20, 32, 44, 56, 110); in version 2 from depth 164 bottlenecks,
    depth 9n + 2 (164, 1001).  width: filters of the stem, and of the first stage's 3x3 convolutions. Version
    1 passes from stage to stage by a 1x1 convolution, where the paper pads with zeros.
    """
    require(version in (1, 2), f"version must be 1 or 2, got {version!r}.")
    bottleneck = version == 2 and depth >= DEEP
    if depth < 8 or depth % (9 if bottleneck else 6) != 2:
        raise OpAttributeError(
            f"depth must be 6n + 2 (20, 56, 110, ...), in version 2 from {DEEP} on 9n + 2 (164, 1001, ...); "
            f"got {depth!r}."
        )
    stages = (depth // 9 if bottleneck else depth // 6,) * 3
    data = convolution(sym.Variable("data"), width, 3, "stem_conv")
    if version == 1:
        data = relu(norm(data, "stem_bn"), "stem_relu")
        return classifier(mean_over_image(_post_activation(data, stages, width, False, "3x3")), classes)
    data = _pre_activation(data, stages, width * 4 if bottleneck else width, bottleneck)
    return classifier(mean_over_image(_activated(data, "head")), classes)


def _activated(data: Symbol, name: str) -> Symbol:
    return relu(norm(data, f"{name}_bn", 2e-5), f"{name}_relu")


def _post_activation(
    data: Symbol, stages: Sequence[int], width: int, bottleneck: bool, stride_in: str
) -> Symbol:
    for stage, blocks in enumerate(stages):
        filters = width << stage
        for block in range(blocks):
            name = f"stage{stage + 1}_block{block + 1}"
            stride = 2 if stage and not block else 1
            if bottleneck:
                first, second = (stride, 1) if stride_in == "1x1" else (1, stride)
                parts = [(filters, 1, first), (filters, 3, second), (filters * 4, 1, 1)]
            else:
                parts = [(filters, 3, stride), (filters, 3, 1)]
            out = data
            for i, (count, kernel, step) in enumerate(parts, 1):
                out = norm(convolution(out, count, kernel, f"{name}_conv{i}", step), f"{name}_bn{i}")
                if i < len(parts):
                    out = relu(out, f"{name}_relu{i}")
            if not block and (stride > 1 or bottleneck):
                data = norm(
                    convolution(data, parts[-1][0], 1, f"{name}_skip_conv", stride), f"{name}_skip_bn"
                )
            data = relu(sym.elemwise_add(out, data, name=f"{name}_sum"), f"{name}_relu")
    return data


def _pre_activation(data: Symbol, stages: Sequence[int], width: int, bottleneck: bool) -> Symbol:
    """`width` are the filters at the end of each block of the first stage."""
    for stage, blocks in enumerate(stages):
        filters = width << stage
        for block in range(blocks):
            name = f"stage{stage + 1}_block{block + 1}"
            stride = 2 if stage and not block else 1
            act = _activated(data, f"{name}_a")
            if bottleneck:
                out = convolution(act, filters // 4, 1, f"{name}_conv1")
                out = convolution(_activated(out, f"{name}_b"), filters // 4, 3, f"{name}_conv2", stride)
                out = convolution(_activated(out, f"{name}_c"), filters, 1, f"{name}_conv3")
            else:
                out = convolution(act, filters, 3, f"{name}_conv1", stride)
                out = convolution(_activated(out, f"{name}_b"), filters, 3, f"{name}_conv2")
            skip = data if block else convolution(act, filters, 1, f"{name}_skip_conv", stride)
            data = sym.elemwise_add(out, skip, name=f"{name}_sum")
    return data


def _memonger(stages: Sequence[int], classes: int) -> Symbol:
    def module(data: Symbol, filters: int, kernel: int, stride: int, name: str, pad: int) -> Symbol:
        out = convolution(data, filters, kernel, f"{name}_conv", stride, bias=True, pad=(pad, pad))
        out = sym.BatchNorm(out, fix_gamma=True, name=f"{name}_bn")
        return sym.LeakyReLU(out, act_type="leaky", name=f"{name}_leaky")

    data = module(sym.Variable("data"), 64, 7, 2, "stem", 3)
    data = pool(data, "max", 3, 2, "stem_pool")
    for stage, blocks in enumerate(stages):
        filters = 64 << stage
        for block in range(blocks):
            name = f"stage{stage + 1}_block{block + 1}"
            stride = 2 if stage and not block else 1
            out = module(data, filters, 1, 1, f"{name}_a", 0)
            out = module(out, filters, 3, stride, f"{name}_b", 1)
            out = module(out, filters * 4, 1, 1, f"{name}_c", 0)
            if not block:
                data = module(data, filters * 4, 1, stride, f"{name}_skip", 0)
            data._set_attr(mirror_stage="True")
            data = sym.elemwise_add(data, out, name=f"{name}_sum")
    return classifier(pool(data, "avg", 7, 1, "pool"), classes, "fc1")
