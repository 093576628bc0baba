"""The arena drawn with characters: address upwards, steps to the right.

Each character stands for the kind that fills most of its rectangle of addresses and steps. Kinds differ by
shape, not colour, so that a log file or a printout shows the same.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...core.bytesize import format_bytes
from .boxes import boxes, KINDS, kinds_in, MEANINGS, peak_step, step_name

if TYPE_CHECKING:
    from ..plan import MemoryPlan

LEAST_WIDTH, MOST_WIDTH = 40, 240
LEAST_FILLED = 0.3  # share of a character's bytes and steps; below it is left empty


class Characters:
    """The character set of a drawing."""

    def __init__(
        self, kinds: str, bars: str, side: str, tick: str, corner: str, base: str, split: str
    ) -> None:
        self.kinds = kinds
        self.bars = bars
        self.side, self.tick, self.corner, self.base, self.split = side, tick, corner, base, split

    @property
    def everything(self) -> str:
        return "".join(vars(self).values())


UNICODE = Characters("█▚▒▤░", " ▁▂▃▄▅▆▇█", "│", "┤", "└", "─", "┴")
ASCII = Characters("#r=h.", " .:-=+*#@", "|", "+", "+", "-", "+")


def drawn(
    plan: MemoryPlan, width: int | None = None, height: int | None = None, unicode: bool | None = None
) -> str:
    """The drawing with a row of live bytes and a key, at most `width` characters wide.

    width: that of the terminal, if None.  height: rows of the arena.  unicode: allow characters beyond
    ASCII; if None, allow them if standard output can show them.
    """
    steps, arena = len(plan.schedule.task), plan.arena_bytes
    if not steps or not arena:
        return "The arena is empty."
    columns = width if width is not None else shutil.get_terminal_size((100, 24)).columns
    columns = min(MOST_WIDTH, max(LEAST_WIDTH, columns))
    label = 11
    columns -= label + 2
    rows = height if height is not None else max(8, min(24, columns // 5))
    signs = UNICODE if (_can_show(UNICODE.everything) if unicode is None else unicode) else ASCII
    grid = _grid(plan, columns, rows)
    lines = [f"{'address':>{label}}"]
    for r in reversed(range(rows)):
        marked = r == rows - 1 or ((r + 1) % max(1, rows // 4) == 0 and r < rows - 2)
        name = format_bytes(arena * (r + 1) // rows) if marked else ""
        text = "".join(signs.kinds[k] if k >= 0 else " " for k in grid[r])
        lines.append(f"{name:>{label}} {signs.tick if marked else signs.side}{text}".rstrip())
    split = min(columns - 1, max(0, round(plan.schedule.num_forward / steps * columns)))
    base = signs.base * columns
    trains = plan.schedule.num_forward < steps
    if trains:
        base = base[:split] + signs.split + base[split + 1 :]
    lines.append(f"{'0 B':>{label}} {signs.corner}{base}")
    lines.append(" " * (label + 2) + _words(columns, split if trains else columns, steps))
    live = _most(plan.live_bytes(), columns)
    top = len(signs.bars) - 1
    bars = "".join(signs.bars[-(-int(n) * top // arena)] for n in live)
    lines.append(f"{'live bytes':>{label}}  {bars}".rstrip())
    peak = peak_step(plan)
    lines.append("")
    lines += _wrapped(
        [f"{sign} {MEANINGS[kind]}" for sign, kind in zip(signs.kinds, KINDS) if kind in kinds_in(plan)],
        columns + label + 2,
    )
    lines.append(f"Fullest at step {peak:,} of {steps:,}: {_plain(step_name(plan, peak))}")
    return "\n".join(
        line if len(line) <= columns + label + 2 else line[: columns + label + 2] for line in lines
    )


def _grid(plan: MemoryPlan, columns: int, rows: int) -> npt.NDArray[np.int64]:
    """The number of a kind, or -1, for each row (lowest addresses first) and column."""
    steps, arena = len(plan.schedule.task), plan.arena_bytes
    filled = np.zeros((len(KINDS), rows, columns))
    for box in boxes(plan):
        x, c = _overlaps(box.start, box.stop, steps, columns)
        y, r = _overlaps(box.offset, box.offset + box.nbytes, arena, rows)
        filled[KINDS.index(box.kind), r : r + len(y), c : c + len(x)] += y[:, None] * x
    most = filled.argmax(0)
    return np.where(filled.sum(0) >= LEAST_FILLED, most, -1)


def _overlaps(start: int, stop: int, whole: int, parts: int) -> tuple[npt.NDArray[np.float64], int]:
    """Shares of equal parts of [0, whole) that [start, stop) covers, and the index of the first part."""
    a, b = start / whole * parts, min(stop / whole, 1.0) * parts
    first = min(int(a), parts - 1)
    edges = np.arange(first, max(first, min(int(np.ceil(b)), parts) - 1) + 2, dtype=np.float64)
    return np.clip(np.minimum(edges[1:], b) - np.maximum(edges[:-1], a), 0, None), first


def _most(live: list[int], columns: int) -> list[int]:
    """The peak of live bytes within each column."""
    steps = len(live)
    return [
        max(live[c * steps // columns : max((c + 1) * steps // columns, c * steps // columns + 1)])
        for c in range(columns)
    ]


def _words(columns: int, split: int, steps: int) -> str:
    """Names of the passes, to be put below the axis."""
    text = [" "] * columns
    end = f"{steps:,} steps"
    for word, at in (
        ("forward", split - 8),
        ("backward", split + 1),
        (end, columns - len(end)),
    ):
        if at >= 0 and all(c == " " for c in text[max(0, at - 1) : at + len(word) + 1]):
            if at + len(word) <= columns:
                text[at : at + len(word)] = word
    return "".join(text).rstrip()


def _wrapped(words: list[str], width: int) -> list[str]:
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 3 + len(word) <= width:
            lines[-1] += f"   {word}"
        else:
            lines.append(word)
    return lines


def _plain(name: str) -> str:
    """A name as printable ASCII; it may come out of a file that holds anything."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in name[:80])


def _can_show(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
        return True
    except (UnicodeEncodeError, LookupError):
        return False
