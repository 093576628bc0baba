"""Operators that declare a computation, and their gradients, as generated loop nests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .....ops import ALL
from ....base import ChosenKernel, Request
from ....elementwise.formula import elementwise_operators, is_elementwise
from ....fused.computation import FusedComputation, FusedComputationGradient
from ....nests.kernel import Linked, nest_kernel
from ....nests.nest import Nests
from ....nests.program import Arrays, nests_for
from ...compiled import storable, usable
from ...compiled.nests import Loops, NestSpace
from ...compiled.nests.schedule import NestSchedule
from ...kernel_row import GENERATED, kernel_rows, LATER
from ...onednn import in_turn
from ...onednn.primitive import address_of


def _row(r: Request) -> ChosenKernel | None:
    if not usable():
        return None
    how = Arrays(storable())
    nests = nests_for(r, how)
    if nests is None or (is_elementwise(r.op) and (r.op.forward_op is None or not nests.reduces)):
        return None  # which are kernels of elements

    def made(schedules: Sequence[NestSchedule]) -> ChosenKernel:
        """The kernel with these schedules of its nests; calls without some outputs have the usual ones."""

        def written(some: Nests) -> Linked:
            loops = Loops(some, schedules if some is nests else None)
            return lambda arrays: loops.call([address_of(x) for x in arrays], keep=arrays)

        return nest_kernel(r, how, nests, written, in_turn, "compiled", bits=())

    space = NestSpace(nests, made)
    return replace(made(()), space=space)


_OPERATORS = [op for op in ALL if op.compute is not None]

SERVES = (
    "backends.fused.computation",
    "graph.gradient",
    "ops.elementwise",
    "ops.index",
    "ops.linalg.factorizations",
    "ops.loss",
    "ops.nn.interleaved",
    "ops.norm",
    "ops.reduce",
    "ops.optim.lars",
    "ops.shape.diagonal",
    "ops.shape.like",
    "ops.vision.box_targets",
    "ops.vision.boxes",
    "ops.vision.grid",
    "ops.vision.image",
    "ops.vision.resize",
    "ops.vision.sampler",
)
ROWS = kernel_rows(
    GENERATED,
    dict.fromkeys(
        [
            *_OPERATORS,
            *(op.grad_op for op in _OPERATORS if op.grad_op is not None),
            *elementwise_operators(),
            FusedComputation,
            FusedComputationGradient,
        ],
        _row,
    ),
    LATER,  # rows written by hand for one operator are asked before
)
