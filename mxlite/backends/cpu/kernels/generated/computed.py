"""Operators that declare a computation, and their gradients, as generated loop nests: also the elementwise
ones, one pass over memory each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .....ops import ALL
from ....base import ChosenKernel, Knobs, Request
from ....composed_space import ComposedSpace
from ....elementwise.formula import elementwise_operators
from ....fused.computation import FUSED
from ....nests.kernel import Linked, nest_kernel
from ....nests.nest import Nests
from ....nests.program import Arrays, is_chain, nests_for
from ...compiled import storable, usable
from ...compiled.nests import Loops, NestPart
from ...kernel_row import GENERATED, kernel_rows, LATER
from ...onednn import in_turn
from ...onednn.primitive import address_of

LEAST = 1024  # elements below which an imperative call of steps on them runs the reference kernel


def _row(r: Request) -> ChosenKernel | None:
    if not usable():
        return None
    how = Arrays(storable())
    nests = nests_for(r, how)
    if nests is None:
        return None

    parts = [NestPart(placed) for placed in nests.nests]

    def made(knobs: Sequence[Knobs]) -> ChosenKernel:
        """The kernel with these schedules of its nests; calls without some outputs have the usual ones."""
        schedules = [part.schedule(some) for part, some in zip(parts, knobs)]

        def written(some: Nests) -> Linked:
            loops = Loops(some, schedules if some is nests else None)
            return lambda arrays: loops.call([address_of(x) for x in arrays], keep=arrays)

        return nest_kernel(r, how, nests, written, in_turn, "compiled", bits=())

    if not is_chain(r, nests):
        return replace(made(()), space=ComposedSpace(parts, made))
    (placed,) = nests.nests
    return replace(made(()), bound_only=placed.points < LEAST and not r.tile.is_special)


_OPERATORS = [op for op in ALL if op.compute is not None]

SERVES = (
    "backends.fused.computation",
    "graph.gradient",
    "ops.elementwise",
    "ops.index",
    "ops.linalg.einsum",
    "ops.linalg.factorizations",
    "ops.linalg.sparse_storage",
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
            *FUSED,
        ],
        _row,
    ),
    LATER,  # rows written by hand for one operator are asked before
    tiles=True,
)
