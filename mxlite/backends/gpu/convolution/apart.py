"""Addition to a gradient in a launch of its own, after the one that computes the gradient.

Only a measurement tells if an engine with a fused addition is faster: for some gradients cuDNN has engines
only without one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from ....graph.ir import Shape
from ....graph.opdef import DType
from ..kernels.arithmetic.elementwise import Loop
from ..runtime.device import Device, InOrder, Run

Way = Any


@dataclass(frozen=True)
class Apart:
    """out = addend + the result of `way`. `out` holds the latter in between, and may not be the addend."""

    device: Device
    way: Way

    @property
    def name(self) -> str:
        return f"{self.way.name}, sum"

    @property
    def nbytes(self) -> int:
        """Bytes of scratch."""
        return int(self.way.nbytes)

    @property
    def launches(self) -> int:
        return int(self.way.launches) + 1

    def fits(self) -> bool:
        return bool(self.way.fits())

    def connect(self, first: Any, second: Any, out: Any, work: Any, addend: Any) -> Run:
        """The calls of both launches; see Gather."""
        key: Any = self.device
        add = _sum(key, out.shape, out.dtype).call(addend, out, out)
        return InOrder([self.way.connect(first, second, out, work), add])


@functools.lru_cache(maxsize=256)
def _sum(device: Any, shape: Shape, dtype: DType) -> Loop:
    return Loop(device, lambda t, x, y: x + y, (shape, shape), (dtype, dtype), shape, dtype)
