"""Markdown tables of a benchmark run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Any

from harness import markdown, Spread
from harness.table import number
from networks.suite import Net

from .column import Column
from .contest import brief, Entries, Entry

MIB = 2**20
SMALL_SHARE = 0.01  # of a step; kinds below it are summed
Results = list[tuple[Net, Entries]]


def mean(values: Iterable[float]) -> float | None:
    """Geometric mean; None if there are no values."""
    found = list(values)
    return exp(sum(map(log, found)) / len(found)) if found else None


def timed(entries: Entries, side: str, precision: str) -> list[Entry]:
    return [
        e
        for e in entries.values()
        if e.seconds and e.column.side == side and e.column.precision == precision and e.column.in_rounds
    ]


def best(entries: Entries, side: str, precision: str) -> Entry | None:
    """The column of that side and precision with the least median."""
    found = timed(entries, side, precision)
    return min(found, key=lambda e: e.seconds.median) if found else None  # type: ignore[union-attr]


def speed(entries: Entries, side: str, precision: str) -> Spread | None:
    """Our speed relative to the best column of `side`, round by round.

    Columns may have been measured in different runs, each of which had ours in its rounds.
    """
    ours = best(entries, "ours", precision)
    if ours is None or ours.seconds is None:
        return None
    ratios = []
    for e in timed(entries, side, precision):
        own = e.beside.get(ours.column.name, ours.seconds if e.part == ours.part else None)
        if own is not None and e.seconds is not None:
            ratios.append(e.seconds / own)
    return min(ratios, key=lambda r: r.median) if ratios else None


def best_seen(results: Results, peak: dict[str, float]) -> dict[str, float]:
    """The machine's peak rates, measured at the start or later by a profiler."""
    found = [e.profile["peak"] for _, entries in results for e in entries.values() if e.profile]
    return {
        "flops": max([peak["flops"], *(p["flops_per_s"].get("float32", 0.0) for p in found)]),
        "bandwidth": max([peak["bandwidth"], *(p["bytes_per_s"] for p in found)]),
    }


def ms(e: Entry | None) -> str:
    if e is None:
        return "-"
    if e.seconds is None:
        return "wrong" if e.note.startswith("wrong") else "-"
    return str(Spread(tuple(1e3 * s for s in e.seconds.values)))


def mib(nbytes: int | None) -> str:
    return number(nbytes / MIB) if nbytes else "-"


def shown(value: object) -> str:
    return "-" if value is None else str(value)


def times(results: Results, precision: str) -> str:
    """Milliseconds of a step in each column of one precision, and ratios."""
    columns = columns_of(results, precision)
    if not columns:
        return ""
    has_mxnet = any(c.side == "mxnet" for c in columns.values())
    head = ["ms a step", *(c.title for c in columns.values()), "best PyTorch / mxlite"]
    rows = []
    for net, entries in results:
        row: list[object] = [net.title, *(ms(entries.get(n)) for n in columns)]
        row.append(shown(speed(entries, "torch", precision)))
        if has_mxnet:
            row.append(shown(speed(entries, "mxnet", precision)))
        rows.append(row)
    return markdown([*head, *(["MXNet / mxlite"] if has_mxnet else [])], rows)


def fallback(results: Results) -> str:
    rows = []
    for net, entries in results:
        e, ours = entries.get("numpy"), entries.get("mxlite")
        if e is None or e.seconds is None or ours is None or ours.seconds is None:
            continue
        torch = best(entries, "torch", "fp32")
        rows.append(
            (
                net.title,
                number(1e3 * e.seconds.median),
                number(e.seconds.median / ours.seconds.median),
                number(e.seconds.median / torch.seconds.median) if torch and torch.seconds else "-",
            )
        )
    return markdown(["ms a step", "numpy only", "/ mxlite", "/ best PyTorch"], rows) if rows else ""


def columns_of(results: Results, precision: str, side: str = "") -> dict[str, Column]:
    """Columns of the rounds, by name."""
    return {
        n: e.column
        for _, entries in results
        for n, e in entries.items()
        if e.column.precision == precision and e.column.in_rounds and side in ("", e.column.side)
    }


def losses(results: Results) -> str:
    rows = [
        (
            net.title,
            e.column.title,
            brief(e.losses),
            "-" if e.difference is None else f"{e.difference:.1e}",
            f"{e.first_s:.0f}" if e.first_s else "-",
        )
        for net, entries in results
        for e in entries.values()
        if e.losses
    ]
    return markdown(["network", "column", "losses of the first steps", "difference", "ready after s"], rows)


def notes(results: Results) -> str:
    found: dict[str, list[str]] = {}
    for net, entries in results:
        for e in entries.values():
            if e.note:
                found.setdefault(f"{e.column.title}: {e.note}", []).append(net.title)
    return "".join(
        f"- {text} ({'all networks' if len(nets) == len(results) > 1 else ', '.join(nets)})\n"
        for text, nets in found.items()
    )


def contest(entries: Entries, head: str, per: float = 1.0, unit: str = "ms") -> str:
    """Columns of one special contest as rows."""
    rows = []
    for e in entries.values():
        time = "-"
        if e.seconds:
            scale = per * (1e3 if unit == "ms" else 1.0)
            time = str(Spread(tuple(scale * s for s in e.seconds.values)))
        extra = f"{100 * e.plan['extra_time']:.0f} %" if e.plan else "-"
        rows.append((e.column.title, time, mib(e.peak), mib(e.memory.get("growth")), extra, e.note or "-"))
    return markdown([head, unit, "peak MiB", "growth MiB", "planned extra time", "note"], rows)


def profile(e: Entry, peak: dict[str, float]) -> str:
    """Table of the kinds of calls in a step, longest first."""
    assert e.profile is not None
    step, kinds = e.profile["step"], e.profile["kinds"]
    # Other types may have a higher peak, as measured by the profiler.
    arithmetic = {t: max(peak["flops"], v) for t, v in e.profile["peak"]["flops_per_s"].items()}
    large = [k for k in kinds if k["seconds"] >= SMALL_SHARE * step]
    rows: list[Sequence[object]] = []
    for k in large:
        kernel = k["kernel"] + (f", {k['type']}" if k["type"] not in ("", "float32") else "")
        most = arithmetic.get(k["type"], peak["flops"])
        rows.append(
            (
                f"{k['op']} [{kernel}]" if kernel else k["op"],
                f"{k['calls']:.0f}",
                number(1e3 * k["seconds"]),
                share(k["seconds"], step),
                *rate(k, most, peak["bandwidth"]),
            )
        )
    small = [k for k in kinds if k not in large]
    for what, calls, seconds in (
        (
            f"{len(small)} other kinds",
            f"{sum(k['calls'] for k in small):.0f}",
            sum(k["seconds"] for k in small),
        ),
        ("between calls", "-", step - sum(k["seconds"] for k in kinds)),
    ):
        rows.append((what, calls, number(1e3 * seconds), share(seconds, step), "-", "-"))
    return markdown(["operator [kernel]", "calls", "ms", "share", "rate", "of the peak"], rows)


def share(seconds: float, step: float) -> str:
    return f"{100 * seconds / step:.1f} %"


def rate(kind: dict[str, Any], most: float, bandwidth: float) -> tuple[str, str]:
    """GFLOP/s if arithmetic is the bottleneck, GB/s if memory is: whichever is nearer to its peak."""
    arithmetic, traffic = kind["flops"] / kind["seconds"], kind["nbytes"] / kind["seconds"]
    if not kind["flops"] and not kind["nbytes"]:
        return "-", "-"
    if arithmetic / most >= traffic / bandwidth:
        return f"{arithmetic / 1e9:.0f} GFLOP/s", f"{100 * arithmetic / most:.0f} %"
    return f"{traffic / 1e9:.1f} GB/s", f"{100 * traffic / bandwidth:.0f} %"
