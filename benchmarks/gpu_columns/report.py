"""Tables of benchmarks/gpu.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.table import markdown, number, Spread
from networks.suite import Net
from peers.contest import Entries, Entry

from .columns import PRECISIONS
from .nets import LAUNCH_BOUND

Results = list[tuple[Net, Entries]]
GIB = 2**30
PEERS = {"torch": "PyTorch", "jax": "JAX"}


def of(entries: Entries, precision: str, side: str) -> list[Entry]:
    """Timed columns of one side and precision."""
    return [e for e in entries.values()
            if e.seconds and e.column.side == side and e.column.precision == precision]  # fmt: skip


def milliseconds(e: Entry | None) -> str:
    if e is None:
        return "-"
    if not e.seconds:
        return e.note[:60] or "-"
    return str(Spread(tuple(s * 1e3 for s in e.seconds.values)))


def times(results: Results, precision: str) -> str:
    """Milliseconds of a step, and the best of PyTorch's, and of JAX's, over ours."""
    names: list[str] = []
    for _, entries in results:
        names += [n for n, e in entries.items() if e.column.precision == precision and n not in names]
    if not names:
        return ""
    titles = {n: e.column.title for _, es in results for n, e in es.items()}
    rows = []
    for net, entries in results:
        ratios = [speed(entries, precision, side) for side in PEERS]
        cells = [milliseconds(entries.get(n)) for n in names]
        rows.append([net.title, *cells, *("-" if r is None else number(r) for r in ratios)])
    best = (f"{title}'s best / mxlite" for title in PEERS.values())
    return markdown(["ms a step", *(titles[n] for n in names), *best], rows)


def speed(entries: Entries, precision: str, side: str = "torch") -> float | None:
    """The best time of that side, PyTorch unless told otherwise, over ours; above 1 ours is faster."""
    ours, theirs = of(entries, precision, "ours"), of(entries, precision, side)
    if not ours or not theirs:
        return None
    return min(_median(e) for e in theirs) / _median(ours[0])


def _median(e: Entry) -> float:
    assert e.seconds is not None
    return e.seconds.median


def memory(results: Results) -> str:
    """GiB at the peak: planned, the allocator's own count, and what is gone from the device."""
    rows = []
    for net, entries in results:
        for e in entries.values():
            if not e.memory:
                continue
            planned = e.memory.get("planned")
            rows.append([net.title, f"{e.column.title}, {e.column.precision}", _gib(planned), _gib(e.peak),
                         _gib(e.memory.get("gone"))])  # fmt: skip
    return markdown(["network", "column", "planned GiB", "peak GiB", "gone GiB"], rows) if rows else ""


def _gib(nbytes: int | None) -> str:
    return "-" if nbytes is None else f"{nbytes / GIB:.3f}"


def host(results: Results) -> str:
    """Microseconds that the host needs to push one step, and what of ours is not captured."""
    rows = []
    for net, entries in results:
        for e in entries.values():
            if e.seconds and "host_s" in e.memory:
                plan = e.plan or {}
                hosted = f"{plan['on the host']} of {plan['tasks']}" if "tasks" in plan else "-"
                rows.append([net.title, f"{e.column.title}, {e.column.precision}",
                             number(e.memory["host_s"] * 1e6), hosted])  # fmt: skip
    return markdown(["network", "column", "host us a step", "kernels on the host"], rows) if rows else ""


def notes(results: Results) -> str:
    rows = [[net.title, f"{e.column.title}, {e.column.precision}", e.note]
            for net, entries in results for e in entries.values() if e.note]  # fmt: skip
    return markdown(["network", "column", "why"], rows) if rows else ""


def targets(results: Results, deep: Entries | None, batches: Sequence[dict[str, Any]]) -> str:
    """What was promised, and what was reached; "-" where it was not measured."""
    ratios = {(net.name, p): r for net, es in results for p in PRECISIONS if (r := speed(es, p)) is not None}
    rows = []

    def row(what: str, target: str, value: float | None, met: bool, unit: str = "") -> None:
        rows.append([what, target, "-" if value is None else f"{number(value)}{unit}",
                     "-" if value is None else "yes" if met else "NO"])  # fmt: skip

    logs = [math.log(r) for r in ratios.values()]
    mean = math.exp(sum(logs) / len(logs)) if logs else None
    row("step, PyTorch's best / mxlite, geometric mean", ">= 1.0", mean, (mean or 0) >= 1)
    small = [r for (n, _), r in ratios.items() if n in LAUNCH_BOUND]
    row("the same, least of the nets bound by launches", ">= 1.3", min(small, default=None),
        min(small, default=0) >= 1.3)  # fmt: skip
    row("the same, least of all", ">= 0.85", min(ratios.values(), default=None),
        min(ratios.values(), default=0) >= 0.85)  # fmt: skip
    peaks = [
        _peak(es, p, "ours") / _peak(es, p, "torch", "eager")
        for _, es in results for p in PRECISIONS
        if _peak(es, p, "ours") and _peak(es, p, "torch", "eager")
    ]  # fmt: skip
    worst = max(peaks, default=None)
    row("peak memory / PyTorch eager's, the largest", "<= 0.7", worst, (worst or 9) <= 0.7)
    for name, most in (("7 GiB", 1.2), ("4 GiB", 1.35)):
        found = (deep or {}).get(name)
        own = [_median(e) for n, e in (deep or {}).items() if n in ("mxlite", "kept") and e.seconds]
        extra = _median(found) / min(own) if found and found.seconds and own else None
        row(f"ResNet-1001 B32 within {name}, time / the fastest", f"<= {most}", extra, (extra or 9) <= most)
    sizes = {b["column"]: b.get("batch") for b in batches}
    ours, eager = sizes.get("mxlite"), sizes.get("PyTorch eager")
    again = sizes.get("PyTorch, checkpointed")
    more = ours / eager if ours and eager else None
    row("largest batch of ResNet-50 in 8 GB / PyTorch eager's", ">= 2", more, (more or 0) >= 2)
    more = ours / again if ours and again else None
    row("the same / PyTorch checkpointing's", ">= 1.2", more, (more or 0) >= 1.2)
    own = [e for _, es in results for e in es.values() if e.column.side == "ours" and "host_s" in e.memory]
    hosts = [e.memory["host_s"] * 1e6 for e in own if not (e.plan or {}).get("on the host")]
    row("host time of a captured step, the longest", "< 50 us", max(hosts, default=None),
        max(hosts, default=99) < 50, " us")  # fmt: skip
    return markdown(["on one H200", "target", "reached", "met"], rows)


def _peak(entries: Entries, precision: str, side: str, name: str = "") -> int:
    found = [e.peak or 0 for e in of(entries, precision, side) if e.column.name.startswith(name)]
    return min(found, default=0)
