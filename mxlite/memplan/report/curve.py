"""Budget against extra time as a picture, by matplotlib (extra `viz`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...core.bytesize import format_bytes
from .image import matplotlib, printable, saved

if TYPE_CHECKING:
    from ..plan import MemoryPlan


def curve_of(title: str, plans: Sequence[MemoryPlan], form: str) -> bytes:
    """Picture with one point for each plan, as a file of form "svg", "png" or "pdf".

    Marks show the proven lower bound, the least feasible budget known, and keeping everything.
    """
    pyplot = matplotlib()
    by_peak = sorted(plans, key=lambda p: (p.peak_bytes, p.extra_time))
    least, most = by_peak[0], by_peak[-1]
    bound = least.lower_bound_bytes
    unit, name = (2**30, "GiB") if most.peak_bytes >= 2**30 else (2**20, "MiB")
    if most.peak_bytes < 2**20:
        unit, name = 2**10, "KiB"
    highest = max(100 * p.extra_time for p in plans) or 1.0
    with pyplot.rc_context({"font.family": "sans-serif", "font.size": 9}):
        figure = pyplot.figure.Figure(figsize=(8, 4.6), layout="constrained")
        axes = figure.subplots()
        x = [p.peak_bytes / unit for p in by_peak]
        axes.axvspan(0, bound / unit, color="#eceff3", lw=0)
        axes.axvline(bound / unit, color="#596373", ls="--", lw=1)
        axes.plot(x, [100 * p.extra_time for p in by_peak], "o-", color="#1f5fbf", lw=1.5, ms=5)
        axes.set_xlim(0, 1.3 * most.peak_bytes / unit)
        axes.set_ylim(0, 1.25 * highest)
        narrow = bound < 0.35 * most.peak_bytes  # no room left of the line
        axes.annotate(
            f"proven lower bound\n{format_bytes(bound)}", (bound / unit, 1.25 * highest),
            (5 if narrow else -5, -4), textcoords="offset points", ha="left" if narrow else "right",
            va="top", color="#596373",
        )  # fmt: skip
        axes.annotate(
            f"least known: {format_bytes(least.peak_bytes)}, +{100 * least.extra_time:.1f} %",
            (x[0], 100 * least.extra_time), (8, 4), textcoords="offset points",
        )  # fmt: skip
        if most is not least:
            axes.annotate(
                f"keep all:\n{format_bytes(most.peak_bytes)}", (x[-1], 100 * most.extra_time), (9, 0),
                textcoords="offset points", va="bottom",
            )  # fmt: skip
        axes.set_title(printable(title), fontsize="medium", loc="left", parse_math=False)
        axes.set_xlabel(f"peak memory, {name}")
        axes.set_ylabel("extra time for recomputation, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        return saved(figure, form)
