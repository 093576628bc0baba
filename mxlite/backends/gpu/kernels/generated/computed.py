"""Operators that declare a computation, and their gradients, as generated loop nests."""

from __future__ import annotations

from math import prod

from .....ops import ALL
from .....ops.reduce.cumulative import cumprod, cumsum
from .....te.computation import REDUCTIONS
from ....base import ChosenKernel, Request
from ....nests.kernel import Linked, nest_kernel
from ....nests.nest import Nests
from ....nests.program import Arrays, is_chain, kinds_of, nests_for
from ...compiler.kinds import FLOATS
from ...compiler.source import NAMES
from ...compiler.steps import STEPS
from ...nests import Launches, THREADS
from ...rows import answer, table
from ...runtime.device import Device, nothing, one_after_other, Run

KNOWN = frozenset(STEPS) | frozenset(REDUCTIONS) | {"index", "gather", "broadcast"}
ARRAYS = Arrays(frozenset(NAMES), FLOATS, THREADS, wholes=frozenset(NAMES) - FLOATS)


def row(device: Device, r: Request) -> ChosenKernel | None:
    """The kernel that is made of a request's computation."""
    if _is_empty(r):
        return answer(r, _nothing, 0, "cuda loop nest")
    nests = nests_for(r, ARRAYS)
    if nests is None or any(s[0] not in KNOWN for p in nests.nests for s in p.nest.steps):
        return None

    def written(found: Nests) -> Linked:
        return Launches(device, found, "elementwise" if is_chain(r, found) else "nest").call

    return nest_kernel(r, ARRAYS, nests, written, one_after_other, "cuda", launches=len(nests.nests))


def _nothing(a: object, *inputs: object, **outputs: object) -> Run:
    return nothing


def _is_empty(r: Request) -> bool:
    """True if no output has elements."""
    kinds = kinds_of(r)
    outs = [n for n in r.op.output_names(r.attrs) if r.is_used(n)]
    return kinds is not None and all(prod(kinds[n][0]) == 0 for n in outs)


# A check reads indices on the host; scans have kernels of their own.
_SCANS = (cumsum, cumprod)
_OPERATORS = [op for op in ALL if op.compute is not None and op.compute_check is None and op not in _SCANS]

rows = table(
    *((op, row, None) for op in _OPERATORS), *((op.grad_op, row, None) for op in _OPERATORS if op.grad_op)
)
