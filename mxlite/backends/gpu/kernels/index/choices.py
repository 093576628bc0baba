"""pick, one_hot and their kin: a thread for each element that is written, in the order of memory.

Elements are copied as bytes, so all dtypes have kernels. Only chosen elements and their indices are read; a
gradient or a one-hot array is written once.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .....graph.ir import Shape
from .....graph.opdef import DType
from .....ops.blocks import weak
from .....ops.index.index import one_hot, OnehotEncode
from .....ops.index.pick import fill_element_0index, pick, PickAdd
from .....ops.index.take import batch_take
from ....base import ChosenKernel, Request
from ...compiler.kinds import kind, known
from ...compiler.source import assembled, structure
from ...handwritten.each import addresses, spread
from ...handwritten.layout import Divisor, MOST
from ...handwritten.move import of_units
from ...rows import answer, row, table
from ...runtime.device import Device, InOrder, Run
from ..arithmetic.elementwise import loop

CLIP, WRAP, NONE = range(3)
SOURCE = assembled(
    "types", "index", "whole", "choose", *(of_units(n, ["Choose s"]) for n in ("picked", "replaced"))
)


Choose: Any = structure("choose", "Choose", Divisor=Divisor)


class Choice:
    """Arrays of `shape` with an index along `axis` for each position of the other axes."""

    def __init__(self, device: Device, shape: Shape, axis: int, mode: int = CLIP) -> None:
        axis %= len(shape)
        self.device, self.mode = device, mode
        self.length, self.inner = shape[axis], prod(shape[axis + 1 :])
        self.fits = 0 < prod(shape) <= MOST

    def pick(self, data: Any, indices: Any, out: Any) -> Run:
        """out = the selected elements of `data`."""
        return self._run("picked", indices, out, data)

    def replace(
        self, indices: Any, out: Any, data: Any = None, chosen: Any = None, on: bytes = b"", off: bytes = b""
    ) -> Run:
        """out = `chosen` at the selected elements, `data` elsewhere; the bytes `on`, `off` where these are
        None.
        """
        numbers = {"on": int.from_bytes(on, "little"), "off": int.from_bytes(off, "little")}
        return self._run("replaced", indices, out, data, chosen, **numbers)

    def _run(self, name: str, indices: Any, out: Any, data: Any, chosen: Any = None, **numbers: int) -> Run:
        arrays = addresses(self.device, data=data, chosen=chosen, indices=indices, out=out)
        made = Choose(n=out.size, kind=kind(indices.dtype), mode=self.mode, **arrays, **numbers)
        made.inner, made.length = Divisor(self.inner), Divisor(self.length)
        return spread(self.device, SOURCE, f"{name}_{out.dtype.itemsize}", out.size, made)


def _choice(device: Device, r: Request) -> Choice | None:
    """Choice of an operator that selects along its parameter `axis`, or along axis 1."""
    mode = WRAP if getattr(r.attrs, "mode", "clip") == "wrap" else CLIP
    made = Choice(device, r.inputs[0], getattr(r.attrs, "axis", 1), mode)
    return made if made.fits and known(*r.dtypes) else None


@row(_choice, "cuda pick")
def _pick(choice: Choice, a: Any, data: Any, index: Any, *, out: Any, work: Any) -> Run:
    return choice.pick(data, index, out)


@row(_choice, "cuda pick gradient")
def _pick_gradient(choice: Choice, a: Any, d_out: Any, index: Any, **made: Any) -> Run:
    out = made["d_data"] if "d_data" in made else made["d_a"]
    return choice.replace(index, out, chosen=d_out)


@row(_choice, "cuda pick")
def _fill(choice: Choice, a: Any, lhs: Any, mhs: Any, rhs: Any, *, out: Any, work: Any) -> Run:
    return choice.replace(rhs, out, data=lhs, chosen=mhs)


@row(_choice, "cuda pick gradient")
def _fill_gradient(choice: Choice, a: Any, d_out: Any, rhs: Any, *, d_lhs: Any, d_mhs: Any, work: Any) -> Run:
    runs = [] if d_mhs is None else [choice.pick(d_out, rhs, d_mhs)]  # d_lhs may lie on d_out
    if d_lhs is not None:
        runs.append(choice.replace(rhs, d_lhs, data=d_out))
    return InOrder(runs)


def _add(device: Device, r: Request) -> ChosenKernel | None:
    """Kernel that picks the selected elements, adds to them in scratch, and writes them back."""
    choice, n, dtype = _choice(device, r), (prod(r.inputs[2]),), r.dtype
    total = loop(device, lambda w, x, y: x + y, [n, n], [dtype, dtype], n, dtype)
    if choice is None or total is None or r.dtypes[2] != dtype:
        return None

    def connect(a: Any, data: Any, index: Any, updates: Any, *, out: Any, work: Any) -> Run:
        box = work[: n[0] * dtype.itemsize].view(dtype).reshape(updates.shape)
        added = total.call(box, updates, box)
        return InOrder([choice.pick(data, index, box), added, choice.replace(index, out, data, box)])

    return answer(r, connect, n[0] * dtype.itemsize, "cuda pick")


@row(_choice, "cuda pick gradient")
def _add_gradient(choice: Choice, a: Any, d_out: Any, index: Any, *, d_updates: Any, work: Any) -> Run:
    return choice.pick(d_out, index, d_updates)


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

    def connect(a: Any, indices: Any, rhs: Any = None, *, out: Any) -> Run:
        return choice.replace(indices, out, on=on, off=off)

    return answer(r, connect, 0, "cuda one-hot")


rows = table(
    (pick, _pick, _pick_gradient),
    (batch_take, _pick, _pick_gradient),
    (PickAdd, _add, _add_gradient),
    (fill_element_0index, _fill, _fill_gradient),
    (one_hot, _one_hot, None),
    (OnehotEncode, _one_hot, None),
)
