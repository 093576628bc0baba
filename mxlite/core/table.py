"""Tables of text."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

LEAST_WIDTH = 16  # characters of a column that gives way


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    left: Sequence[int] = (0,),
    gives_way: int | None = None,
) -> str:
    """Columns under headings, numbers to the right; columns in `left` to the left.

    In a terminal that is too narrow the column `gives_way` loses the middle of its longest texts.
    """
    cells = [[printable(str(c)) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in [list(headings), *cells]) for i in range(len(headings))]
    width = terminal_width(sys.stdout)
    if gives_way is not None and width is not None:
        over = sum(widths) + 2 * len(widths) - width
        most = widths[gives_way] = min(widths[gives_way], max(LEAST_WIDTH, widths[gives_way] - over))
        for row in cells:
            row[gives_way] = fitted(row[gives_way], most)

    def line(row: Sequence[str]) -> str:
        parts = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        return ("  " + "  ".join(parts)).rstrip()

    return "\n".join([line(headings), line(["-" * w for w in widths]), *map(line, cells)])


def terminal_width(out: TextIO | None) -> int | None:
    """Characters of a line of the terminal that `out` writes to; None: it is none."""
    try:
        if out is None or not out.isatty():
            return None
    except ValueError:  # closed
        return None
    return shutil.get_terminal_size().columns


def fitted(text: str, most: int) -> str:
    """The text, or its beginning and end around three dots."""
    if len(text) <= most:
        return text
    end = (most - 3) // 2
    return f"{text[: most - 3 - end]}...{text[len(text) - end :]}"


def printable(text: str) -> str:
    """`text` with escapes for what a terminal would obey or break: names come out of files."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
