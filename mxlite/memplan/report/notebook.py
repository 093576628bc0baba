"""A plan as a notebook cell: its table, and the arena as a small drawing without a script."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from ...core.bytesize import format_bytes
from .boxes import boxes, COLOURS, kinds_in, MEANINGS
from .certificate import certificate_of
from .rows import Row, rows_of
from .vector import number, paths

if TYPE_CHECKING:
    from ..plan import MemoryPlan

WIDTH, HEIGHT = 640, 240  # pixels of the drawing


def cell(plan: MemoryPlan) -> str:
    """HTML with everything inline: notebooks keep neither scripts nor style sheets of untrusted output."""
    parts, rows = rows_of(plan)
    shown = [row for row, nbytes in zip(parts, plan.breakdown.values()) if nbytes]
    cells = "".join(map(_row, [*shown, *rows]))
    heading = f"Memory plan: {len(plan.problem.tasks):,} operations, {html.escape(plan.how)}"
    return (
        f"<div><p><b>{heading}</b><br>{html.escape(certificate_of(plan))}</p>"
        f'<div style="display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start">'
        f'<table style="font-variant-numeric:tabular-nums">{cells}</table>{_drawing(plan)}</div></div>'
    )


def _row(row: Row) -> str:
    name, value, note = map(html.escape, row)
    if name == "peak":
        name, value = f"<b>{name}</b>", f"<b>{value}</b>"
    about = f"<br><small>{note}</small>" if note else ""
    left = 'style="text-align:left;max-width:14em;overflow-wrap:anywhere"'
    return (
        f'<tr style="vertical-align:top"><td {left}>{name}{about}</td>'
        f'<td style="text-align:right;white-space:nowrap">{value}</td></tr>'
    )


def _drawing(plan: MemoryPlan) -> str:
    steps, arena = len(plan.schedule.task), plan.arena_bytes
    if not steps or not arena:
        return ""
    left, top = 4, 18
    step_px, byte_px = (WIDTH - 2 * left) / steps, HEIGHT / arena
    bottom, trains = top + HEIGHT, plan.schedule.num_forward < steps
    key, x = [], float(left)
    for kind in kinds_in(plan):
        words = MEANINGS[kind]
        key.append(f'<rect x="{number(x)}" y="{bottom + 22}" width="10" height="10" fill="{COLOURS[kind]}"/>')
        key.append(f'<text x="{number(x + 14)}" y="{bottom + 31}">{words}</text>')
        x += 26 + 5.5 * len(words)
    return (
        f'<svg viewBox="0 0 {WIDTH} {bottom + 38}" width="{WIDTH}" role="img"'
        f' style="max-width:100%;height:auto" font-family="sans-serif" font-size="11" fill="#222">'
        f"<title>The arena: address upwards, steps to the right</title>"
        f'<rect width="{WIDTH}" height="{bottom + 38}" fill="#fff"/>'
        f'<text x="{left}" y="12">arena {format_bytes(arena)} (up) against {steps:,} steps (right)</text>'
        f"{''.join(paths(boxes(plan), left, bottom, step_px, byte_px))}"
        f'<path fill="none" stroke="#222" d="M{left} {top}H{WIDTH - left}V{bottom}H{left}z"/>'
        f"{_passes(left + plan.schedule.num_forward * step_px, top, bottom, trains)}{''.join(key)}</svg>"
    )


def _passes(x: float, top: int, bottom: int, trains: bool) -> str:
    """Labels of the forward and the backward pass, with the boundary between them if there is one."""
    forward = f'<text x="{number(x - 5)}" y="{bottom + 13}" text-anchor="end">forward</text>'
    if not trains:
        return forward
    return (
        f'<path stroke="#222" stroke-dasharray="4 3" d="M{number(x)} {top}V{bottom + 14}"/>'
        f'{forward}<text x="{number(x + 5)}" y="{bottom + 13}">backward</text>'
    )
