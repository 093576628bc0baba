"""Markdown tables of memory, and of time within a fraction of PyTorch's memory."""

from __future__ import annotations

from harness import markdown, Spread

from .contest import Entries, Entry
from .tables import best, columns_of, mib, ms, Results, shown, timed


def least_peak(entries: Entries, precision: str) -> int | None:
    """Bytes of the PyTorch column with the least peak."""
    return min((e.peak for e in timed(entries, "torch", precision) if e.peak), default=None)


def lightness(entries: Entries, precision: str) -> float | None:
    """Our bytes relative to those of the PyTorch column with the least peak."""
    ours, least = best(entries, "ours", precision), least_peak(entries, precision)
    return ours.peak / least if ours is not None and ours.peak and least else None


def process(entries: Entries, precision: str, what: str) -> float | None:
    """`what` (growth or resident) of our process relative to the least of PyTorch's columns."""
    ours = best(entries, "ours", precision)
    found = [n for e in timed(entries, "torch", precision) if (n := e.memory.get(what))]
    own = ours.memory.get(what) if ours is not None else None
    return own / min(found) if own and found else None


def within(entries: Entries, precision: str) -> Entry | None:
    """Our column within a fraction of PyTorch's least peak."""
    found = (e for e in entries.values() if e.column.share and e.column.precision == precision)
    return next(found, None)


def fits(entries: Entries, precision: str) -> bool | None:
    """True if a step has run within that fraction of the least known peak; None if it was not tried."""
    e, least = within(entries, precision), least_peak(entries, precision)
    if e is None or not e.asked or least is None:
        return None
    return bool(e.seconds and e.peak and e.peak <= e.column.share * least)


def speed_within(entries: Entries, precision: str) -> Spread | None:
    """Speed of ours within that fraction relative to the best PyTorch column, round by round."""
    e = within(entries, precision)
    if e is None or e.seconds is None:
        return None
    ratios = [s / e.seconds for n, s in e.beside.items() if entries[n].column.side == "torch"]
    return min(ratios, key=lambda r: r.median) if ratios else None


def memory(results: Results, precision: str) -> str:
    """Table of the frameworks' own counts, and the minimum of any plan."""
    columns = columns_of(results, precision, "torch")
    rows = []
    for net, entries in results:
        ours = best(entries, "ours", precision)
        if ours is None:
            continue
        plan = ours.plan or {}
        row = [net.title, *(mib(plan.get(k)) for k in ("fixed", "kept"))]
        row += [mib(ours.memory.get(k)) for k in ("planned", "measured")]
        row += [mib(entries[n].peak) if n in entries else "-" for n in columns]
        rows.append([*row, share_of(lightness(entries, precision))])
    titles = [c.title for c in columns.values()]
    head = ["MiB", "fixed", "kept", "planned", "measured", *titles, "measured / least PyTorch"]
    return markdown(head, rows) if rows else ""


def budgeted(results: Results, precision: str) -> str:
    """Bytes and milliseconds within a fraction of PyTorch's least peak, networks as rows."""
    rows: list[list[object]] = []
    share = 0.0
    for net, entries in results:
        e, ours = within(entries, precision), best(entries, "ours", precision)
        if e is None or not e.asked:
            continue
        share = e.column.share
        row = [net.title, mib(e.asked)]
        if e.seconds is None or ours is None:
            least = f"no plan; the least takes {mib(e.least)}" if e.least > e.asked else e.note
            rows.append([*row, mib(e.least), *["-"] * 4, least])
            continue
        own = e.beside.get(ours.column.name)
        measured = "-" if own is None else percent((e.seconds / own).median - 1)
        planned = percent(e.plan["extra_time"]) if e.plan else "-"
        ratio = shown(speed_within(entries, precision))
        rows.append([*row, mib(e.peak), ms(e), planned, measured, ratio, e.plan["method"] if e.plan else "-"])
    head = [
        f"within {share:g}",
        "budget MiB",
        "measured",
        "ms a step",
        "planned extra time",
        "measured extra time",
    ]
    return markdown([*head, "best PyTorch / mxlite", "how"], rows) if rows else ""


def processes(results: Results, precision: str) -> str:
    """Table of resident memory as the system counts it."""
    columns = columns_of(results, precision)
    if not columns:
        return ""
    rows = []
    for net, entries in results:
        row = [net.title]
        for n in columns:
            e = entries.get(n)
            found = e is not None and e.seconds and e.memory
            row.append(f"{mib(e.memory.get('growth'))} of {mib(e.memory.get('resident'))}" if found else "-")
        rows.append([*row, *(share_of(process(entries, precision, w)) for w in ("growth", "resident"))])
    head = ["MiB", *(c.title for c in columns.values()), "growth / least", "all / least"]
    return markdown(head, rows) if rows else ""


def share_of(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"
