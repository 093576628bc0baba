"""The backend, as far as a pass may ask about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...graph import Op
from ..base import ChosenKernel, Request, Row, tuned
from ..fused.tile_program import reference_kernels, TileProgram
from ..fused.tiled import TileAttrs


@dataclass(frozen=True)
class Prices:
    """Costs of a step and of rematerialization in one unit; the second must not exceed the first.

    `step(operations, bytes, dtype)` is the cost of a node of the step, `remat(operations and bytes, nodes)`
    that of the nodes which recompute an array.
    """

    step: Callable[[float, int, Any], float]
    remat: Callable[[float, int], float]


@dataclass(frozen=True)
class Target:
    """A backend as passes see it: its kernels, and the costs by which passes decide.

    `apart` are operators of two factors, which are their first inputs, such as data and weight, whose kernels
    compute the gradient in the first separately from the others, without an array that the others need.
    """

    kernels: Mapping[type[Op], Sequence[Row]] = field(default_factory=dict)
    apart: frozenset[type[Op]] = frozenset()

    def kernel(self, request: Request) -> ChosenKernel | None:
        """The kernel for a request, if there is a better one than the reference."""
        return tuned(self.kernels, request)

    def has_kernel(self, request: Request) -> bool:
        """True if there is a kernel that makes it worth inserting the operator."""
        return self.kernel(request) is not None

    def has_kernels(self, request: Request) -> bool:
        """The same for a request and, if the program trains, for that of its operator's gradient."""
        if not self.has_kernel(request):
            return False
        grad_op = request.op.grad_op
        return not request.train or (grad_op is not None and self.has_kernel(replace(request, op=grad_op)))

    def has_tile_kernels(self, a: TileAttrs, ops: Sequence[type[Op] | None]) -> bool:
        """True if there are kernels for tiles of the calls of these operators in a region."""

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
        """Costs of rematerialization; None for those of a core."""
        return None
