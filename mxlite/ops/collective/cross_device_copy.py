"""An array on another device of this process, as an operator of a step."""

from __future__ import annotations

from typing import Any

from ...core.record import record
from ...graph.opdef import Op


class CrossDeviceCopy(Op):
    """The same array on another device, ``out = data``.

    data: (...)  ->  out: (...), same shape and dtype. `source` and `target` number the devices of the step.
    Its gradient is the copy back, which goes on at once: so gradients of what it copies are added up in the
    order in which they are without it. No pass looks through it, so what passes join runs on one device.
    """

    op_name = "_cross_device_copy"
    inputs = ("data",)
    same_shape = True
    relays = True

    @record
    class Attrs:
        source: int
        target: int

    @classmethod
    def touched_rows(cls, a, ins, out_rows, csr):
        return {} if out_rows is None else {"data": out_rows}

    @staticmethod
    def derivative(w: Any, a: Any, ins: Any, outs: Any, heads: Any) -> dict[str, Any]:
        return {"data": w._cross_device_copy(heads["out"], source=a.target, target=a.source)}

    @staticmethod
    def forward(xp, a, data, *, out):
        out[...] = data
