"""Rows of `conformance.py` for convolutions that normalize what they read. See `cases.py`."""

from __future__ import annotations

from math import prod
from typing import Any

from mxlite import ops
from tests.conformance.case import Case, positive


def _line(data: tuple[int, ...], rows: int, op: Any = ops.NormLine, **attrs: Any) -> Case:
    channel = (data[attrs["axis"]],)
    many = (rows // prod(data[1:]), *data[1:])
    return Case(
        op,
        {"fix_gamma": False} | attrs,
        [data, *[channel] * 4],
        make={"moving_var": positive},
        tolerance=1e-5,
        large=[many, *[channel] * 4],
        torch=_torch_line,
    )


def _torch_line(a: Any, data: Any, gamma: Any, beta: Any, mean: Any, var: Any) -> Any:
    if not a.use_global_stats:
        axes = [i for i in range(data.ndim) if i != a.axis % data.ndim]
        mean, var = data.mean(axes), data.var(axes, unbiased=False)
    inverse = (var + a.eps).rsqrt()
    factor = inverse * (1 if a.fix_gamma else gamma)
    return factor, beta - mean * factor, mean, inverse


def _added(a: Any, addend: Any = 0, factor: Any = 1, shift: Any = 0) -> Any:
    y = addend * factor + shift
    return y.relu() if a.plus == "relu" else y


def _normalized(a: Any, data: Any, factor: Any, shift: Any, added: Any = 0) -> Any:
    y = (data * factor + shift + added).movedim(-1, 1)
    return y.relu() if a.relu else y


def _torch_convolution(a: Any, data: Any, weight: Any, *rest: Any) -> Any:
    import torch

    bias = None if a.no_bias else rest[0]
    convolve = {1: torch.conv1d, 2: torch.conv2d}[len(a.kernel)]
    y = _normalized(a, data, *rest[-2:])
    return convolve(y, weight, bias, a.stride or 1, a.pad or 0, a.dilate or 1, a.num_group).movedim(1, -1)


def _torch_d_weight(a: Any, grad: Any, data: Any, factor: Any, shift: Any, *more: Any) -> Any:
    import torch

    make = {1: torch.nn.grad.conv1d_weight, 2: torch.nn.grad.conv2d_weight}[len(a.kernel)]
    shape = (a.num_filter, data.shape[-1] // a.num_group, *a.kernel)
    y, d = _normalized(a, data, factor, shift, _added(a, *more)), grad.movedim(-1, 1)
    d_weight = make(y, shape, d, a.stride or 1, a.pad or 0, a.dilate or 1, a.num_group)
    return d_weight if a.no_bias else (d_weight, grad.sum(tuple(range(grad.ndim - 1))))


def _both(
    name: str, data: tuple[int, ...], out: tuple[int, ...], weight: tuple[int, ...], **attrs: Any
) -> dict[str, Case]:
    attrs = dict(kernel=weight[2:], num_filter=weight[0]) | attrs
    line = [data[-1:]] * 2
    bias = [] if attrs.get("no_bias") else [weight[:1]]
    return {
        f"normed-{name}": Case(
            ops.NormedConvolution, attrs, [data, weight, *bias, *line], torch=_torch_convolution
        ),
        f"normed-{name}-d-weight": Case(
            ops.NormedConvolutionWeightGradient, attrs, [out, data, *line], torch=_torch_d_weight
        ),
    }


def _sum(data: tuple[int, ...], out: tuple[int, ...], addend: str, **attrs: Any) -> Case:
    more = [data, *([data[-1:]] * 2 if addend != "array" else [])]
    attrs = dict(num_filter=out[-1], no_bias=True, plus=addend) | attrs
    inputs = [out, data, *[data[-1:]] * 2, *more]
    return Case(ops.NormedConvolutionWeightGradient, attrs, inputs, torch=_torch_d_weight)


ROWS = {
    "norm-line": _line((6, 2, 2, 3), 400_000, axis=3),
    "norm-line-fix-gamma": _line((9, 2, 4), 400_000, axis=-1, fix_gamma=True),
    "norm-line-global": _line((5, 2, 3), 400_000, axis=2, use_global_stats=True),
    "norm-line-planes": _line((4, 3, 2, 2), 400_000, axis=1),
    "norm-statistics": _line((6, 2, 2, 3), 400_000, ops.NormStatistics, axis=3),
    **_both("3x3", (2, 5, 6, 3), (2, 5, 6, 4), (4, 3, 3, 3), pad=(1, 1), no_bias=True),
    **_both("bias", (2, 5, 6, 3), (2, 3, 4, 4), (4, 3, 3, 3), relu=False),
    **_both("stride", (2, 7, 6, 2), (2, 4, 3, 4), (4, 2, 3, 2), stride=(2, 2), pad=(1, 0), no_bias=True),
    **_both("1x1", (2, 3, 4, 3), (2, 3, 4, 5), (5, 3, 1, 1)),
    **_both("groups", (2, 4, 4, 6), (2, 4, 4, 4), (4, 3, 3, 3), num_group=2, pad=(1, 1)),
    **_both("1d", (2, 6, 3), (2, 6, 4), (4, 3, 3), pad=(1,)),
    **_both("wide", (2, 9, 8, 16), (2, 9, 8, 32), (32, 16, 3, 3), pad=(1, 1)),
    **_both("wide-far", (2, 6, 5, 32), (2, 8, 7, 16), (16, 32, 3, 3), pad=(2, 2), relu=False, no_bias=True),
    **_both("wide-1x1", (2, 6, 5, 32), (2, 6, 5, 48), (48, 32, 1, 1), no_bias=True),
    "normed-sum-d-weight": _sum((2, 9, 8, 16), (2, 9, 8, 32), "array", kernel=(3, 3), pad=(1, 1)),
    "normed-sum-of-line-d-weight": _sum((2, 9, 8, 16), (2, 9, 8, 16), "line", kernel=(3, 3), pad=(1, 1)),
    "normed-sum-of-relu-d-weight": _sum((2, 5, 7, 32), (2, 5, 7, 16), "relu", kernel=(3, 3), pad=(1, 1)),
    "normed-sum-1x1-d-weight": _sum((2, 6, 5, 32), (2, 6, 5, 48), "array", kernel=(1, 1)),
    "normed-sum-of-line-1x1-d-weight": _sum((2, 6, 5, 33), (2, 6, 5, 32), "line", kernel=(1, 1)),
    "normed-sum-of-relu-1x1-d-weight": _sum(
        (2, 6, 5, 32), (2, 6, 5, 32), "relu", kernel=(1, 1), no_bias=False
    ),
    "normed-sum-stride-d-weight": _sum(
        (2, 7, 6, 3), (2, 4, 3, 4), "relu", kernel=(3, 3), stride=(2, 2), pad=(1, 1)
    ),
    "normed-sum-stride-1x1-d-weight": _sum(
        (2, 7, 6, 3), (2, 4, 3, 4), "relu", kernel=(1, 1), stride=(2, 2), no_bias=False
    ),
}
