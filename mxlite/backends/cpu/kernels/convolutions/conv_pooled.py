"""Convolution and max pooling, channels last, a band of samples at a time: kernels of both in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from .....core.dtype import float32
from .....graph.ir import Shape
from .....ops.layout import first
from .....ops.nn.conv import geometry
from .....ops.nn.pool_channels_last import PoolingChannelsLast
from .....ops.nn.pooled_convolution import bands, made_shape, PooledConvolution, pooling
from .....ops.scratch import carve, Piece, scratch_bytes
from .... import base
from ... import convolution
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ..generated import compiled_pool
from ..onednn import onednn_pool

_byte = np.dtype("uint8")
_STORED = (float32, np.dtype("float16"), np.dtype(ml_dtypes.bfloat16))


@dataclass(frozen=True)
class _BandForward:
    """Kernels of a forward band: the convolution's implementation and the kernel of pooling."""

    way: Any
    pool: base.ChosenKernel

    @property
    def nbytes(self) -> int:
        return max(self.way.nbytes, self.pool.workspace)


@dataclass(frozen=True)
class _BandBackward:
    """Kernels of a backward band: that of pooling, and implementations of the requested gradients.

    by_weight: one for the first band, and one for later ones, which are added to it.
    """

    spread: base.ChosenKernel
    by_weight: tuple[Any, Any] | None
    by_data: Any | None

    @property
    def ways(self) -> list[Any]:
        return [*(self.by_weight or ()), *([] if self.by_data is None else [self.by_data])]

    @property
    def nbytes(self) -> int:
        return max(self.spread.workspace, *(w.nbytes for w in self.ways))


def forward(r: base.Request) -> base.ChosenKernel | None:
    """The maxima and their positions."""
    kinds = _kinds(r, lambda samples: _forward_of(r, samples))
    if kinds is None:
        return None
    made, pool = made_shape(r.attrs, r.inputs[0]), pooling(r.attrs)
    pieces: list[Piece] = [(made, r.dtype), ((max(k.nbytes for k in kinds.values()),), _byte)]

    def connect(
        xp: Any, a: Any, data: Any, weight: Any, bias: Any, *, out: Any, index: Any, work: Any
    ) -> Run:
        whole, scratch = carve(work, pieces)
        calls: list[Run] = []
        for part, kind in _parts(r, kinds):
            band = whole[: part.stop - part.start]
            calls.append(kind.way.connect(data[part], weight, bias, None, band, scratch))
            places = {n: None if x is None else x[part] for n, x in (("out", out), ("index", index))}
            calls.append(_linked(kind.pool, pool, band, **places, work=scratch))
        return in_turn(calls)

    kind = kinds[made[0]]
    name = f"{kind.way.name}, {kind.pool.name}, {_count(made[0])}"
    return base.connected(connect, scratch_bytes(pieces), name)


def backward(r: base.Request) -> base.ChosenKernel | None:
    """The gradients in data, weight and bias that are requested."""
    kinds = _kinds(r, lambda samples: _backward_of(r, samples))
    if kinds is None:
        return None
    made, pool = made_shape(r.attrs, r.inputs[0]), pooling(r.attrs)
    bias = _wants_bias(r)
    by_weight = r.is_used("d_weight") or bias
    # Sums are float32; the weight gradient needs a buffer even if only the bias gradient is read.
    narrow = r.dtype != float32
    vectors = r.inputs[1], (r.inputs[1][0],)
    held = by_weight and (narrow or not r.is_used("d_weight")), bias and narrow
    pieces: list[Piece] = [
        (made, r.dtype),
        *((shape if is_held else (0,), float32) for shape, is_held in zip(vectors, held)),
        ((max(k.nbytes for k in kinds.values()),), _byte),
    ]

    def connect(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        weight: Any,
        index: Any,
        *,
        d_data: Any,
        d_weight: Any,
        d_bias: Any,
        work: Any,
    ) -> Run:
        whole, *sums, scratch = carve(work, pieces)
        totals = [x if is_held else y for x, y, is_held in zip(sums, (d_weight, d_bias), held)]
        calls: list[Run] = []
        for part, kind in _parts(r, kinds):
            band = whole[: part.stop - part.start]
            calls.append(_linked(kind.spread, pool, d_out[part], index[part], d_data=band, work=scratch))
            if kind.by_weight is not None and (d_weight is not None or d_bias is not None):
                way = kind.by_weight[part.start > 0]
                calls.append(way.connect(band, data[part], *totals, scratch))
            if kind.by_data is not None and d_data is not None:
                calls.append(kind.by_data.connect(band, weight, d_data[part], scratch))
        for total, wanted, is_held in zip(totals, (d_weight, d_bias), held):
            if is_held and wanted is not None:
                calls.append(partial(np.copyto, wanted, total, casting="unsafe"))
        return in_turn(calls)

    kind = kinds[made[0]]
    names = [*(w.name for w in kind.ways), kind.spread.name, _count(made[0])]
    return base.connected(connect, scratch_bytes(pieces), ", ".join(dict.fromkeys(names)))


def _kinds(r: base.Request, make: Callable[[int], Any]) -> dict[int, Any] | None:
    """Kernels of a band, by its number of samples; None if there is no kernel, as for types other than
    floats, or empty arrays.
    """
    if len(set(r.dtypes)) != 1 or r.dtype not in _STORED or any(0 in s for s in (*r.inputs, *r.outputs)):
        return None
    made = {}
    for part in bands(r.attrs, r.inputs[0][0]):
        samples = part.stop - part.start
        if samples not in made:
            made[samples] = make(samples)
    return None if None in made.values() else made


def _parts(r: base.Request, kinds: dict[int, Any]) -> Iterator[tuple[slice, Any]]:
    return ((part, kinds[part.stop - part.start]) for part in bands(r.attrs, r.inputs[0][0]))


def _geometry(r: base.Request, samples: int) -> Any:
    return geometry(r.attrs, first((samples, *r.inputs[0][1:])), r.dtype)


def _forward_of(r: base.Request, samples: int) -> _BandForward | None:
    bias = not r.attrs.no_bias
    way = convolution.forward(_geometry(r, samples), r.dtype, bias, False, False, r.train)
    used = frozenset(n for n in ("data", "out", "index") if n == "data" or r.is_used(n))
    pool = _pool(r, samples, used)
    return None if way is None or pool is None else _BandForward(way, pool)


def _backward_of(r: base.Request, samples: int) -> _BandBackward | None:
    g = _geometry(r, samples)
    bias = _wants_bias(r)
    by_weight = by_data = None
    if r.is_used("d_weight") or bias:
        by_weight = tuple(convolution.by_weight(g, float32, bias, adds) for adds in (False, True))
    if r.is_used("d_data"):
        by_data = convolution.by_data(g, r.dtype)
        if by_data is None:
            return None
    spread = _pool(r, samples, None)
    if spread is None or None in (by_weight or ()):
        return None
    return _BandBackward(spread, by_weight, by_data)


def _wants_bias(r: base.Request) -> bool:
    return r.is_used("d_bias") and not r.attrs.no_bias


def _pool(r: base.Request, samples: int, used: frozenset[str] | None) -> base.ChosenKernel | None:
    """The kernel of pooling, forward or backward like `r`."""
    op = PoolingChannelsLast
    made: Shape = made_shape(replace(r.attrs, samples=samples), r.inputs[0])
    attrs = pooling(r.attrs)
    outs = op.infer_shape(attrs, made)[1]
    asked = base.Request(
        op if r.op is PooledConvolution else op.grad_op,  # type: ignore[arg-type]
        attrs, (made,), outs, r.dtype, (r.dtype,), used, r.train,
    )  # fmt: skip
    for module in (compiled_pool, onednn_pool):
        for row in module.ROWS[asked.op]:
            if (found := row(asked)) is not None:
                return found
    return None


def _linked(kernel: base.ChosenKernel, attrs: Any, *inputs: Any, work: Any, **outputs: Any) -> Run:
    """The call of a kernel of pooling."""
    given = {"work": work[: kernel.workspace]} if "work" in kernel.signature.services else {}
    return kernel.link(kernel.run, np, attrs, *inputs, **outputs, **given)


def _count(samples: int) -> str:
    return f"{samples} sample{'s' * (samples > 1)} at a time"


ROWS = kernel_rows(BOTH, {PooledConvolution: forward, PooledConvolution.grad_op: backward})
