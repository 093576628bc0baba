"""Residual networks for 224x224 images, in the two topologies whose memory plans have been published."""

from __future__ import annotations

from typing import Any

STAGES = {
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    500: (3, 64, 96, 3),
    1001: (3, 131, 196, 3),
}
"""Bottleneck blocks per stage. 50 to 200: He et al. 2016. The two larger ones grow the middle stages only.
The stages of the published 1000-layer network are not known to us; measured.py has figures of these."""


def memonger(mx: Any, stages: tuple[int, ...], classes: int = 1000) -> Any:
    """Post-activation: convolution (with bias), batch norm, leaky rectifier; nothing behind the sums.

    The network that dmlc's memonger is shown with, marks at block outputs included.
    """

    def module(
        data: Any, filters: int, kernel: tuple[int, int], pad: tuple[int, int], stride: tuple[int, int]
    ) -> Any:
        out = mx.sym.Convolution(data=data, kernel=kernel, stride=stride, pad=pad, num_filter=filters)
        out = mx.sym.BatchNorm(data=out, fix_gamma=True)
        return mx.sym.LeakyReLU(data=out, act_type="leaky")

    data = module(mx.sym.Variable("data"), 64, (7, 7), (3, 3), (2, 2))
    data = mx.sym.Pooling(data=data, pool_type="max", kernel=(3, 3), stride=(2, 2))
    for stage, blocks in enumerate(stages):
        filters = 64 << stage
        for block in range(blocks):
            stride = (2, 2) if stage and not block else (1, 1)
            out = module(data, filters, (1, 1), (0, 0), (1, 1))
            out = module(out, filters, (3, 3), (1, 1), stride)
            out = module(out, filters * 4, (1, 1), (0, 0), (1, 1))
            if not block:
                data = module(data, filters * 4, (1, 1), (0, 0), stride)
            data._set_attr(mirror_stage="True")
            data = data + out
    data = mx.sym.Pooling(data=data, kernel=(7, 7), stride=(1, 1), pool_type="avg", name="global_pool")
    data = mx.sym.FullyConnected(data=mx.sym.Flatten(data), num_hidden=classes, name="fc1")
    return mx.sym.SoftmaxOutput(data=data, name="softmax")


def preactivation(mx: Any, stages: tuple[int, ...], classes: int = 1000) -> Any:
    """Batch norm, rectifier, convolution (He et al. 2016, Identity mappings in deep residual networks).

    The network of MXNet's image-classification examples, down to the copy of the input that it starts with.
    """

    def norm(data: Any) -> Any:
        data = mx.sym.BatchNorm(data=data, fix_gamma=False, eps=2e-5, momentum=0.9)
        return mx.sym.Activation(data=data, act_type="relu")

    def conv(data: Any, filters: int, kernel: int, stride: int = 1) -> Any:
        return mx.sym.Convolution(
            data=data,
            num_filter=filters,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=(kernel // 2, kernel // 2),
            no_bias=True,
        )

    data = mx.sym.identity(mx.sym.Variable("data"), name="id")
    data = mx.sym.BatchNorm(data, fix_gamma=True, eps=2e-5, momentum=0.9, name="bn_data")
    data = norm(conv(data, 64, 7, 2))
    data = mx.sym.Pooling(data, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
    for stage, blocks in enumerate(stages):
        filters = 256 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            act = norm(data)
            out = norm(conv(act, filters // 4, 1))
            out = norm(conv(out, filters // 4, 3, stride))
            out = conv(out, filters, 1)
            data = out + (data if block else conv(act, filters, 1, stride))
    data = mx.sym.Pooling(norm(data), global_pool=True, kernel=(7, 7), pool_type="avg", name="pool1")
    data = mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=classes, name="fc1")
    return mx.sym.SoftmaxOutput(data, name="softmax")
