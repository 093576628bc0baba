"""A sentence that certifies an arena's size."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ...core.bytesize import format_bytes
from ..problem import padded

if TYPE_CHECKING:
    from ..plan import MemoryPlan


def certificate_of(plan: MemoryPlan) -> str:
    """The statement that no smaller arena exists for this schedule, or how many bytes are lost: to gaps, or
    because each buffer keeps its own (strategies "none" and "inplace").

    Buffers that are live at the same step need bytes of their own, so the peak of live bytes is a proven
    bound for the arena of this schedule; another schedule may have another bound.
    """
    live, placed, least = plan.max_live_bytes, plan.placed_bytes, plan.problem.least_arena
    if placed < least:
        return f"arena = what inference needs in it ({format_bytes(least)}); this step needs less"
    if placed == live:
        return f"arena = most live bytes ({format_bytes(live)}): no smaller arena exists for this schedule"
    gap = placed - live
    share = f" ({_percent(gap / live)})" if live else ""
    why = "no two buffers share bytes" if _is_disjoint(plan) else "lost to gaps"
    return f"arena ({format_bytes(placed)}) is {format_bytes(gap)}{share} above the most live bytes: {why}"


def _is_disjoint(plan: MemoryPlan) -> bool:
    places = sorted((at, at + padded(r.nbytes)) for r, at in zip(plan.liveness.ranges, plan.offsets))
    return all(stop <= start for (_, stop), (start, _) in pairwise(places))


def _percent(share: float) -> str:
    """A percentage with enough digits that a small share is not shown as 0."""
    percent = 100 * share
    return f"{percent:.1f} %" if percent >= 0.1 else f"{percent:.2g} %"
