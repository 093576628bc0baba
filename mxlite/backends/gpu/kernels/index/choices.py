"""pick, one_hot and their kin: a thread for each element that is written, in the order of memory.

Elements are copied as bytes, so all dtypes have kernels. Only chosen elements and their indices are read; a
gradient or a one-hot array is written once.
"""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

import numpy as np

from .....graph.ir import Shape
from .....graph.opdef import DType, Op
from .....ops.blocks import weak
from .....ops.index.index import one_hot, OnehotEncode
from .....ops.index.pick import fill_element_0index, pick, PickAdd
from .....ops.index.take import batch_take
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import kind, known
from ...compiler.source import KernelSource, shared
from ...compiler.structure import declared
from ...handwritten.layout import Divisor, MOST
from ...runtime.device import Arguments, Device, InOrder, nothing, Run
from ..reduce.reductions import loop

THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 16

CLIP, WRAP, NONE = range(3)


class Choose(ctypes.Structure):
    """The structure of this name in choose.cuh."""

    _fields_ = declared("choose", "Choose", Divisor=Divisor)


@functools.cache
def source() -> KernelSource:
    return KernelSource(shared("types", "index", "whole", "choose"))


class Choice:
    """Arrays of `shape` with an index along `axis` for each position of the other axes."""

    def __init__(self, device: Device, shape: Shape, axis: int, mode: int = CLIP) -> None:
        axis %= len(shape)
        self.device, self.mode = device, mode
        self.length, self.inner = shape[axis], prod(shape[axis + 1 :])
        self.fits = 0 < prod(shape) <= MOST

    def pick(self, data: Any, indices: Any, out: Any) -> Run:
        """out = the selected elements of `data`."""
        return self._run("picked", indices, out, data=self.device.address(data))

    def replace(
        self, indices: Any, out: Any, data: Any = None, chosen: Any = None, on: bytes = b"", off: bytes = b""
    ) -> Run:
        """out = `chosen` at the selected elements, `data` elsewhere; the bytes `on`, `off` where these are
        None.
        """
        address = self.device.address
        return self._run(
            "replaced",
            indices,
            out,
            data=None if data is None else address(data),
            chosen=None if chosen is None else address(chosen),
            on=int.from_bytes(on, "little"),
            off=int.from_bytes(off, "little"),
        )

    def _run(self, name: str, indices: Any, out: Any, **parameters: Any) -> Run:
        if not out.size:
            return nothing
        device = self.device
        made = Choose(n=out.size, kind=kind(indices.dtype), mode=self.mode, **parameters)
        made.indices, made.out = device.address(indices), device.address(out)
        made.inner, made.length = Divisor(self.inner), Divisor(self.length)
        blocks = min(-(-out.size // THREADS), device.multiprocessors * BLOCKS_PER_MULTIPROCESSOR)
        function = device.function(source(), f"{name}_{out.dtype.itemsize}")
        return device.launch(function, (blocks, 1, 1), (THREADS, 1, 1), 0, Arguments([made]))


def _choice(device: Device, r: Request) -> Choice | None:
    """Choice of an operator that selects along its parameter `axis`, or along axis 1."""
    mode = WRAP if getattr(r.attrs, "mode", "clip") == "wrap" else CLIP
    made = Choice(device, r.inputs[0], getattr(r.attrs, "axis", 1), mode)
    return made if made.fits and known(*r.dtypes) else None


def _pick(device: Device, r: Request) -> ChosenKernel | None:
    choice = _choice(device, r)
    if choice is None:
        return None

    def connect(xp: Any, a: Any, data: Any, index: Any, *, out: Any, work: Any) -> Run:
        return nothing if out is None else choice.pick(data, index, out)

    return connected(connect, 0, "cuda pick", like=r.op.forward)


def _pick_gradient(device: Device, r: Request) -> ChosenKernel | None:
    choice = _choice(device, r)
    if choice is None:
        return None

    def connect(xp: Any, a: Any, d_out: Any, index: Any, **made: Any) -> Run:
        out = made["d_data"] if r.op is pick.grad_op else made["d_a"]
        return nothing if out is None else choice.replace(index, out, chosen=d_out)

    return connected(connect, 0, "cuda pick gradient", like=r.op.forward)


def _fill(device: Device, r: Request) -> ChosenKernel | None:
    choice = _choice(device, r)
    if choice is None:
        return None

    def connect(xp: Any, a: Any, lhs: Any, mhs: Any, rhs: Any, *, out: Any, work: Any) -> Run:
        return nothing if out is None else choice.replace(rhs, out, data=lhs, chosen=mhs)

    return connected(connect, 0, "cuda pick", like=r.op.forward)


def _fill_gradient(device: Device, r: Request) -> ChosenKernel | None:
    choice = _choice(device, r)
    if choice is None:
        return None

    def connect(xp: Any, a: Any, d_out: Any, rhs: Any, *, d_lhs: Any, d_mhs: Any, work: Any) -> Run:
        runs = [] if d_mhs is None else [choice.pick(d_out, rhs, d_mhs)]  # d_lhs may lie on d_out
        if d_lhs is not None:
            runs.append(choice.replace(rhs, d_lhs, data=d_out))
        return InOrder(runs)

    return connected(connect, 0, "cuda pick gradient", like=r.op.forward)


def _add(device: Device, r: Request) -> ChosenKernel | None:
    """Kernel that picks the selected elements, adds to them in scratch, and writes them back."""
    choice, n, dtype = _choice(device, r), (prod(r.inputs[2]),), r.dtype
    total = loop(device, lambda w, x, y: x + y, [n, n], [dtype, dtype], n, dtype)
    if choice is None or total is None or r.dtypes[2] != dtype:
        return None

    def connect(xp: Any, a: Any, data: Any, index: Any, updates: Any, *, out: Any, work: Any) -> Run:
        if out is None:
            return nothing
        box = work[: n[0] * dtype.itemsize].view(dtype).reshape(updates.shape)
        added = total.call(box, updates, box)
        return InOrder([choice.pick(data, index, box), added, choice.replace(index, out, data, box)])

    return connected(connect, n[0] * dtype.itemsize, "cuda pick", like=r.op.forward)


def _add_gradient(device: Device, r: Request) -> ChosenKernel | None:
    choice = _choice(device, r)
    if choice is None:
        return None

    def connect(xp: Any, a: Any, d_out: Any, index: Any, *, d_updates: Any, work: Any) -> Run:
        return nothing if d_updates is None else choice.pick(d_out, index, d_updates)

    return connected(connect, 0, "cuda pick gradient", like=r.op.forward)


def _bytes(value: float, dtype: DType) -> bytes:
    """Bytes of a number in `dtype`: truncated and wrapped as the reference does it."""
    made = np.empty(1, dtype)
    made.fill(weak(made, value))
    return made.tobytes()


def _one_hot(device: Device, r: Request) -> ChosenKernel | None:
    (made,) = r.op.infer_type(r.attrs, *r.dtypes)[1]
    (shape,) = r.outputs
    values = (r.attrs.on_value, r.attrs.off_value) if r.op is one_hot else (1, 0)
    choice = Choice(device, shape, -1, NONE)
    if not choice.fits or made is None or not known(made, r.dtypes[0]):
        return None
    on, off = (_bytes(x, made) for x in values)

    def connect(xp: Any, a: Any, indices: Any, rhs: Any = None, *, out: Any) -> Run:
        return nothing if out is None else choice.replace(indices, out, on=on, off=off)

    return connected(connect, 0, "cuda one-hot", like=r.op.forward)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    table: dict[type[Op], list[Any]] = {}
    for op, forward, backward in (
        (pick, _pick, _pick_gradient),
        (batch_take, _pick, _pick_gradient),
        (PickAdd, _add, _add_gradient),
        (fill_element_0index, _fill, _fill_gradient),
    ):
        assert op.grad_op is not None
        table[op] = [lambda r, row=forward: row(device, r)]
        table[op.grad_op] = [lambda r, row=backward: row(device, r)]
    return table | {op: [lambda r: _one_hot(device, r)] for op in (one_hot, OnehotEncode)}
