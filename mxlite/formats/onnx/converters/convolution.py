"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....core import FormatError
from ...building.errors import NotSupportedError
from ...building.moves import padded
from ...building.value import GraphValue
from ..node import OnnxNode
from .windows import Windows


def conv(n: OnnxNode) -> GraphValue:
    return convolved(n, n[0], n[1], n.get(2))


def convolved(n: OnnxNode, x: GraphValue, weight: GraphValue, bias: GraphValue | None) -> GraphValue:
    """Convolution with the node's attributes; unequal pads are put on beforehand."""
    b = n.builder
    rank = x.rank - 2
    kernel = n.wholes("kernel_shape", None) or weight.shape[2:]
    if rank not in (1, 2, 3):
        raise NotSupportedError(f"convolution over {rank} axes")
    if kernel != weight.shape[2:]:
        raise FormatError(f"kernel_shape is {kernel}, but the weight is {weight.shape}.")
    w = Windows.of(n, x.shape[2:], kernel)
    pads = tuple(p for p, _ in w.pads)
    if any(p != q for p, q in w.pads):
        x, pads = padded(x, [(0, 0), (0, 0), *w.pads]), (0,) * rank
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return b.op(
        "Convolution",
        *inputs,
        kernel=kernel,
        num_filter=weight.shape[0],
        stride=w.stride,
        dilate=w.dilate,
        pad=pads,
        num_group=n.whole("group", 1),
        no_bias=bias is None,
    )


def conv_transpose(n: OnnxNode) -> GraphValue:
    """The whole transposed convolution, then `pads` cut off, or zeros added where the output is larger."""
    n.ignore("kernel_shape")  # the weight has it
    b, x, weight, bias = n.builder, n[0], n[1], n.get(2)
    rank, group = x.rank - 2, n.whole("group", 1)
    kernel = weight.shape[2:]
    if rank not in (1, 2, 3):
        raise NotSupportedError(f"convolution over {rank} axes")
    stride = n.wholes("strides", None) or (1,) * rank
    dilate = n.wholes("dilations", None) or (1,) * rank
    extra = n.wholes("output_padding", None) or (0,) * rank
    wanted = n.wholes("output_shape", None)
    auto = n.text("auto_pad", "NOTSET")
    whole = [s * (d - 1) + (k - 1) * e + 1 for d, s, k, e in zip(x.shape[2:], stride, kernel, dilate)]
    if wanted is not None:
        wanted = wanted[-rank:]
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(d * s for d, s in zip(x.shape[2:], stride))
    if wanted is not None:
        sides = []
        for size, want, more in zip(whole, wanted, extra):
            total = size + more - want
            half = total // 2
            upper = auto == "SAME_UPPER"
            sides.append((0, total) if total < 0 else (half, total - half) if upper else (total - half, half))
    else:
        pads = n.wholes("pads", None) or (0,) * (2 * rank)
        sides = list(zip(pads[:rank], pads[rank:]))
    # The end that `pads` cut off may lie in output_padding, which the operator does not know: it is zeros.
    same = all(p == q and p >= 0 for p, q in sides) and not any(extra)
    inputs = [x, weight] if bias is None else [x, weight, bias]
    out: GraphValue = b.op(
        "Deconvolution",
        *(inputs if same else inputs[:2]),
        kernel=kernel,
        num_filter=weight.shape[1] * group,
        stride=stride,
        dilate=dilate,
        pad=tuple(p for p, _ in sides) if same else (0,) * rank,
        num_group=group,
        no_bias=bias is None or not same,
    )
    if same:
        return out
    out = padded(out, [(0, 0), (0, 0), *((-p, more - q) for (p, q), more in zip(sides, extra))])
    if bias is not None:
        out = b.binary("add", out, b.reshape(bias, (bias.size, *(1,) * rank)))
    return out


def conv_integer(n: OnnxNode) -> GraphValue:
    """Whole numbers less their zero points, in int32; computed in float64, where they are exact."""
    b = n.builder
    x, weight = b.cast(n[0], np.float64), b.cast(n[1], np.float64)
    if (zero := n.get(2)) is not None:
        x = b.binary("sub", x, b.cast(zero, np.float64))
    if (zero := n.get(3)) is not None:
        zero = b.cast(zero, np.float64)
        weight = b.binary("sub", weight, b.reshape(zero, (zero.size, *(1,) * (weight.rank - 1))))
    return b.cast(convolved(n, x, weight, None), np.int32)


def col2im(n: OnnxNode) -> GraphValue:
    """Columns added up into the padded image, whose border is cut off."""
    b, x = n.builder, n[0]
    image, kernel = n.known_ints(1, "image_shape") or (), n.known_ints(2, "block_shape") or ()
    rank = len(image)
    if rank not in (1, 2, 3):
        raise NotSupportedError(f"images of {rank} axes")
    pads = n.wholes("pads", None) or (0,) * (2 * rank)
    whole = tuple(d + p + q for d, p, q in zip(image, pads[:rank], pads[rank:], strict=True))
    out = b.op(
        "col2im",
        x,
        output_size=whole,
        kernel=kernel,
        stride=n.wholes("strides", None) or (1,) * rank,
        dilate=n.wholes("dilations", None) or (1,) * rank,
    )
    return padded(out, [(0, 0), (0, 0), *((-p, -q) for p, q in zip(pads[:rank], pads[rank:]))])


CONVERTERS: dict[str, Callable[[OnnxNode], Any]] = {
    "Col2Im": col2im,
    "Conv": conv,
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
}
