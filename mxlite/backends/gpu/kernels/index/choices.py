"""pick and its gradient: a thread for each element that is written, in the order of memory.

Elements are copied as bytes, so all dtypes have kernels. Only chosen elements and their indices are read; a
gradient is written once.
"""

from __future__ import annotations

from math import prod
from typing import Any

from .....graph.ir import Shape
from .....ops.index.pick import pick, PickAdd
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

CLIP, WRAP = range(2)
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

    def replace(self, indices: Any, out: Any, chosen: Any, data: Any = None) -> Run:
        """out = `chosen` at the selected elements, `data` elsewhere, or 0 if that is None."""
        return self._run("replaced", indices, out, data, chosen)

    def _run(self, name: str, indices: Any, out: Any, data: Any, chosen: Any = None) -> Run:
        arrays = addresses(self.device, data=data, chosen=chosen, indices=indices, out=out)
        made = Choose(n=out.size, kind=kind(indices.dtype), mode=self.mode, **arrays)
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
    return choice.replace(index, out, d_out)


def _add(device: Device, r: Request) -> ChosenKernel | None:
    """Kernel that picks the selected elements, adds to them in scratch, and writes them back."""
    choice, n, dtype = _choice(device, r), (prod(r.inputs[2]),), r.dtype
    total = loop(device, lambda w, x, y: x + y, [n, n], [dtype, dtype], n, dtype)
    if choice is None or total is None or r.dtypes[2] != dtype:
        return None

    def connect(a: Any, data: Any, index: Any, updates: Any, *, out: Any, work: Any) -> Run:
        box = work[: n[0] * dtype.itemsize].view(dtype).reshape(updates.shape)
        added = total.call(box, updates, box)
        return InOrder([choice.pick(data, index, box), added, choice.replace(index, out, box, data)])

    return answer(r, connect, n[0] * dtype.itemsize, "cuda pick")


@row(_choice, "cuda pick gradient")
def _add_gradient(choice: Choice, a: Any, d_out: Any, index: Any, *, d_updates: Any, work: Any) -> Run:
    return choice.pick(d_out, index, d_updates)


rows = table(
    (pick, _pick, _pick_gradient),
    (batch_take, _pick, _pick_gradient),
    (PickAdd, _add, _add_gradient),
)
