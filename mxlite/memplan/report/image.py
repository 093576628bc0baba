"""Pictures of a plan for print: SVG, PNG or PDF, by matplotlib (extra `viz`)."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

from ...core.bytesize import format_bytes
from ...core.disk.files import replacing
from ...core.errors import MXLiteError
from .boxes import Box, boxes, COLOURS, KINDS, kinds_in, MEANINGS, peak_step
from .certificate import certificate_of

if TYPE_CHECKING:
    from ..plan import MemoryPlan

FORMS = ("svg", "png", "pdf")
SIZE = (10.0, 6.2)  # inches
DPI = 160  # of PNG
LINE = 10  # points that a line of words is high
LABEL = 6.0  # points
LEAST_EDGED = 1.5  # points; what is thinner has no edge
LEAST_LETTERS = 8  # of a name that is shortened
MOST_VECTORS = 4000  # rectangles; more are drawn as one bitmap inside an SVG or PDF


def write_image(plan: MemoryPlan, path: Any, title: str = "") -> None:
    """Write the picture to `path`, whole or not at all; the suffix selects the format."""
    form = form_of(path)
    content = image_of(plan, form, title)
    with replacing(path) as file:
        file.write(content)


def form_of(path: Any) -> str:
    """ "svg", "png" or "pdf". Raises MXLiteError for another suffix, or if matplotlib is missing."""
    form = os.path.splitext(str(os.fspath(path)))[1].lower().lstrip(".")
    if form not in FORMS:
        raise MXLiteError(f"A picture ends in .svg, .png or .pdf; got {os.fspath(path)!r}.")
    matplotlib()
    return form


def matplotlib() -> Any:
    """The matplotlib package. Raises MXLiteError, with how to install it, if it is missing."""
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError as error:
        raise MXLiteError(
            f"Drawing needs matplotlib ({error}). Install it with: pip install 'mxlite[viz]'"
        ) from None
    return matplotlib


def saved(figure: Any, form: str) -> bytes:
    """The figure as a file; equal figures give equal bytes."""
    buffer = io.BytesIO()
    with matplotlib().rc_context({"svg.hashsalt": "mxlite", "svg.fonttype": "none"}):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph")  # of a name's foreign letters
            dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
            figure.savefig(buffer, format=form, metadata=dates.get(form), dpi=DPI)
    return buffer.getvalue()


def image_of(plan: MemoryPlan, form: str, title: str = "") -> bytes:
    """The picture as a file of this format: address against step, and the live bytes."""
    pyplot = matplotlib()
    with pyplot.rc_context({"font.family": "sans-serif", "font.size": 8, "hatch.linewidth": 0.35}):
        figure = pyplot.figure.Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        steps, arena = max(1, len(plan.schedule.task)), max(1, plan.arena_bytes)
        fixed, budget = plan.problem.fixed_total, plan.budget_bytes
        room = budget - fixed if budget is not None else 0
        top = 1.06 * (room if arena < room < 1.3 * arena else arena)
        unit, name = _unit(arena)
        axes.set_xlim(0, steps)
        axes.set_ylim(0, top / unit)
        drawn = boxes(plan)
        # Points of the figure for each step and byte, near enough.
        wide, high = SIZE[0] * 72 * 0.88 / steps, SIZE[1] * 72 * 0.74 / top
        _draw_boxes(axes, drawn, unit, wide, high)
        live = plan.live_bytes()
        if live:
            axes.stairs([n / unit for n in live], range(steps + 1), baseline=None, color="w", lw=2.2)
            axes.stairs(
                [n / unit for n in live], range(steps + 1), baseline=None, color="#11151c", lw=0.9,
                label="live bytes",
            )  # fmt: skip
            peak = peak_step(plan)
            axes.plot([peak + 0.5], [top / unit], "v", color="#d1007a", ms=6, clip_on=False, zorder=5)
        axes.axhline(arena / unit, color="#222", lw=0.9)
        peak_text = (
            f"peak {format_bytes(plan.peak_bytes)} = arena {format_bytes(plan.arena_bytes)} "
            f"+ fixed {format_bytes(fixed)}"
        )
        # Above its own line, and above the budget's line if that passes there.
        line = room if arena < room and (room - arena) * high < LINE else arena
        axes.annotate(
            peak_text, (steps, line / unit), (-3, 2), textcoords="offset points", ha="right", fontsize=7
        )
        if budget is not None and room <= top:
            axes.axhline(room / unit, color="#b3261e", lw=0.9, ls="--")
            axes.annotate(
                f"budget {format_bytes(budget)}", (0, room / unit), (3, 2), textcoords="offset points",
                color="#b3261e", fontsize=7,
            )  # fmt: skip
        if plan.schedule.num_forward < len(plan.schedule.task):
            axes.axvline(plan.schedule.num_forward, color="#444", lw=0.8, ls=":")
            for text, shift, side in (("forward", -4, "right"), ("backward", 4, "left")):
                axes.annotate(
                    text, (plan.schedule.num_forward, 0), (shift, -24), textcoords="offset points", ha=side,
                    color="#444", annotation_clip=False,
                )  # fmt: skip
        axes.set_xlabel("step", loc="right")
        axes.set_ylabel(f"address in the arena, {name}")
        extra = f"{100 * plan.extra_time:.1f} % extra time, {plan.recomputed:,} operations run again"
        heading = printable(title) or f"Memory plan: {len(plan.problem.tasks):,} operations"
        axes.set_title(f"{heading}\n", loc="left", fontsize=10, fontweight="bold", parse_math=False)
        below = f"{printable(plan.how)}: {extra}; {certificate_of(plan)}"
        axes.text(0, 1.018, below, transform=axes.transAxes, fontsize=7, color="#444", parse_math=False)
        _draw_names(axes, drawn, unit, wide, high)
        handles = [
            pyplot.patches.Patch(facecolor=COLOURS[k], label=MEANINGS[k], hatch=_hatch(k), edgecolor="#fff")
            for k in kinds_in(plan)
        ]
        handles += axes.get_legend_handles_labels()[0]
        figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=7)
        return saved(figure, form)


def _draw_boxes(axes: Any, drawn: Sequence[Box], unit: float, wide: float, high: float) -> None:
    """Draw the boxes; `wide`, `high` are points of the figure for each step and byte. A box thinner than its
    edges is drawn without them, since they would hide its colour."""
    collection = matplotlib().collections.PolyCollection
    many = len(drawn) > MOST_VECTORS
    for kind in KINDS:
        found = [b for b in drawn if b.kind == kind]
        corners = [
            [
                (b.start, b.offset / unit),
                (b.stop, b.offset / unit),
                (b.stop, (b.offset + b.nbytes) / unit),
                (b.start, (b.offset + b.nbytes) / unit),
            ]
            for b in found
        ]
        has_edge = [min((b.stop - b.start) * wide, b.nbytes * high) >= LEAST_EDGED for b in found]
        made = collection(
            corners, facecolor=COLOURS[kind], edgecolor="#fff",
            linewidths=[(0.1 if many else 0.3) * e for e in has_edge], antialiaseds=has_edge,
            rasterized=many, hatch=None if many else _hatch(kind),
        )  # fmt: skip
        axes.add_collection(made)


def _hatch(kind: str) -> str | None:
    return "////" if kind == "recomputed" else None


def _draw_names(axes: Any, drawn: Sequence[Box], unit: float, wide: float, high: float) -> None:
    """Draw names where they fit, in points of the figure: half an em a letter."""
    for b in drawn:
        width, height = (b.stop - b.start) * wide, b.nbytes * high
        lying = height >= LABEL * 1.15 and width >= 24
        upright = not lying and width >= LABEL * 1.25 and height >= 34
        if not (lying or upright):
            continue
        text = fitted(printable(b.names[0]), int(((width if lying else height) - 3) / (0.56 * LABEL)))
        if not text:
            continue
        axes.text(
            (b.start + b.stop) / 2, (b.offset + b.nbytes / 2) / unit, text, fontsize=LABEL, ha="center",
            va="center", rotation=0 if lying else 90, parse_math=False, clip_on=True,
            color="#fff" if b.kind == "forward" else "#111",
        )  # fmt: skip


def fitted(text: str, letters: int) -> str:
    """The text, or its beginning and end around an ellipsis; "" if there is room for too few letters."""
    if len(text) <= letters:
        return text
    if letters < LEAST_LETTERS:
        return ""
    keep = letters - 1
    return f"{text[: -(-keep // 2)]}…{text[len(text) - keep // 2 :]}"


def printable(text: str) -> str:
    """The name without characters that no picture can show and no XML may hold; names come out of files."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:300])


def _unit(nbytes: int) -> tuple[float, str]:
    for exponent, name in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if nbytes >= 2 * 2**exponent:
            return 2.0**exponent, name
    return 1.0, "bytes"
