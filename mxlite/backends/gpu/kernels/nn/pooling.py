"""Pooling forward and backward, channels first or last.

A thread computes one element, or with the channels last a pack of them: each window is read once forward, and
the gradient gathers what reaches an element, without atomic operations. Neighbours share most of what they
read, so that memory is read about once. out (and an index of one byte, for max) is written once.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops.nn.pool import Pooling
from .....ops.nn.pool_channels_last import ChosenPoolingChannelsLast, PoolingChannelsLast
from .....ops.nn.pool_gradients import ChosenPooling, MaxPoolingDataGradient, PoolingDataGradient
from .....ops.nn.pool_kernels import index_type, windows
from ....base import ChosenKernel, connected, Request
from ...compiler.source import KernelSource, NAMES, shared
from ...runtime.device import Arguments, Device, nothing, pointer, Run

THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 32
FLOATS = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
KINDS = {"max": "MAX", "avg": "AVG", "sum": "SUM", "lp": "LP"}
LONGEST = 2**30  # of an axis: positions are counted in 32 bits


@functools.lru_cache(maxsize=256)
def source(dtype: str, index: str, kind: str, pack: int, aligned: bool) -> KernelSource:
    """Kernels "pool", "spread" and "choose"; see cuda/pool.cuh."""
    types = (
        f"typedef {NAMES[dtype]} T;\ntypedef {NAMES[index]} I;\n"
        f"typedef {'double' if dtype == 'float64' else 'float'} A;\n"
        f"#define KIND {KINDS[kind]}\n#define V {pack}\n#define ALIGNED {int(aligned)}\n"
    )
    files = ("pool", "pool_choose") if kind == "max" else ("pool",)
    return KernelSource(shared("types", "index", "math") + types + shared(*files))


class PoolingLaunches:
    """The launches of one call's shapes and type."""

    def __init__(self, device: Device, a: Any, data: Shape, last: bool, dtype: str) -> None:
        self.device, self.a, self.dtype = device, a, dtype
        self.windows = w = windows(a, data, last)
        self.index = str(index_type(a)) if a.pool_type == "max" else "uint8"
        item = FLOATS[dtype]
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
        if out is None and index is None:
            return nothing
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
        addresses = [0 if x is None else device.address(x) for x in arrays]
        aligned = all(a % self.sizes[x is index and x is not None] == 0 for a, x in zip(addresses, arrays))
        total = each.size // self.pack
        values: list[Any] = [pointer(a) for a in addresses]
        values += [ctypes.c_int64(total), ctypes.c_int(self.windows.channels // self.pack)]
        values += [ctypes.c_int(x) for axis in self.axes for x in axis]
        values += [ctypes.c_int(self.a.count_include_pad is not False), ctypes.c_int(self.a.p_value or 1)]
        text = source(self.dtype, self.index, self.a.pool_type, self.pack, aligned)
        blocks = min(-(-total // THREADS), device.multiprocessors * BLOCKS_PER_MULTIPROCESSOR)
        function = device.function(text, name)
        return device.launch(function, (blocks, 1, 1), (THREADS, 1, 1), 0, Arguments(values))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(last: bool, data: Callable[[Request], Shape], connect: Callable[[PoolingLaunches], Any]) -> Any:
        def choose(r: Request) -> ChosenKernel | None:
            if str(r.dtype) not in FLOATS:
                return None
            pool = PoolingLaunches(device, r.attrs, data(r), last, str(r.dtype))
            if not pool.fits:
                return None
            return connected(connect(pool), 0, f"cuda {r.attrs.pool_type} pooling", like=r.op.forward)

        return [choose]

    def first(r: Request) -> Shape:
        return r.inputs[0]

    def made(r: Request) -> Shape:
        return r.outputs[0]

    table: dict[type[Op], list[Any]] = {}
    for op, last in ((Pooling, False), (PoolingChannelsLast, True)):
        table[op] = row(last, first, _pool)
        table[op.grad_op] = row(last, first, _spread)  # type: ignore[index]
    table[PoolingDataGradient] = row(False, made, _linear_spread)
    table[PoolingDataGradient.grad_op] = row(False, made, _linear_pool)  # type: ignore[index]
    table[MaxPoolingDataGradient] = row(False, made, _max_spread)
    table[MaxPoolingDataGradient.grad_op] = row(False, made, _max_choose)  # type: ignore[index]
    table[ChosenPooling] = row(False, first, _choose)
    table[ChosenPoolingChannelsLast] = row(True, first, _choose)
    table[ChosenPooling.grad_op] = row(False, first, _choose_spread)  # type: ignore[index]
    return table


def _pool(pool: PoolingLaunches) -> Any:
    return lambda xp, a, data, *, out, index=None, work: pool.pool(data, out, index)


def _spread(pool: PoolingLaunches) -> Any:
    def connect(
        xp: Any, a: Any, d_out: Any, data: Any, out: Any, index: Any, *, d_data: Any, work: Any
    ) -> Run:
        return pool.spread(d_out, data, out, index, d_data)

    return connect


def _linear_spread(pool: PoolingLaunches) -> Any:
    return lambda xp, a, grad, like, *, out, work: pool.spread(grad, None, None, None, out)


def _linear_pool(pool: PoolingLaunches) -> Any:
    return lambda xp, a, d_out, *, d_grad, work: pool.pool(d_out, d_grad, None)


def _max_spread(pool: PoolingLaunches) -> Any:
    return lambda xp, a, grad, like, index, *, out, work: pool.spread(grad, None, None, index, out)


def _max_choose(pool: PoolingLaunches) -> Any:
    return lambda xp, a, d_out, index, *, d_grad, work: pool.choose(d_out, index, d_grad)


def _choose(pool: PoolingLaunches) -> Any:
    return lambda xp, a, data, index, *, out, work: pool.choose(data, index, out)


def _choose_spread(pool: PoolingLaunches) -> Any:
    return lambda xp, a, d_out, index, *, d_data, work: pool.spread(d_out, None, None, index, d_data)
