"""Rows of `conformance.py` for the layers of neural networks. See `cases.py`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from mxlite.ops.elementwise.activation import Activation, relu, sigmoid, tanh
from mxlite.ops.elementwise.leaky import LeakyReLU
from mxlite.ops.loss.loss import (
    BlockGrad,
    LinearRegressionOutput,
    LogisticRegressionOutput,
    MAERegressionOutput,
    make_loss,
    MakeLoss,
    SoftmaxOutput,
)
from mxlite.ops.nn.conv import Convolution
from mxlite.ops.nn.dense import FullyConnected
from mxlite.ops.nn.dropout import Dropout, DropoutChannelsLast
from mxlite.ops.nn.pool import Pooling
from mxlite.ops.norm.norm import BatchNorm
from tests.conformance.case import apart, Case, integers, positive, unit

Arrays = dict[str, np.ndarray]


def _many(data: tuple[int, ...]) -> tuple[int, ...]:
    """`data` with more samples, for the allocation check."""
    return (400_000 // prod(data[1:]), *data[1:])


def _conv(data: tuple[int, ...], **attrs: Any) -> Case:
    """A convolution, its weight and bias inferred."""
    shapes, _ = Convolution.infer_shape(Convolution.Attrs(**attrs), data, None, None)
    shapes = shapes[:2] if attrs.get("no_bias") else shapes
    return Case(Convolution, attrs, shapes, large=[_many(data), *shapes[1:]], torch=_torch_conv)


def _torch_conv(a: Any, data: Any, weight: Any, bias: Any = None) -> Any:
    import torch

    call = getattr(torch.nn.functional, f"conv{len(a.kernel)}d")
    return call(data, weight, bias, a.stride or 1, a.pad or 0, a.dilate or 1, a.num_group)


def _norm(data: tuple[int, ...], large: tuple[int, ...] | None = None, **attrs: Any) -> Case:
    channel = (data[attrs.get("axis", 1)],)
    return Case(
        BatchNorm,
        {"fix_gamma": False} | attrs,
        [data, *[channel] * 4],
        make={"moving_var": positive},
        grad_inputs=("data", "beta") if attrs.get("fix_gamma") else None,
        tolerance=1e-5,
        large=[large or _many(data), *[channel] * 4],
    )


def _cross_entropy(a: Any, inputs: Arrays, outputs: Arrays) -> float:
    """Summed over all labels, one per row of (N, K)."""
    rows = np.arange(len(inputs["label"]))
    return -float(np.log(outputs["out"][rows, inputs["label"].astype(int)]).sum()) * a.grad_scale


def _per_sample(a: Any, out: np.ndarray) -> float:
    return a.grad_scale / (out.size // len(out))


def _squares(a: Any, inputs: Arrays, outputs: Arrays) -> float:
    out = outputs["out"]
    return 0.5 * float(((out - inputs["label"].reshape(out.shape)) ** 2).sum()) * _per_sample(a, out)


def _absolutes(a: Any, inputs: Arrays, outputs: Arrays) -> float:
    out = outputs["out"]
    return float(np.abs(out - inputs["label"].reshape(out.shape)).sum()) * _per_sample(a, out)


def _logistic(a: Any, inputs: Arrays, outputs: Arrays) -> float:
    out, label = outputs["out"], inputs["label"]
    return -float((label * np.log(out) + (1 - label) * np.log(1 - out)).sum()) * _per_sample(a, out)


def _sum(a: Any, inputs: Arrays, outputs: Arrays) -> float:
    return sum(float(x.sum()) for x in outputs.values()) * getattr(a, "grad_scale", 1.0)


def _pool(data: tuple[int, ...], **attrs: Any) -> Case:
    return Case(Pooling, attrs, [data], make={"data": apart}, large=[_many(data)], torch=_torch_pool)


def _torch_lp(a: Any, data: Any) -> Any:
    import torch

    return torch.nn.functional.lp_pool2d(data, a.p_value, a.kernel, a.stride)


def _torch_pool(a: Any, data: Any) -> Any:
    import torch

    rank = data.ndim - 2
    kernel = tuple(data.shape[2:]) if a.global_pool else a.kernel
    stride, pad = (1, 0) if a.global_pool else (a.stride or 1, a.pad or 0)
    ceil = a.pooling_convention == "full"
    if a.pool_type == "max":
        return getattr(torch.nn.functional, f"max_pool{rank}d")(data, kernel, stride, pad, ceil_mode=ceil)
    call = getattr(torch.nn.functional, f"avg_pool{rank}d")
    found = call(
        data, kernel, stride, pad, ceil_mode=ceil, count_include_pad=a.count_include_pad is not False
    )
    return found * prod(kernel) if a.pool_type == "sum" else found


ROWS: dict[str, Case] = {
    "conv-1x1": _conv((5, 4, 4, 3), kernel=(1, 1), num_filter=6),
    "conv-1x1-group": _conv((5, 4, 4, 3), kernel=(1, 1), num_filter=6, num_group=2, no_bias=True),
    "conv-1x1-few-positions": _conv((40, 12, 2, 2), kernel=(1, 1), num_filter=10, no_bias=True),
    "conv-1x1-stride": _conv((3, 4, 5, 4), kernel=(1, 1), num_filter=3, stride=(2, 2), no_bias=True),
    "conv-3x3": _conv((3, 4, 5, 6), kernel=(3, 3), num_filter=3, pad=(1, 1)),
    "conv-3x3-group-dilate": _conv(
        (3, 4, 7, 6), kernel=(3, 2), num_filter=6, pad=(2, 0), dilate=(2, 1), num_group=2
    ),
    "conv-depthwise": _conv((3, 4, 5, 6), kernel=(3, 3), num_filter=4, num_group=4, no_bias=True),
    "conv-stride-pad": _conv(
        (3, 4, 7, 8), kernel=(3, 3), num_filter=4, stride=(2, 3), pad=(1, 2), num_group=2
    ),
    "conv-padding-beyond-the-kernel": _conv((2, 2, 4, 4), kernel=(2, 1), num_filter=3, pad=(2, 1)),
    "conv-1d": _conv((3, 4, 9), kernel=(3,), num_filter=5, pad=(1,)),
    "conv-3d": _conv((2, 2, 4, 3, 4), kernel=(2, 3, 2), num_filter=3, pad=(1, 1, 0)),
    "fc": Case(
        FullyConnected, {"num_hidden": 5}, [(3, 2, 4), (5, 8), (5,)], large=[(1 << 16, 2, 4), (5, 8), (5,)]
    ),
    "fc-no-bias": Case(FullyConnected, {"num_hidden": 5, "no_bias": True}, [(3, 8), (5, 8)]),
    "fc-no-flatten": Case(FullyConnected, {"num_hidden": 5, "flatten": False}, [(3, 2, 4), (5, 4), (5,)]),
    "bn": _norm((6, 3, 2, 2)),
    "bn-fix-gamma": _norm((6, 3, 2), fix_gamma=True),
    "bn-many-positions": _norm((3, 2, 9, 10), (64, 2, 96, 96)),
    "bn-large-planes": _norm((2, 2, 3, 30), (2, 2, 300, 300)),
    "bn-last-axis": _norm((5, 4, 3), (32768, 4, 3), axis=-1),
    "bn-two-axes": _norm((9, 4)),
    "bn-global": _norm((5, 3, 2, 2), use_global_stats=True),
    "bn-all-outputs": _norm((5, 3, 4), use_global_stats=True, output_mean_var=True),
    **{
        f"activation-{kind}": Case(Activation, {"act_type": kind}, make={"data": apart})
        for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign", "log_sigmoid", "mish")
    },
    "relu": Case(relu, make={"data": apart}),
    "sigmoid": Case(sigmoid),
    "tanh": Case(tanh),
    **{
        f"leaky-{kind}": Case(LeakyReLU, {"act_type": kind}, make={"data": apart})
        for kind in ("leaky", "elu", "gelu")
    },
    "leaky-selu": Case(
        LeakyReLU,
        {"act_type": "selu"},
        make={"data": apart},
        mxnet="MXNet's gradient is not that of its output",
    ),
    "leaky-negative-slope": Case(LeakyReLU, {"act_type": "leaky", "slope": -0.5}, make={"data": apart}),
    "elu-negative-slope": Case(LeakyReLU, {"act_type": "elu", "slope": -0.5}, make={"data": apart}),
    **{
        f"prelu{kind}": Case(
            LeakyReLU,
            {"act_type": "prelu"},
            [data, gamma],
            given=("gamma",) if kind else (),
            make={"data": apart},
        )
        for kind, data, gamma in (
            ("", (4, 3, 2), (3,)),
            ("-one", (4, 3, 2), (1,)),
            ("-one-of-two-axes", (4, 3, 2), (1, 1)),
            ("-channels-of-two-axes", (4, 3, 2), (1, 3)),
            ("-samples", (4, 3, 2), (4, 1)),
            ("-samples-of-one-axis", (4, 3, 2), (4,)),
            ("-all-channels", (4, 3, 2, 2), (4, 3)),
            ("-all", (4, 3), (4, 3)),
            ("-of-one-axis", (5,), (5,)),
        )
    },
    "dropout": Case(Dropout, {"p": 0.4}, [(40, 5)]),
    "dropout-axes": Case(Dropout, {"p": 0.4, "axes": (1, 2)}, [(6, 5, 4)]),
    "dropout-channels-last": Case(DropoutChannelsLast, {"p": 0.4}, [(3, 5, 4, 6)], large=[(50, 5, 40, 22)]),
    "dropout-channels-last-axes": Case(DropoutChannelsLast, {"p": 0.4, "axes": (2, 3)}, [(6, 5, 4, 3)]),
    "dropout-inference": Case(Dropout, {"p": 0.4}, [(6, 5)], train=False),
    "dropout-always": Case(Dropout, {"p": 0.4, "mode": "always"}, [(6, 5)], train=False),
    "pool-max": _pool((2, 3, 6, 7), kernel=(2, 2), stride=(2, 2)),
    "pool-max-overlap": _pool((2, 3, 6, 7), kernel=(3, 2), stride=(2, 1), pad=(1, 0)),
    "pool-max-full": _pool((2, 3, 6, 7), kernel=(3, 3), stride=(2, 2), pooling_convention="full"),
    "pool-max-global": _pool((2, 3, 4, 5), global_pool=True),
    "pool-avg": _pool((2, 3, 6, 7), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg"),
    "pool-avg-inside": _pool(
        (2, 3, 6, 7), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg", count_include_pad=False
    ),
    "pool-avg-full": Case(
        Pooling,  # PyTorch drops a last window that starts in the padding
        {
            "kernel": (2, 2),
            "stride": (2, 2),
            "pad": (1, 1),
            "pool_type": "avg",
            "pooling_convention": "full",
        },
        [(2, 3, 6, 7)],
        make={"data": apart},
        large=[_many((2, 3, 6, 7))],
    ),
    "pool-avg-global": _pool((2, 3, 4, 5), global_pool=True, pool_type="avg"),
    "pool-sum-1d": _pool((2, 3, 9), kernel=(3,), stride=(2,), pool_type="sum"),
    "pool-same": Case(
        Pooling,
        {"kernel": (3, 2), "stride": (2, 3), "pooling_convention": "same"},
        [(2, 3, 6, 7)],
        make={"data": apart},
        large=[_many((2, 3, 6, 7))],
        mxnet="MXNet's 'same' fails for all but windows without padding of one axis",
    ),
    "pool-avg-3d": _pool((2, 2, 4, 3, 4), kernel=(2, 2, 2), pool_type="avg"),
    **{
        f"pool-lp{p}": Case(
            Pooling,
            {"kernel": (2, 2), "stride": (1, 2), "pool_type": "lp", "p_value": p},
            [(2, 3, 4, 5)],
            make={"data": positive},
            large=[(4096, 3, 4, 5)],
            torch=_torch_lp,
        )
        for p in (1, 2, 3)
    },
    "softmax-output": Case(
        SoftmaxOutput,
        {"grad_scale": 0.5},
        [(6, 4), (6,)],
        make={"label": integers(0, 4)},
        grad_inputs=("data",),
        objective=_cross_entropy,
    ),
    "linear-regression": Case(
        LinearRegressionOutput,
        {"grad_scale": 3.0},
        [(4, 3), (4, 3)],
        grad_inputs=("data",),
        objective=_squares,
    ),
    "linear-regression-column": Case(
        LinearRegressionOutput, shapes=[(4, 1), (4,)], grad_inputs=("data",), objective=_squares
    ),
    "logistic-regression": Case(
        LogisticRegressionOutput,
        shapes=[(4, 3), (4, 3)],
        make={"label": unit},
        grad_inputs=("data",),
        objective=_logistic,
    ),
    "mae-regression": Case(
        MAERegressionOutput,
        {"grad_scale": 3.0},
        [(4, 3), (4, 3)],
        grad_inputs=("data",),
        objective=_absolutes,
    ),
    "MakeLoss": Case(MakeLoss, {"grad_scale": 3.0}, objective=_sum),
    "MakeLoss-valid": Case(
        MakeLoss,
        {"normalization": "valid", "valid_thresh": 0.5},
        make={"data": apart},
        objective=lambda a, inputs, outputs: _sum(a, inputs, outputs) / (inputs["data"] > 0.5).sum(),
    ),
    "make_loss": Case(make_loss, objective=_sum),
    "BlockGrad": Case(BlockGrad),
}
