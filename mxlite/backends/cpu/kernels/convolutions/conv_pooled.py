"""Convolution and max pooling, channels last, some samples at a time: a region of tiles of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .....core.dtype import float32
from .....graph.opdef import DType
from .....ops.elementwise.cast import Cast
from .....ops.nn.conv_channels_last import ConvolutionChannelsLast
from .....ops.nn.pool_channels_last import PoolingChannelsLast
from .....ops.nn.pooled_convolution import made_shape, PooledConvolution, pooling
from .... import base
from ....call import in_turn
from ....fused.tile_binding import tile_calls
from ....fused.tile_builder import Part, TileBuilder
from ....fused.tile_program import reference_kernels, TileProgram
from ....fused.tiled import TileArray, TileLoop
from ...kernel_row import BOTH, kernel_rows
from ..generated.compiled_pool import ROWS as COMPILED_POOL
from ..generated.computed import ROWS as COMPUTED
from ..onednn.onednn_pool import ROWS as ONEDNN_POOL
from .conv import ROWS as CONVOLUTIONS

_TABLES = (CONVOLUTIONS, COMPILED_POOL, ONEDNN_POOL, COMPUTED)
_SLICED, _WHOLE = (0,), (None,)
_OPS = (
    ConvolutionChannelsLast,
    ConvolutionChannelsLast.grad_op,
    PoolingChannelsLast,
    PoolingChannelsLast.grad_op,
)


def _kernel(request: base.Request) -> base.ChosenKernel | None:
    found = (base.tuned(table, request) for table in _TABLES)
    return next((k for k in found if k is not None), None) or reference_kernels(request)


def forward(r: base.Request) -> base.ChosenKernel | None:
    """The maxima and their positions."""
    region = _Region(r)
    reads = {n: region.add(n) for n in r.op.input_names(r.attrs)}
    made = region.builder.call(ConvolutionChannelsLast, r.attrs, reads, {"out": region.made})["out"]
    out, index = (TileArray(s, t, _SLICED) for s, t in zip(r.outputs, _pooled_types(r)))
    makes = {n: x for n, x in (("out", out), ("index", index)) if r.is_used(n)}
    results = region.builder.call(PoolingChannelsLast, pooling(r.attrs), {"data": made}, makes)
    return region.kernel(results)


def backward(r: base.Request) -> base.ChosenKernel | None:
    """The gradients in data, weight and bias that are requested. Sums are float32, and rounded once."""
    region, narrow = _Region(r), r.dtype != float32
    conv, pool = ConvolutionChannelsLast.grad_op, PoolingChannelsLast.grad_op
    assert conv is not None and pool is not None
    reads = {n: region.add(n) for n in ("d_out", "index")}
    made = region.builder.call(pool, pooling(r.attrs), reads, {"d_data": region.made})["d_data"]
    results: dict[str, Part] = {}
    names = [n for n in ("d_weight", "d_bias") if r.is_used(n)]
    if names:
        shapes = {"d_weight": r.inputs[1], "d_bias": r.inputs[1][:1]}
        sums = {n: TileArray(shapes[n], float32, _WHOLE) for n in names}
        a = replace(r.attrs, no_bias="d_bias" not in names)
        weight = {"weight": TileArray(shapes["d_weight"], r.dtype, _WHOLE)}
        reads = {"d_out": made, "data": region.add("data")}
        totals = region.builder.call(conv, a, reads, sums, absent=weight)
        results |= {n: totals[n] for n in names}
    if r.is_used("d_data"):
        a, data = replace(r.attrs, no_bias=True), TileArray(r.inputs[0], r.dtype, _SLICED)
        reads = {"d_out": made, "weight": region.add("weight")}
        results |= region.builder.call(conv, a, reads, {"d_data": data})
    for name in names if narrow else ():
        rounded = TileArray(shapes[name], r.dtype, _WHOLE)
        to = Cast.Attrs(dtype=r.dtype.name)
        results[name] = region.builder.call(Cast, to, {"data": results[name]}, {"out": rounded}, level=0)[
            "out"
        ]
    return region.kernel(results)


def _pooled_types(r: base.Request) -> Sequence[DType]:
    return PoolingChannelsLast.infer_type(pooling(r.attrs), r.dtype)[1]  # type: ignore[return-value]


class _Region:
    """The region of a request: its inputs by name, and the convolution's result for a tile."""

    def __init__(self, r: base.Request) -> None:
        self.r = r
        count, each = r.inputs[0][0], r.attrs.samples
        self.builder = TileBuilder((TileLoop(count, min(each, count)),))
        whole = replace(r.attrs, samples=max(count, 1))
        self.made = TileArray(made_shape(whole, r.inputs[0]), r.dtype, _SLICED)
        self.inputs: dict[str, Part] = {}

    def add(self, name: str) -> Part:
        """Add an input of the operator."""
        if name not in self.inputs:
            shapes = dict(zip(("data", "weight", "bias"), self.r.inputs))
            shapes |= {"d_out": self.r.outputs[0], "index": self.r.outputs[1]}
            dtype = _pooled_types(self.r)[1] if name == "index" else self.r.dtype
            axes = _WHOLE if name in ("weight", "bias") else _SLICED
            self.inputs[name] = self.builder.add(TileArray(shapes[name], dtype, axes))
        return self.inputs[name]

    def kernel(self, results: dict[str, Part]) -> base.ChosenKernel | None:
        """The kernel that computes these results by name; None without good kernels for tiles."""
        r = self.r
        if len(set(r.dtypes)) != 1 or any(0 in s for s in (*r.inputs, *r.outputs)) or not results:
            return None
        program = TileProgram(self.builder.attrs(list(results.values())), _kernel)
        if not program.is_tuned(_OPS):
            return None
        names, needs = tuple(self.inputs), r.op.signature.needs

        def connect(xp: Any, a: Any, *arrays: Any, work: Any, **made: Any) -> base.Run:
            given = dict(zip(needs, arrays))
            made.pop("shapes", None)
            arrays = [given[n] for n in names], [made[n] for n in results]
            return in_turn(tile_calls(program, xp, *arrays, work))

        return base.connected(connect, program.nbytes, program.name, like=r.op.forward)


SERVES = ("ops.nn.pooled_convolution",)
ROWS = kernel_rows(BOTH, {PooledConvolution: forward, PooledConvolution.grad_op: backward})
