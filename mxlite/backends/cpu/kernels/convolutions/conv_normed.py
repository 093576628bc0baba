"""Convolutions with a norm as prologue, channels last."""

from __future__ import annotations

from typing import Any

from .....core.dtype import float32
from .....graph.grouped import grouped
from .....graph.opdef import DType
from .....ops.layout import first
from .....ops.nn.conv import geometry
from .....ops.nn.conv_kernels import Geometry
from .....ops.nn.normed_convolution import NormedConvolution, NormedConvolutionWeightGradient
from .....ops.norm.norm_arrays import PrologueArrays
from .... import base
from ... import convolution
from ...compiled import storable, usable
from ...kernel_row import BOTH, kernel_rows
from ...onednn import Run


def forward(r: base.Request) -> base.ChosenKernel | None:
    """The output."""
    found = _geometry(r, r.inputs[0], r.outputs[0])
    if found is None:
        return None
    g, weight = found
    way = convolution.normed_forward(g, weight, not r.attrs.no_bias, r.attrs.relu)
    if way is None:
        return None

    def connect(
        xp: Any, a: Any, data: Any, weight: Any, bias: Any, factor: Any, shift: Any, *, out: Any, work: Any
    ) -> Run:
        run: Run = way.connect(data, weight, bias, None, out, work, line=(factor, shift))
        return run

    return base.connected(connect, way.nbytes, way.name, bits=convolution.bits_of(way))


def by_weight(r: base.Request) -> base.ChosenKernel | None:
    """The gradients in weight and bias."""
    found = _geometry(r, r.inputs[1], r.inputs[0])
    if found is None or not r.is_used("d_weight"):
        return None
    g, weight = found
    way = convolution.normed_by_weight(g, weight, r.is_used("d_bias"), r.attrs.relu, r.attrs.plus)
    if way is None:
        return None

    @grouped
    def connect(
        xp: Any, a: Any, grad: Any, data: Any, given: PrologueArrays, *, d_weight: Any, d_bias: Any, work: Any
    ) -> Run:
        run: Run = way.connect(grad, data, d_weight, d_bias, work, given)
        return run

    return base.connected(connect, way.nbytes, way.name, bits=convolution.bits_of(way))


def _geometry(r: base.Request, data: Any, out: Any) -> tuple[Geometry, DType] | None:
    """The convolution and the type of its weight, which may be wider, if there may be a kernel: for floats,
    and not empty.
    """
    named = dict(zip(r.op.input_names(r.attrs), r.dtypes))
    kinds = {k for n, k in named.items() if not n.endswith(("factor", "shift", "weight", "bias"))}
    weights = {k for n, k in named.items() if n in ("weight", "bias")} or {r.dtypes[0]}
    if getattr(r.attrs, "wide", False):
        weights = {float32}
    if len(kinds) != 1 or len(weights) != 1 or not weights <= {r.dtypes[0], float32}:
        return None
    if not (usable() and r.dtypes[0].name in storable()) or 0 in data or 0 in out:
        return None
    return geometry(r.attrs, first(data), r.dtypes[0]), weights.pop()


SERVES = ("ops.nn.normed_convolution",)
ROWS = kernel_rows(BOTH, {NormedConvolution: forward, NormedConvolutionWeightGradient: by_weight})
