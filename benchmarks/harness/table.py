"""Tables in Markdown, and numbers with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """Repeated measurements of one thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    def __truediv__(self, other: Spread) -> Spread:
        """Ratios round by round, since a disturbance of a round affects both."""
        return Spread(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(min(self.values))}-{number(max(self.values))})"


def number(value: float) -> str:
    """Three significant digits, no exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table: first column left-aligned, all others right-aligned; aligned in the source too."""
    cells = [[str(c) for c in row] for row in (head, *rows)]
    width = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "| "
        + " | ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, width)))
        + " |"
        for row in cells
    ]
    rule = "| " + " | ".join("-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(width)) + " |"
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"
