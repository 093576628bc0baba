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
from .....ops.nn.conv_gradients import ConvolutionDataGradient, ConvolutionWeightGradient
from .....ops.nn.conv_kernels import Geometry
from .....ops.nn.conv_roles import computed, ROLES
from .....ops.nn.deconv import Deconvolution, geometry_of
from .....ops.vision.upsampling import as_deconvolution, UpSampling
from .... import base
from ...convolution.plain import PlainConvolution
from ...kernel_row import BOTH, kernel_rows
from ...onednn import Run
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


_PASSES = {"w": "by_weight", "x": "by_data", "y": "forward"}
"""The role of an array -> the pass that computes it, in the order in which they run."""


def linear(r: base.Request) -> base.ChosenKernel | None:
    """Kernel of an operator that computes some of the arrays of a convolution from the others."""
    arrays = computed(r.op)
    makes = {role: n for role in _PASSES for n, names in arrays.items() if names[role] == n}
    reads = {role: n for names in arrays.values() for role, n in names.items() if n not in arrays}
    g, dtype, needs = _geometry(r), r.dtypes[0], r.op.signature.needs
    passes = frozenset(_PASSES[role] for role, name in makes.items() if r.is_used(name))
    # A convolution adds its bias, and computes the gradient in it with that in the weight.
    sums_bias = r.is_used("d_bias") and not r.attrs.no_bias
    if r.op is Convolution:
        bias = not r.attrs.no_bias
    else:
        bias = r.op is Convolution.grad_op and sums_bias and "by_weight" in passes
    c = g and passes and _plain(g, dtype, passes, bias)
    if not c:
        return None
    # Scratch for the bias gradient if it is not read, and for that without a gradient in the weight.
    spare = np.dtype(dtype).itemsize * c.g.f * bias if "by_weight" in passes else 0
    alone = bias_bytes(r.outputs[0], dtype) if sums_bias else 0

    def connect(xp: Any, a: Any, *given: Any, work: Any, **made: Any) -> Run:
        have = dict(zip(needs, given))
        x, w, y = (have.get(reads.get(role, "")) for role in "xwy")
        added, d_bias = have.get("bias"), made.get("d_bias")
        bound = c.bound(work[: c.nbytes])
        for role, target in ((role, made[name]) for role, name in makes.items()):
            if target is None:
                continue
            if role == "w":
                unread = work[c.nbytes : c.nbytes + spare].view(dtype)
                bound.by_weight(y, x, target, (unread if d_bias is None else d_bias) if bias else None)
                d_bias = None if bias else d_bias
            elif role == "x":
                bound.by_data(y, w, target)
                if added is not None:
                    spread = added.reshape(-1, *(1,) * (target.ndim - 2))
                    bound.calls.append(partial(np.add, target, spread, out=target))
            else:
                bound.forward(x, w, added, target)
        if d_bias is not None:
            bound.calls.append(partial(bias_gradient, xp, have["d_out"], d_bias, work))
        return bound.run()

    return base.connected(connect, max(c.nbytes + spare, alone), c.name, like=r.op.forward)


def upsampling(r: base.Request) -> base.ChosenKernel | None:
    """Kernel of UpSampling with sample_type 'bilinear', a Deconvolution of each channel."""
    if r.attrs.sample_type != "bilinear":
        return None
    attrs, backward = as_deconvolution(r.attrs), r.op.forward_op is not None
    op = Deconvolution.grad_op if backward else Deconvolution
    assert op is not None
    kernel = linear(replace(r, op=op, attrs=attrs))
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
_LINEAR = (*ROLES, Convolution.grad_op, Deconvolution.grad_op)
ROWS = kernel_rows(
    BOTH, {UpSampling: upsampling, UpSampling.grad_op: upsampling, **dict.fromkeys(_LINEAR, linear)}
)
