"""Layers: convolution, pooling, normalization, affine maps, embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..exported_node import ExportedNode
from ..free_axes import FreeLength


def _spatial(n: ExportedNode, given: tuple[int, ...], usual: int) -> list[int]:
    """One number for each axis of the kernel."""
    return list(given) or [usual] * len(n.attrs.kernel)


def _is_channels_first(layout: str | None) -> bool:
    return layout in (None, "NCW", "NCHW", "NCDHW")


def convolution(n: ExportedNode) -> str:
    a = n.attrs
    n.require(_is_channels_first(a.layout), f"the layout {a.layout}")
    pads = _spatial(n, a.pad, 0)
    return n.writer.add(
        "Conv", *n.inputs, kernel_shape=list(a.kernel), strides=_spatial(n, a.stride, 1), pads=pads + pads,
        dilations=_spatial(n, a.dilate, 1), group=a.num_group,
    )  # fmt: skip


def deconvolution(n: ExportedNode) -> str:
    a = n.attrs
    n.require(_is_channels_first(a.layout) and not a.target_shape, "a layout, or target_shape,")
    pads = _spatial(n, a.pad, 0)
    return n.writer.add(
        "ConvTranspose", *n.inputs, kernel_shape=list(a.kernel), strides=_spatial(n, a.stride, 1),
        pads=pads + pads, dilations=_spatial(n, a.dilate, 1), group=a.num_group,
        output_padding=_spatial(n, a.adj, 0),
    )  # fmt: skip


def fully_connected(n: ExportedNode) -> str:
    """Gemm of rows; a product and a sum where the axes before the last stay."""
    w = n.writer
    if n.attrs.flatten or len(n.shape()) == 2:
        rows = n[0] if len(n.shape()) == 2 else w.add("Flatten", n[0])
        return w.add("Gemm", rows, *n.inputs[1:], transB=1)
    out = w.add("MatMul", n[0], w.add("Transpose", n[1], perm=[1, 0]))
    return out if len(n) == 2 else w.add("Add", out, n[2])


def pooling(n: ExportedNode) -> str:
    a, rank = n.attrs, len(n.shape()) - 2
    n.require(_is_channels_first(a.layout) and a.pool_type in ("max", "avg"), f"{a.pool_type!r} pooling")
    kind = {"max": "Max", "avg": "Average"}[a.pool_type]
    if a.global_pool:
        return n.writer.add(f"Global{kind}Pool", n[0])
    n.require(a.pooling_convention != "same", "the convention 'same'")
    pads = list(a.pad) or [0] * rank
    stride, ends = list(a.stride) or [1] * rank, list(pads)
    how = dict(count_include_pad=1) if a.pool_type == "avg" and a.count_include_pad is not False else {}
    if a.pooling_convention == "full":  # as much padding behind as the last window needs
        for i, (size, out) in enumerate(zip(n.shape()[2:], n.out_shape()[2:])):
            if isinstance(size, FreeLength) or isinstance(out, FreeLength):
                # By the file's rule, which drops windows that begin behind the data; here none can.
                n.require(stride[i] + pads[i] <= a.kernel[i], "a window that may begin behind a free axis")
                how["ceil_mode"] = 1
            else:
                ends[i] = max(pads[i], (out - 1) * stride[i] + a.kernel[i] - size - pads[i])
        n.require(
            a.pool_type == "max" or (ends == pads and "ceil_mode" not in how),
            "an average over windows beyond the data",
        )
    return n.writer.add(
        f"{kind}Pool", n[0], kernel_shape=list(a.kernel), strides=stride, pads=pads + ends, **how
    )


def batch_norm(n: ExportedNode) -> str:
    """With the moving averages; a fixed scale is written as ones."""
    n.require(n.attrs.axis == 1 and not n.attrs.output_mean_var, "another axis, or the batch's statistics,")
    data, gamma, *rest = n.inputs
    if n.attrs.fix_gamma:
        gamma = n.writer.constant(np.ones(n.shape(1), n.dtype(1)))
    return n.writer.add("BatchNormalization", data, gamma, *rest, epsilon=float(n.attrs.eps))


def layer_norm(n: ExportedNode) -> str:
    rank = len(n.shape())
    n.require(n.attrs.axis in (-1, rank - 1) and not n.attrs.output_mean_var, "an axis that is not the last")
    return n.writer.add("LayerNormalization", *n.inputs, axis=-1, epsilon=float(n.attrs.eps))


def instance_norm(n: ExportedNode) -> str:
    return n.writer.add("InstanceNormalization", *n.inputs, epsilon=float(n.attrs.eps))


def embedding(n: ExportedNode) -> str:
    """Rows of the table; indices out of range take the nearest row, as MXNet's do."""
    w, last = n.writer, n.attrs.input_dim - 1
    places = n[0] if n.dtype() == np.int64 else w.cast(n[0], np.int64)
    places = w.add("Clip", places, w.constant(0, np.int64), w.constant(last, np.int64))
    return w.add("Gather", n[1], places, axis=0)


def flatten(n: ExportedNode) -> str:
    return n.reshaped(n[0], n.shape(), n.out_shape())


WRITERS: dict[str, Callable[[ExportedNode], Any]] = {
    "BatchNorm": batch_norm,
    "Convolution": convolution,
    "Deconvolution": deconvolution,
    "Embedding": embedding,
    "Flatten": flatten,
    "FullyConnected": fully_connected,
    "InstanceNorm": instance_norm,
    "LayerNorm": layer_norm,
    "Pooling": pooling,
}
