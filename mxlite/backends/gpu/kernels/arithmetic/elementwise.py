"""Elementwise operators, their gradients and fused chains: one pass over memory each, as a loop nest.

So are formulas of arrays that broadcast (`Loop`), which rows of other modules are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from .....core.cached import cached_property
from .....graph.ir import Shape
from .....graph.opdef import DType
from .....te.computation import Computation, Tensor
from ....base import ChosenKernel, Request
from ....elementwise.formula import elementwise_operators
from ....fused.computation import FUSED
from ....nests.build import nests_of
from ....nests.program import is_chain, nests_for
from ...compiler.kinds import floating, known
from ...nests import Launches
from ...rows import answer, table
from ...runtime.device import Device, nothing, Run
from ..generated.computed import ARRAYS, row

Formula = Callable[..., Tensor]


@dataclass(eq=False)
class Loop:
    """The kernel of `f(t, *tensors)` for arrays of these shapes and types, which broadcast to `shape`. It
    writes the type `made`; `call` connects it to arrays.
    """

    device: Device
    f: Formula
    views: Sequence[Shape]
    dtypes: Sequence[DType]
    shape: Shape
    made: DType

    @cached_property
    def launches(self) -> Launches:
        """The launch."""
        t, kinds = Computation(), {f"x{i}": str(d) for i, d in enumerate(self.dtypes)}
        out = self.f(t, *(t.input(n, v) for n, v in zip(kinds, self.views)))
        number = "" if floating(self.made) else "int64"
        kinds["out"] = str(self.made)
        nests = nests_of(t, {"out": out}, {"out": self.shape}, kinds, {}, number=number)
        assert nests is not None
        return Launches(self.device, nests, "elementwise")

    def call(self, *arrays: Any) -> Run:
        """The call for these arrays, inputs and then the output, which are in C order."""
        if not prod(self.shape):
            return nothing
        # An input that the formula leaves out is passed, but not read.
        read = [int(n[1:]) for n in self.launches.nests.inputs]
        return self.launches.call([*(arrays[i] for i in read), arrays[-1]])


def loop(
    device: Device, f: Formula, views: Sequence[Shape], dtypes: Sequence[DType], shape: Shape, made: DType
) -> Loop | None:
    """The kernel of a formula; None if there is none for these types."""
    is_whole = all(d.kind in "iub" for d in (*dtypes, made))
    found = Loop(device, f, views, dtypes, shape, made)
    return found if known(*dtypes) and (floating(made) or is_whole) else None


def looped(
    r: Request, made: Loop | None, name: str, places: Sequence[int] | None = None
) -> ChosenKernel | None:
    """The kernel by which `made` computes the one output, of the inputs at `places`; None: of all."""

    def connect(a: Any, *inputs: Any, **rest: Any) -> Run:
        (out,) = (rest[n] for n in r.op.signature.makes)
        assert made is not None
        return made.call(*(inputs if places is None else [inputs[i] for i in places]), out)

    return None if made is None else answer(r, connect, 0, name)


def _row(device: Device, r: Request) -> ChosenKernel | None:
    """The kernel of steps on floating numbers; what else there is comes behind rows of other modules."""
    nests = nests_for(r, ARRAYS)
    if nests is None or not is_chain(r, nests) or nests.number == "int64":
        return None
    return row(device, r)


rows = table(*((op, _row, None) for op in (*elementwise_operators(), *FUSED)))
