"""What a pass may ask of the backend that it works for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...graph import Op
from ..base import ChosenKernel, Request, Row, tuned
from ..fused.tile_program import reference_kernels, TileProgram
from ..fused.tiled import TileAttrs


@dataclass(frozen=True)
class Prices:
    """What the step costs and what making arrays again does, in one unit; the first must not be below the
    second.

    `step(operations, bytes, dtype)`: of a node of the step. `again(operations and bytes, nodes)`: of a way to
    make an array again.
    """

    step: Callable[[float, int, Any], float]
    again: Callable[[float, int], float]


@dataclass(frozen=True)
class Target:
    """A backend as passes see it: which kernels it has, and what decides for it what pays.

    `apart` are operators of data and weight whose kernels compute d_data and the rest apart from each other,
    without an array that the other needs.
    """

    kernels: Mapping[type[Op], Sequence[Row]] = field(default_factory=dict)
    apart: frozenset[type[Op]] = frozenset()

    def kernel(self, request: Request) -> ChosenKernel | None:
        """The kernel for a request, where there is a better one than the reference."""
        return tuned(self.kernels, request)

    def has_kernel(self, request: Request) -> bool:
        """Whether there is a kernel that makes an operator worth being put in."""
        return self.kernel(request) is not None

    def has_tile_kernels(self, a: TileAttrs, ops: Sequence[type[Op] | None]) -> bool:
        """Whether there are kernels for tiles of the calls of these operators in a region."""

        def choose(request: Request) -> ChosenKernel | None:
            return self.kernel(request) or reference_kernels(request)

        return TileProgram(a, choose).is_tuned(ops)

    def workspace(self, request: Request) -> int | None:
        """Bytes of scratch that the kernel takes, None where there is none."""
        found = self.kernel(request)
        return None if found is None else found.workspace

    def threads(self) -> int:
        """The number of threads that a kernel chosen now uses."""
        return 1

    def storable(self) -> frozenset[str]:
        """The dtypes that generated code loads and stores: none where no code can be generated."""
        return frozenset()

    def prices(self) -> Prices | None:
        """What making arrays again costs; None for what it costs a core."""
        return None
