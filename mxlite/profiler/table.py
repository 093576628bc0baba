"""Sums over the record: time, rates and share of the machine's peak for each kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..core.table import table
from .recorder import RecordedCall

SORTS = ("total", "avg", "min", "max", "count")


@dataclass
class Row:
    """All calls of one kernel of one operator."""

    kind: str
    operator: str
    kernel: str
    dtype: str
    seconds: list[float] = field(default_factory=list)
    flops: float = 0.0
    nbytes: int = 0
    ideal_s: float = 0.0  # at the machine's peak

    @property
    def total(self) -> float:
        return sum(self.seconds)

    def rank(self, by: str) -> float:
        """The sort key of a table."""
        return {
            "total": self.total,
            "avg": self.total / len(self.seconds),
            "min": min(self.seconds),
            "max": max(self.seconds),
            "count": float(len(self.seconds)),
        }[by]


def rows_of(
    calls: Iterable[RecordedCall], ideal: Callable[[str, float, int], float] | None = None
) -> list[Row]:
    """A row for each kind, operator, kernel and dtype. `ideal(dtype, flops, nbytes)` is the least time."""
    rows: dict[tuple[str, str, str, str], Row] = {}
    for call in calls:
        f = call.facts
        key = (call.kind, f.operator, f.kernel, f.dtype)
        row = rows.setdefault(key, Row(*key))
        row.seconds.append((call.stop - call.start) / 1e9)
        row.flops += f.flops
        row.nbytes += f.nbytes
        if ideal is not None and f.nbytes:
            row.ideal_s += ideal(f.dtype, f.flops, f.nbytes)
    return list(rows.values())


HEADINGS = (
    "operator", "kernel", "calls", "total ms", "share", "median us", "min us", "max us",
    "GFLOP/s", "GB/s", "of peak",
)  # fmt: skip


def table_of(rows: list[Row], sort_by: str, ascending: bool) -> str:
    """The rows as text, each kind under its own heading, shares those of the kind."""
    parts = []
    titles = {
        "program": "Kernels of bound programs",
        "operator": "Operations on arrays",
        "Custom Operator": "Inside operators of your own",
        "engine": "Everything else the engine ran",
    }
    for kind, title in titles.items():
        chosen = [r for r in rows if r.kind == kind]
        if not chosen:
            continue
        chosen.sort(key=lambda r: r.rank(sort_by), reverse=not ascending)
        whole = sum(r.total for r in chosen) or 1.0
        parts.append(
            f"{title}, {1e3 * whole:.3f} ms\n\n" + table(HEADINGS, [_cells(r, whole) for r in chosen], (0, 1))
        )
    return "\n\n".join(parts) or "Nothing was recorded."


def _cells(row: Row, whole: float) -> tuple[str, ...]:
    total = row.total or 1e-9
    rated = bool(row.nbytes)
    return (
        row.operator,
        row.kernel + ("" if row.dtype in ("", "float32") else f" ({row.dtype})"),
        str(len(row.seconds)),
        f"{1e3 * row.total:.3f}",
        f"{100 * row.total / whole:.1f} %",
        f"{1e6 * median(row.seconds):.1f}",
        f"{1e6 * min(row.seconds):.1f}",
        f"{1e6 * max(row.seconds):.1f}",
        f"{row.flops / total / 1e9:.2f}" if row.flops else "-",
        f"{row.nbytes / total / 1e9:.2f}" if rated else "-",
        f"{100 * row.ideal_s / total:.0f} %" if row.ideal_s else "-",
    )


def summary_of(rows: list[Row], sort_by: str, ascending: bool) -> dict[str, Any]:
    """MXNet's form: number and times of calls, in milliseconds, by kind and operator name.

    Memory is planned here, not allocated by operators: there is nothing to list.
    """
    kinds: dict[str, dict[str, Row]] = {}
    for r in rows:
        whole = kinds.setdefault(r.kind, {}).setdefault(r.operator, Row(r.kind, r.operator, "", ""))
        whole.seconds += r.seconds
    return {
        "Time": {
            kind: {
                r.operator: {
                    "Count": len(r.seconds),
                    "Total": 1e3 * r.total,
                    "Min": 1e3 * min(r.seconds),
                    "Max": 1e3 * max(r.seconds),
                    "Avg": 1e3 * r.total / len(r.seconds),
                }
                for r in sorted(found.values(), key=lambda r: r.rank(sort_by), reverse=not ascending)
            }
            for kind, found in kinds.items()
        },
        "Memory": {},
        "Unit": {"Time": "ms", "Memory": "kB"},
    }


def data_of(rows: list[Row], sort_by: str, ascending: bool) -> list[dict[str, Any]]:
    """The rows as data, times in milliseconds as in MXNet."""
    rows = sorted(rows, key=lambda r: r.rank(sort_by), reverse=not ascending)
    return [
        {
            "Kind": r.kind,
            "Operator": r.operator,
            "Kernel": r.kernel,
            "Type": r.dtype,
            "Count": len(r.seconds),
            "Total": 1e3 * r.total,
            "Median": 1e3 * median(r.seconds),
            "Min": 1e3 * min(r.seconds),
            "Max": 1e3 * max(r.seconds),
            "Avg": 1e3 * r.total / len(r.seconds),
            "Flops": r.flops,
            "Bytes": r.nbytes,
            "OfPeak": r.ideal_s / r.total if r.ideal_s and r.total else None,
        }
        for r in rows
    ]
