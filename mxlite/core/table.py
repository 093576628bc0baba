"""Tables of text."""

from __future__ import annotations

from collections.abc import Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[object]], left: Sequence[int] = (0,)) -> str:
    """Columns under headings, numbers to the right; columns in `left` to the left."""
    cells = [[printable(str(c)) for c in row] for row in rows]
    widths = [max(len(r[i]) for r in [list(headings), *cells]) for i in range(len(headings))]

    def line(row: Sequence[str]) -> str:
        parts = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))]
        return ("  " + "  ".join(parts)).rstrip()

    return "\n".join([line(headings), line(["-" * w for w in widths]), *map(line, cells)])


def printable(text: str) -> str:
    """`text` with escapes for what a terminal would obey or break: names come out of files."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
