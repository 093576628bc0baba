"""Pooling forward and backward, channels first or last.

A thread computes one element, or with the channels last a pack of them: each window is read once forward, and
the gradient gathers what reaches an element, without atomic operations. Neighbours share most of what they
read, so that memory is read about once. out (and an index of one byte, for max) is written once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

from .....core.dtype import as_dtype
from .....graph.ir import Shape
from .....ops.nn.pool import Pooling
from .....ops.nn.pool_channels_last import ChosenPoolingChannelsLast, PoolingChannelsLast
from .....ops.nn.pool_gradients import ChosenPooling, MaxPoolingDataGradient, PoolingDataGradient
from .....ops.nn.pool_kernels import index_type, windows
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, wide
from ...compiler.source import assembled, KernelSource, NAMES, typedefs
from ...handwritten.each import blocks, launch, THREADS
from ...rows import answer, table
from ...runtime.device import Device, nothing, Run

KINDS = {"max": "MAX", "avg": "AVG", "sum": "SUM", "lp": "LP"}
LONGEST = 2**30  # of an axis: positions are counted in 32 bits


def source(dtype: str, index: str, kind: str, pack: int, aligned: bool) -> KernelSource:
    """Kernels "pool", "spread" and "choose"; see cuda/pool.cuh."""
    types = typedefs(T=NAMES[dtype], I=NAMES[index], A=wide(dtype))
    types += f"#define KIND {KINDS[kind]}\n#define V {pack}\n#define ALIGNED {int(aligned)}\n"
    files = ("pool", "pool_choose") if kind == "max" else ("pool",)
    return assembled("types", "index", "math", types, *files)


class PoolingLaunches:
    """The launches of one call's shapes and type."""

    def __init__(self, device: Device, a: Any, data: Shape, last: bool, dtype: str) -> None:
        self.device, self.a, self.dtype = device, a, dtype
        self.windows = w = windows(a, data, last)
        self.index = str(index_type(a)) if a.pool_type == "max" else "uint8"
        item = as_dtype(dtype).itemsize
        self.pack = 16 // item
        while w.channels % self.pack:
            self.pack //= 2
        self.sizes = (item * self.pack, index_type(a).itemsize * self.pack)
        rank = 3 - len(w.size)
        axes = zip(w.size, w.kernel, w.stride, w.pad, w.out)
        self.axes = [(1, 1, 1, 0, 1)] * rank + list(axes)

    @property
    def fits(self) -> bool:
        return all(abs(x) <= LONGEST for axis in self.axes for x in axis)

    def pool(self, data: Any, out: Any, index: Any) -> Run:
        return self._launch("pool", (data, out, index), out if out is not None else index, index)

    def spread(self, d_out: Any, data: Any, out: Any, index: Any, d_data: Any) -> Run:
        return self._launch("spread", (d_out, data, out, index, d_data), d_data, index)

    def choose(self, data: Any, index: Any, out: Any) -> Run:
        return self._launch("choose", (data, index, out), out, index)

    def _launch(self, name: str, arrays: tuple[Any, ...], each: Any, index: Any) -> Run:
        """A launch with a thread for every pack of `each`."""
        if each is None or each.size == 0:
            return nothing
        device = self.device
        aligned = all(x is None or device.address(x) % self.sizes[x is index] == 0 for x in arrays)
        total = each.size // self.pack
        values = [ctypes.c_int64(total), self.windows.channels // self.pack]
        values += [x for axis in self.axes for x in axis]
        values += [int(self.a.count_include_pad is not False), int(self.a.p_value or 1)]
        text = source(self.dtype, self.index, self.a.pool_type, self.pack, aligned)
        return launch(device, text, name, blocks(device, total, 32), THREADS, *arrays, *values)


def _row(connect: Callable[..., Run], last: bool = False, of_output: bool = False) -> Any:
    """The row of `connect(pool, <as in answer>)`; `of_output`: the output has the shape of the data."""

    def answered(device: Device, r: Request) -> ChosenKernel | None:
        if not floating(r.dtype):
            return None
        data = r.outputs[0] if of_output else r.inputs[0]
        pool = PoolingLaunches(device, r.attrs, data, last, str(r.dtype))
        name = f"cuda {r.attrs.pool_type} pooling"
        return answer(r, partial(connect, pool), 0, name) if pool.fits else None

    return answered


def _pool(p: PoolingLaunches, a: Any, data: Any, *, out: Any, index: Any = None, work: Any) -> Run:
    return p.pool(data, out, index)


def _spread(
    p: PoolingLaunches, a: Any, d_out: Any, data: Any, out: Any, index: Any, *, d_data: Any, work: Any
) -> Run:
    return p.spread(d_out, data, out, index, d_data)


def _linear_spread(p: PoolingLaunches, a: Any, grad: Any, like: Any, *, out: Any, work: Any) -> Run:
    return p.spread(grad, None, None, None, out)


def _linear_pool(p: PoolingLaunches, a: Any, d_out: Any, *, d_grad: Any, work: Any) -> Run:
    return p.pool(d_out, d_grad, None)


def _max_spread(p: PoolingLaunches, a: Any, grad: Any, like: Any, index: Any, *, out: Any, work: Any) -> Run:
    return p.spread(grad, None, None, index, out)


def _choose(p: PoolingLaunches, a: Any, data: Any, index: Any, *, work: Any, **made: Any) -> Run:
    (out,) = made.values()
    return p.choose(data, index, out)


def _choose_spread(p: PoolingLaunches, a: Any, d_out: Any, index: Any, *, d_data: Any, work: Any) -> Run:
    return p.spread(d_out, None, None, index, d_data)


_of_output = partial(_row, of_output=True)

rows = table(
    (Pooling, _row(_pool), _row(_spread)),
    (PoolingChannelsLast, _row(_pool, last=True), _row(_spread, last=True)),
    (PoolingDataGradient, _of_output(_linear_spread), _of_output(_linear_pool)),
    (MaxPoolingDataGradient, _of_output(_max_spread), _of_output(_choose)),
    (ChosenPooling, _row(_choose), _row(_choose_spread)),
    (ChosenPoolingChannelsLast, _row(_choose, last=True), None),
)
