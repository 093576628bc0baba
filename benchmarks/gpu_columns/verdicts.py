"""Targets and whether they were reached, with the columns compared and the number of cells measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import ge, le, lt

from harness.table import markdown, number
from networks.suite import Net
from peers.contest import Entries, Entry

from .batches import Found
from .columns import BUDGETS, MOST_EXTRA, PLENTY, PRECISIONS, ROOM
from .nets import LAUNCH_BOUND
from .report import fastest, median, Results

ABOUT = """\
Counted: cells (a network in a precision) that have a number, of those in which a column of mxlite's was to be
measured. Against: PyTorch's columns that have one there, those that failed named behind. "open": reached as
far as it was measured, but in a cell a column of mxlite's failed, was wrong or had no time; "planned only":
by a plan that was not run.

"""
HEAD = ("on one H200", "target", "reached", "met", "counted", "where", "against")
SIGNS: dict[str, Callable[[float, float], bool]] = {">=": ge, "<=": le, "<": lt}
WITHIN = dict(zip(BUDGETS, (1.2, 1.35)))
"""Targets of ResNet-1001's budgets: time relative to the fastest plan."""


@dataclass(frozen=True)
class Cell:
    """One network in one precision, with all columns that were to be measured."""

    net: Net
    precision: str
    entries: Entries

    @property
    def title(self) -> str:
        return f"{self.net.title}, {self.precision}"

    def of(self, side: str) -> list[Entry]:
        return [e for e in self.entries.values() if e.column.side == side]

    def best(self, side: str) -> Entry | None:
        return fastest(self.entries, self.precision, side)


@dataclass(frozen=True)
class Reached:
    """Result of one cell. ours, theirs: the columns that are compared."""

    cell: Cell
    value: float
    ours: Entry
    theirs: Entry | None = None

    def __str__(self) -> str:
        names = [e.column.title for e in (self.theirs, self.ours) if e is not None]
        return f"{self.cell.title}: {' / '.join(names)}"


def targets(results: Results, deep: Entries | None, batches: Sequence[Found]) -> str:
    """Table of the targets; "-" where nothing was measured."""
    cells = [cell for net, entries in results for cell in cells_of(net, entries)]
    rows = [*steps(cells), peaks(cells), *budgets(deep or {}), *sizes(batches), hosts(cells)]
    return ABOUT + markdown(HEAD, rows)


def cells_of(net: Net, entries: Entries) -> list[Cell]:
    """Cells in which a column of ours was to be measured."""
    parts = {p: {n: e for n, e in entries.items() if e.column.precision == p} for p in PRECISIONS}
    cells = [Cell(net, p, part) for p, part in parts.items()]
    return [c for c in cells if c.of("ours")]


def line(
    what: str,
    target: str,
    value: float | None,
    counted: str,
    lacks: str = "",
    where: str = "-",
    against: str = "-",
    unit: str = "",
) -> list[str]:
    """A row. target: as ">= 1.3"; lacks: what is missing for a "yes"."""
    sign, limit = target.split(" ")
    met = "-"
    if value is not None:
        met = (lacks or "yes") if SIGNS[sign](value, float(limit)) else "NO"
    reached = "-" if value is None else f"{number(value)}{unit}"
    return [what, f"{target}{unit}", reached, met, counted, where, against]


def steps(cells: Sequence[Cell]) -> list[list[str]]:
    """Ratio of PyTorch's best step to ours, in each precision."""
    found = [_step(cell) for cell in cells]
    known = [f for f in found if f is not None]
    mean = math.exp(sum(math.log(f.value) for f in known) / len(known)) if known else None
    what = "step, PyTorch's best / mxlite's best"
    pairs = [(c, f) for c, f in zip(cells, found) if c.net.name in LAUNCH_BOUND]
    small = [c for c, _ in pairs], [f for _, f in pairs]
    return [
        line(f"{what}, geometric mean", ">= 1.0", mean, **_said(cells, found)),
        _least("the same, least of the nets bound by launches", ">= 1.3", *small),
        _least("the same, least of all", ">= 0.85", cells, found),
    ]


def _step(cell: Cell) -> Reached | None:
    ours, theirs = cell.best("ours"), cell.best("torch")
    return Reached(cell, median(theirs) / median(ours), ours, theirs) if ours and theirs else None


def _least(what: str, target: str, cells: Sequence[Cell], found: Sequence[Reached | None]) -> list[str]:
    worst = min((f for f in found if f is not None), key=lambda f: f.value, default=None)
    said = _said(cells, found)
    return line(what, target, worst.value if worst else None, where=str(worst or "-"), **said)


def _said(
    cells: Sequence[Cell], found: Sequence[Reached | None], use: Callable[[Entry], bool] = lambda e: True
) -> dict[str, str]:
    """Number of counted cells, columns compared, and missing columns of ours. use: filter of the columns."""
    ours = [e for c in cells for e in c.of("ours") if use(e)]
    return {
        "counted": f"{sum(f is not None for f in found)} of {len(cells)} cells",
        "lacks": "open" if any(e.note or not e.seconds for e in ours) else "",
        "against": _against([c for c, f in zip(cells, found) if f is not None], cells, use),
    }


def _against(counted: Sequence[Cell], cells: Sequence[Cell], use: Callable[[Entry], bool]) -> str:
    """Titles of PyTorch's columns with the number of cells in which they were timed, if not all; those that
    failed come last.
    """
    timed = [e.column.title for c in counted for e in c.of("torch") if e.seconds and use(e)]
    failed = [e.column.title for c in cells for e in c.of("torch") if not e.seconds and use(e)]
    parts = [t if timed.count(t) == len(counted) else f"{t} ({timed.count(t)})" for t in dict.fromkeys(timed)]
    text = ", ".join(parts) or "-"
    lost = ", ".join(f"{t} ({failed.count(t)})" for t in dict.fromkeys(failed))
    return f"{text}; without {lost}" if lost else text


def peaks(cells: Sequence[Cell]) -> list[str]:
    """Our peak without a budget over the lesser of PyTorch eager and channels_last (compiled recomputes)."""
    found = [_peak(cell) for cell in cells]
    worst = max((f for f in found if f is not None), key=lambda f: f.value, default=None)
    what = "peak memory without a budget / PyTorch's least, the largest"
    said = _said(cells, found, _is_plain)
    return line(what, "<= 0.7", worst.value if worst else None, where=str(worst or "-"), **said)


def _is_plain(e: Entry) -> bool:
    """True for a column with default options: no budget, no compilation, no checkpoints."""
    return not {"memory_budget", "compiled", "checkpointed"} & {*e.column.options}


def _peak(cell: Cell) -> Reached | None:
    ours, theirs = (
        [e for e in cell.of(s) if e.seconds and e.peak and _is_plain(e)] for s in ("ours", "torch")
    )
    if not ours or not theirs:
        return None
    least = min(theirs, key=lambda e: e.peak or 0)
    return Reached(cell, (ours[0].peak or 0) / (least.peak or 1), ours[0], least)


def budgets(deep: Entries) -> list[list[str]]:
    """ResNet-1001's steps relative to the fastest plan's; both candidates for it must have been timed."""
    of = {e.column.options.get("memory_budget"): e for e in deep.values() if e.column.side == "ours"}
    rows = []
    for name, limit in BUDGETS.items():
        wanted = [of.get(n) for n in (None, PLENTY, limit)]
        timed = [e for e in wanted if e is not None and e.seconds and not e.note]
        best = min(timed[:2], key=median) if len(timed) == len(wanted) else None
        rows.append(
            line(
                f"ResNet-1001 B32 within {name}, time / the fastest",
                f"<= {WITHIN[name]}",
                median(timed[2]) / median(best) if best else None,
                f"{len(timed)} of {len(wanted)} columns",
                where=", ".join({e.column.precision for e in timed}) or "-",
                against=best.column.title if best else "-",
            )
        )
    return rows


def sizes(batches: Sequence[Found]) -> list[list[str]]:
    """The largest batches of ResNet-50."""
    ours = next((f for f in batches if f.column.side == "ours"), None)
    theirs = [f for f in batches if f.column.side == "torch"]
    again = [f for f in theirs if "checkpointed" in f.column.options]
    room, extra = f"{ROOM / 1e9:g} GB", f"{100 * MOST_EXTRA:g} %"
    what = f"largest batch of ResNet-50 in {room}, at most {extra} slower / PyTorch eager's"
    plain = [f for f in theirs if f not in again]
    return [
        _size(what, ">= 2", ours, plain),
        _size("the same / PyTorch checkpointing's, the better of two ways", ">= 1.2", ours, again),
    ]


def _size(what: str, target: str, ours: Found | None, theirs: Sequence[Found]) -> list[str]:
    best = max(theirs, key=lambda f: f.batch, default=None)
    known = [f for f in (ours, *theirs) if f is not None and f.batch]
    value = ours.batch / best.batch if ours and ours.batch and best and best.batch else None
    failed = [f.column.title for f in theirs if not f.batch]
    return line(
        what,
        target,
        value,
        f"{len(known)} of {1 + len(theirs)} columns",
        "planned only" if ours and ours.is_planned_only else "",
        "-" if ours is None else f"{ours.batch} images, {ours.column.precision}",
        f"{best.column.title}{'; without ' + ', '.join(failed) if failed else ''}" if best else "-",
    )


def hosts(cells: Sequence[Cell]) -> list[str]:
    """The longest host time of a step of ours without host tasks, so that it is captured."""
    entries = [(c, e) for c in cells for e in c.of("ours")]
    timed = [(c, e) for c, e in entries if e.seconds and e.host and not (e.plan or {}).get("on the host")]
    found = [Reached(c, e.host.median * 1e6, e) for c, e in timed if e.host]
    worst = max(found, key=lambda f: f.value, default=None)
    return line(
        "host time of a captured step, the longest",
        "< 50",
        worst.value if worst else None,
        f"{len(found)} of {len(entries)} columns",
        "open" if any(e.note or not e.seconds for _, e in entries) else "",
        str(worst or "-"),
        unit=" us",
    )
