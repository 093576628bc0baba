"""Weight gradient of a convolution of normalized data, the fallback without a kernel with that prologue:
the data are normalized in scratch, which lives for the duration of the call. For a 1x1 with strides only
those positions that it reads are normalized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ....ops.nn.conv_kernels import Geometry
from ....ops.norm.norm_arrays import NO_PROLOGUE, PrologueArrays
from ....ops.scratch import carve, Piece, scratch_bytes
from ..compiled.norm.normalize import Normalize
from ..onednn import in_turn, Run

_byte = np.dtype("uint8")


class NormalizedByWeight:
    """d_weight and d_bias, of relu(data * factor + shift + added), by the algorithm that `way_of` gives for a
    convolution. Raises LookupError if that is None.
    """

    def __init__(self, g: Geometry, way_of: Callable[[Geometry], Any], relu: bool, addend: str) -> None:
        self.taken: tuple[slice, ...] | None = None
        if set(g.kernel) == {1} != set(g.stride) and not any(g.pad):
            self.taken = (slice(None), *(slice(None, None, s) for s in g.stride))
            g = replace(g, size=g.out, stride=(1,) * len(g.stride))
        way = way_of(g)
        if way is None:
            raise LookupError
        self.way, self.name = way, way.name
        rows = g.n * prod(g.size)
        self.shape = (g.n, *g.size, g.c)
        self.normalize = Normalize(rows, g.c, g.dtype, relu, addend)
        held = self.shape if self.taken is not None and addend else (0,)
        self.pieces: list[Piece] = [
            (self.shape, g.dtype), (held, g.dtype), ((max(self.normalize.nbytes, way.nbytes),), _byte)
        ]  # fmt: skip

    @property
    def nbytes(self) -> int:
        return scratch_bytes(self.pieces)

    def connect(
        self, d_out: Any, data: Any, d_weight: Any, d_bias: Any, work: Any, norm: PrologueArrays = NO_PROLOGUE
    ) -> Run:
        made, held, rest = carve(work, self.pieces)
        calls: list[Run] = []
        if self.taken is not None:
            calls.append(self._take(data, made))
            data = made
            if norm.addend is not None:
                calls.append(self._take(norm.addend, held))
                norm = norm._replace(addend=held)
        own, other = rest[: self.normalize.nbytes], rest[: self.way.nbytes]
        calls.append(self.normalize.connect(data, norm, made, own))
        calls.append(self.way.connect(d_out, made, d_weight, d_bias, other))
        return in_turn(calls)

    def _take(self, source: Any, target: Any) -> Run:
        """The call that copies the positions that are read, each as one element: twice as fast."""
        position = np.dtype((np.void, target.shape[-1] * target.itemsize))
        there, here = (x.view(position)[..., 0] for x in (source, target))
        return partial(np.copyto, here, there[self.taken])
