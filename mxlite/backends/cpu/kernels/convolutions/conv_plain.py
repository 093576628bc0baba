"""Convolution and its transpose, forward and backward, on arrays in the users' layout."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from .....core import config
from .....core.dtype import float32
from .....graph.ir import Shape
from .....graph.opdef import DType, Op
from .....ops.layout import ChannelsFirst, ChannelsLast, last, LayoutAttrs
from .....ops.nn.conv import bias_bytes, bias_gradient, Convolution, geometry
from .....ops.nn.conv_gradients import (
    ConvolutionDataGradient,
    ConvolutionWeightGradient,
    DeconvolutionDataGradient,
    DeconvolutionWeightGradient,
)
from .....ops.nn.conv_kernels import Geometry
from .....ops.nn.deconv import Deconvolution, geometry_of
from .....ops.vision.upsampling import as_deconvolution, UpSampling
from .... import base
from ...convolution.plain import PlainConvolution
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ...runtime.threads import num_threads
from ..generated import moves
from ..onednn import onednn_move

_STORED = (float32, np.dtype("float16"), np.dtype(ml_dtypes.bfloat16))


def mover(shape: Shape, dtype: DType, to_last: bool) -> base.ChosenKernel:
    """The kernel that moves the channels of (N, C, *S) to the end, or back."""
    op: type[Op] = ChannelsLast if to_last else ChannelsFirst
    ins, outs = (shape, last(shape)) if to_last else (last(shape), shape)
    r = base.Request(op, LayoutAttrs(), (ins,), (outs,), dtype, (dtype,))
    for module in (moves, onednn_move):
        for row in module.ROWS[op]:
            if (found := row(r)) is not None:
                return found

    def connect(xp: Any, a: Any, source: Any, *, out: Any, work: Any) -> Run:
        return partial(np.copyto, out, np.moveaxis(source, 1, -1) if to_last else np.moveaxis(source, -1, 1))

    return base.connected(connect, 0, "numpy")


def _plain(g: Geometry, dtype: DType, passes: frozenset[str], bias: bool) -> PlainConvolution | None:
    return _once(num_threads(), config.kernel_kinds(), g, dtype, passes, bias)


@lru_cache(maxsize=4096)
def _once(
    threads: int, kinds: frozenset[str], g: Geometry, dtype: DType, passes: frozenset[str], bias: bool
) -> PlainConvolution | None:
    try:
        return PlainConvolution(g, dtype, passes, bias, mover)
    except LookupError:
        return None


def _geometry(r: base.Request) -> Geometry | None:
    """The convolution, for Deconvolution the one whose transpose it is; None if there is no kernel."""
    if len(set(r.dtypes)) != 1 or r.dtypes[0] not in _STORED:
        return None
    if any(0 in s for s in (*r.inputs, *r.outputs)):
        return None
    op = r.op.forward_op or r.op
    # The gradients' operators have data, or an array like it, last.
    data = r.inputs[0] if op in (Convolution, Deconvolution) else r.inputs[-1]
    of = geometry if op in (Convolution, ConvolutionDataGradient, ConvolutionWeightGradient) else geometry_of
    return of(r.attrs, data, r.dtypes[0])


def convolution(r: base.Request) -> base.ChosenKernel | None:
    """Kernel of Convolution."""
    g = _geometry(r)
    c = g and _plain(g, r.dtypes[0], frozenset({"forward"}), not r.attrs.no_bias)
    if not c:
        return None

    def connect(xp: Any, a: Any, data: Any, weight: Any, bias: Any, *, out: Any, work: Any) -> Run:
        bound = c.bound(work)
        if out is not None:
            bound.forward(data, weight, bias, out)
        return bound.run()

    return base.connected(connect, c.nbytes, c.name)


def _passes(r: base.Request, by_data: str) -> frozenset[str]:
    """Passes that the requested gradients need; `by_data` is the pass that computes d_data."""
    return frozenset(p for p, name in ((by_data, "d_data"), ("by_weight", "d_weight")) if r.is_used(name))


def convolution_backward(r: base.Request) -> base.ChosenKernel | None:
    """The gradients of Convolution."""
    g = _geometry(r)
    passes = _passes(r, "by_data")
    # The bias gradient is computed with the weight gradient.
    bias = r.is_used("d_bias") and not r.attrs.no_bias and "by_weight" in passes
    c = g and passes and _plain(g, r.dtypes[0], passes, bias)
    if not c:
        return None
    spare = np.dtype(r.dtypes[0]).itemsize * c.g.f * bias  # scratch for the bias gradient if it is not read
    alone = bias_bytes(r.outputs[0], r.dtypes[0]) if r.is_used("d_bias") else 0

    def connect(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        weight: Any,
        *,
        d_data: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
    ) -> Run:
        unread = work[c.nbytes : c.nbytes + spare].view(r.dtypes[0])
        bound = c.bound(work[: c.nbytes])
        if d_weight is not None:
            bound.by_weight(d_out, data, d_weight, (unread if d_bias is None else d_bias) if bias else None)
        elif d_bias is not None:
            bound.calls.append(partial(bias_gradient, xp, d_out, d_bias, work))
        if d_data is not None:
            bound.by_data(d_out, weight, d_data)
        return bound.run()

    return base.connected(connect, max(c.nbytes + spare, alone), c.name)


def deconvolution(r: base.Request) -> base.ChosenKernel | None:
    """Kernel of Deconvolution."""
    g = _geometry(r)
    c = g and _plain(g, r.dtypes[0], frozenset({"by_data"}), False)
    if not c:
        return None

    def connect(xp: Any, a: Any, data: Any, weight: Any, bias: Any, *, out: Any, work: Any) -> Run:
        bound = c.bound(work)
        if out is not None:
            bound.by_data(data, weight, out)
            if bias is not None:
                spread = bias.reshape(-1, *(1,) * (out.ndim - 2))
                bound.calls.append(partial(np.add, out, spread, out=out))
        return bound.run()

    return base.connected(connect, c.nbytes, c.name)


def deconvolution_backward(r: base.Request) -> base.ChosenKernel | None:
    """The gradients of Deconvolution."""
    g = _geometry(r)
    passes = _passes(r, "forward")
    c = g and passes and _plain(g, r.dtypes[0], passes, False)
    if not c:
        return None
    alone = bias_bytes(r.outputs[0], r.dtypes[0]) if r.is_used("d_bias") and not r.attrs.no_bias else 0

    def connect(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        weight: Any,
        *,
        d_data: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
    ) -> Run:
        bound = c.bound(work[: c.nbytes])
        if d_weight is not None:
            bound.by_weight(data, d_out, d_weight, None)
        if d_data is not None:
            bound.forward(d_out, weight, None, d_data)
        if d_bias is not None:
            bound.calls.append(partial(bias_gradient, xp, d_out, d_bias, work))
        return bound.run()

    return base.connected(connect, max(c.nbytes, alone), c.name)


def gradient_in_data(r: base.Request) -> base.ChosenKernel | None:
    """Kernel of _convolution_d_data and _deconvolution_d_data."""
    g = _geometry(r)
    name = "by_data" if r.op is ConvolutionDataGradient else "forward"
    c = g and _plain(g, r.dtypes[0], frozenset({name}), False)
    if not c:
        return None

    def connect(xp: Any, a: Any, grad: Any, weight: Any, like: Any, *, out: Any, work: Any) -> Run:
        bound = c.bound(work)
        if out is None:
            return in_turn(())
        if name == "by_data":
            bound.by_data(grad, weight, out)
        else:
            bound.forward(grad, weight, None, out)
        return bound.run()

    return base.connected(connect, c.nbytes, c.name)


def gradient_in_weight(r: base.Request) -> base.ChosenKernel | None:
    """Kernel of _convolution_d_weight and _deconvolution_d_weight."""
    g = _geometry(r)
    c = g and _plain(g, r.dtypes[0], frozenset({"by_weight"}), False)
    if not c:
        return None

    def connect(xp: Any, a: Any, grad: Any, data: Any, *, out: Any, work: Any) -> Run:
        bound = c.bound(work)
        if out is not None:
            pair = (grad, data) if r.op is ConvolutionWeightGradient else (data, grad)
            bound.by_weight(*pair, out, None)
        return bound.run()

    return base.connected(connect, c.nbytes, c.name)


def upsampling(r: base.Request) -> base.ChosenKernel | None:
    """Kernel of UpSampling with sample_type 'bilinear', a Deconvolution of each channel."""
    if r.attrs.sample_type != "bilinear":
        return None
    attrs, backward = as_deconvolution(r.attrs), r.op.forward_op is not None
    op = Deconvolution.grad_op if backward else Deconvolution
    assert op is not None
    kernel = (deconvolution_backward if backward else deconvolution)(replace(r, op=op, attrs=attrs))
    if kernel is None:
        return None

    def connect(xp: Any, a: Any, *args: Any, out: Any, work: Any) -> Run:
        run: Run = kernel.link(kernel.run, xp, attrs, *args, None, out=out, work=work)
        return run

    def gradient(xp: Any, a: Any, d_out: Any, args: Any, *, d_args: Any, work: Any) -> Run:
        made = dict(d_data=d_args[0], d_weight=d_args[1], d_bias=None)
        run: Run = kernel.link(kernel.run, xp, attrs, d_out, *args, **made, work=work)
        return run

    return base.connected(gradient if backward else connect, kernel.workspace, kernel.name)


SERVES = ("ops.nn.conv", "ops.nn.conv_gradients", "ops.nn.deconv", "ops.vision.upsampling")
ROWS = kernel_rows(
    BOTH,
    {
        UpSampling: upsampling,
        UpSampling.grad_op: upsampling,
        Convolution: convolution,
        Convolution.grad_op: convolution_backward,
        Deconvolution: deconvolution,
        Deconvolution.grad_op: deconvolution_backward,
        ConvolutionDataGradient: gradient_in_data,
        DeconvolutionDataGradient: gradient_in_data,
        ConvolutionWeightGradient: gradient_in_weight,
        DeconvolutionWeightGradient: gradient_in_weight,
    },
)
