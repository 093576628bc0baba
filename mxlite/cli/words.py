"""The output of commands: lines, broken between words for a narrow terminal."""

from __future__ import annotations

import sys
import textwrap

from ..core.table import terminal_width

LEAST_WIDTH = 20  # of a broken line


def show(text: str = "", *, aside: bool = False) -> None:
    """Print `text`, at once; `aside`: to standard error.

    In a terminal no line is wider than that, as far as its words allow.
    """
    out = sys.stderr if aside else sys.stdout
    if out is None:  # closed by whoever started this
        return
    if (width := terminal_width(out)) is not None:
        text = "\n".join(_broken(line, width) for line in text.split("\n"))
    print(text, file=out, flush=True)


def _broken(line: str, width: int) -> str:
    """A broken line: it continues below a list item's words, or below the last cell of a table's row."""
    if len(line) <= width:
        return line
    text = line.lstrip(" ")
    at = len(line) - len(text)
    if text.startswith("- "):
        at += 2
    elif (cell := text.rfind("  ")) >= 0:
        at += cell + 2
    if width - at < LEAST_WIDTH:
        return line
    return textwrap.fill(
        line, width, subsequent_indent=" " * at, break_long_words=False, break_on_hyphens=False
    )
