"""Adds up tables of the readers: python -m torture.readers.total TABLE …"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_ENTRY = re.compile(r"(\w+) (\d+) \((\d+) read, (\d+) s\)")


def totals(texts: Iterable[str]) -> dict[str, Counter[str]]:
    """For each reader its files, those of them that could be read, and its seconds, over all tables."""
    found: dict[str, Counter[str]] = {}
    for text in texts:
        for name, files, read, seconds in _ENTRY.findall(text):
            own = found.setdefault(name, Counter())
            own.update(files=int(files), read=int(read), seconds=int(seconds))
    return found


def table(found: dict[str, Counter[str]]) -> str:
    """The totals as Markdown."""
    rows = [
        ("reader", "corrupted files", "of them readable", "processor time, s"),
        ("---", "---:", "---:", "---:"),
    ]
    rows += [(n, *(str(c[k]) for k in ("files", "read", "seconds"))) for n, c in found.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    print(table(totals(Path(name).read_text() for name in sys.argv[1:])))
