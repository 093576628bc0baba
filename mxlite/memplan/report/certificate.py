"""What can be said of an arena's size, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.bytesize import format_bytes

if TYPE_CHECKING:
    from ..plan import MemoryPlan


def certificate_of(plan: MemoryPlan) -> str:
    """That no smaller arena exists for this schedule, or how many bytes are lost to gaps.

    Buffers that are alive at one step need bytes of their own, so the most live bytes are a proven bound for
    the arena of this schedule; another schedule may have another bound.
    """
    live, placed, least = plan.max_live_bytes, plan.placed_bytes, plan.problem.least_arena
    if placed < least:
        return f"arena = what inference needs in it ({format_bytes(least)}); this step needs less"
    if placed == live:
        return f"arena = most live bytes ({format_bytes(live)}): no smaller arena exists for this schedule"
    gap = placed - live
    share = f" ({_percent(gap / live)})" if live else ""
    return (
        f"arena ({format_bytes(placed)}) is {format_bytes(gap)}{share} above the most live bytes: "
        f"lost to gaps"
    )


def _percent(share: float) -> str:
    """Enough digits that something is not called nothing."""
    percent = 100 * share
    return f"{percent:.1f} %" if percent >= 0.1 else f"{percent:.2g} %"
