"""Rectangles as SVG paths: one path for each colour, so that thousands of them stay a small file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from .boxes import Box, COLOURS

LEAST_HEIGHT = 0.15  # pixels; a thinner rectangle would be invisible
EDGE = 3  # pixels; rectangles of at least this width and height get a white edge


def number(x: float) -> str:
    """Text of a coordinate, to a tenth of a pixel."""
    return f"{x:.1f}".removesuffix(".0")


def paths(drawn: Sequence[Box], left: float, bottom: float, step_px: float, byte_px: float) -> list[str]:
    """SVG paths of `drawn`: step 0 at x = `left`, address 0 at y = `bottom`, large boxes apart from small."""
    found: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for box in drawn:
        width, height = (box.stop - box.start) * step_px, box.nbytes * byte_px
        if height < LEAST_HEIGHT:
            continue
        x, y = left + box.start * step_px, bottom - box.offset * byte_px - height
        w = number(width)
        large = min(width, height) >= EDGE
        found[box.kind, large].append(f"M{number(x)} {number(y)}h{w}v{number(height)}h-{w}z")
    edge = ' stroke="#fff" stroke-width=".4"'
    return [
        f'<path fill="{COLOURS[kind]}"{edge if large else ""} d="{"".join(found[kind, large])}"/>'
        for kind in COLOURS
        for large in (False, True)
        if (kind, large) in found
    ]
