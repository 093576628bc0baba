"""A memory plan as one self-contained HTML page: the arena as address against time."""

from __future__ import annotations

import html
from typing import Any, TYPE_CHECKING

from ..core.bytesize import format_bytes
from ..core.files import replacing

if TYPE_CHECKING:
    from .plan import MemoryPlan

WIDTH, HEIGHT = 1200, 640  # pixels of the drawing

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>mxlite memory plan</title><style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: {page}px; color: #222 }}
table {{ border-collapse: collapse; margin: 1rem 0 }} td {{ padding: .1rem 1.2rem .1rem 0 }}
td:nth-child(2) {{ text-align: right; font-variant-numeric: tabular-nums }}
svg {{ border: 1px solid #bbb; background: #fafafa; width: 100%; height: auto }}
rect {{ stroke: #fff; stroke-width: .4 }} .f {{ fill: #4c78a8 }} .r {{ fill: #f58518 }} .b {{ fill: #54a24b }}
.w {{ fill: #b0b0b0 }} .key span {{ display: inline-block; width: 1em; height: 1em; margin: 0 .4em 0 1.2em;
vertical-align: -.15em }}
</style></head><body>
<h1>Memory plan</h1><p>{method}: {steps} steps, {recomputed} of them recomputed.</p>
<table>{rows}</table>
<p class="key">address (up) against step (right):<span style="background:#4c78a8"></span>forward
<span style="background:#f58518"></span>recomputed<span style="background:#54a24b"></span>backward
<span style="background:#b0b0b0"></span>workspace; hover for names</p>
<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img" aria-label="arena">
<line x1="{split:.2f}" y1="0" x2="{split:.2f}" y2="{height}" stroke="#888" stroke-dasharray="4 3"/>
{rects}</svg></body></html>
"""


def write_html(plan: MemoryPlan, path: Any) -> None:
    """Write the page for `plan` to `path`, whole or not at all. It opens offline."""
    with replacing(path, "w") as file:
        file.write(page(plan))


def page(plan: MemoryPlan) -> str:
    """The page as text."""
    schedule, problem = plan.schedule, plan.problem
    steps, arena = max(1, len(schedule.task)), max(1, plan.arena_bytes)
    made_by = {o: s for s, row in enumerate(schedule.outputs) for o in row if o >= 0}
    rects = []
    for b, r in enumerate(plan.liveness.ranges):
        if r.members:
            s = made_by[r.members[0]]
            if schedule.copy[s]:
                kind = "r"
            else:
                kind = "f" if schedule.task[s] < problem.num_forward else "b"
            names = ", ".join(dict.fromkeys(problem.values[schedule.value_of[i]].name for i in r.members))
        else:
            kind, names = "w", f"workspace of {problem.tasks[schedule.task[r.start]].name}"
        x, width = r.start / steps * WIDTH, (r.stop - r.start) / steps * WIDTH
        height = r.nbytes / arena * HEIGHT
        y = HEIGHT - plan.offsets[b] / arena * HEIGHT - height
        title = f"{names}: {format_bytes(r.nbytes)} at {plan.offsets[b]}, steps {r.start} to {r.stop - 1}"
        rects.append(
            f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}">'
            f"<title>{html.escape(title)}</title></rect>"
        )
    rows = [(name, n) for name, n in plan.breakdown.items()]
    rows += [("peak", plan.peak_bytes), ("proven lower bound", plan.lower_bound_bytes)]
    if plan.budget_bytes is not None:
        rows.append(("budget", plan.budget_bytes))
    return _PAGE.format(
        page=WIDTH,
        width=WIDTH,
        height=HEIGHT,
        method=html.escape(plan.method),
        steps=len(schedule.task),
        recomputed=plan.recomputed,
        split=schedule.num_forward / steps * WIDTH,
        rows="".join(f"<tr><td>{html.escape(k)}</td><td>{format_bytes(n)}</td></tr>" for k, n in rows),
        rects="\n".join(rects),
    )
