"""Tables of benchmarks/gpu.py."""

from __future__ import annotations

from harness.table import markdown, number, Spread
from networks.suite import Net
from peers.contest import Entries, Entry

Results = list[tuple[Net, Entries]]
GIB = 2**30
PEERS = {"torch": "PyTorch", "jax": "JAX"}


def of(entries: Entries, precision: str, side: str) -> list[Entry]:
    """Timed columns of one side and precision."""
    return [e for e in entries.values()
            if e.seconds and e.column.side == side and e.column.precision == precision]  # fmt: skip


def fastest(entries: Entries, precision: str, side: str) -> Entry | None:
    """The fastest column of one side and precision."""
    return min(of(entries, precision, side), key=median, default=None)


def median(e: Entry) -> float:
    """Median seconds of a step."""
    assert e.seconds is not None
    return e.seconds.median


def milliseconds(e: Entry | None) -> str:
    if e is None:
        return "-"
    if not e.seconds:
        return e.note[:60] or "-"
    return str(Spread(tuple(s * 1e3 for s in e.seconds.values)))


def times(results: Results, precision: str) -> str:
    """Milliseconds of a step, and the ratios of PyTorch's and JAX's best columns to our best."""
    names: list[str] = []
    for _, entries in results:
        names += [n for n, e in entries.items() if e.column.precision == precision and n not in names]
    if not names:
        return ""
    titles = {n: e.column.title for _, es in results for n, e in es.items()}
    rows = []
    for net, entries in results:
        cells = [milliseconds(entries.get(n)) for n in names]
        rows.append([net.title, *cells, *(_ratio(entries, precision, side) for side in PEERS)])
    best = (f"{title}'s best / mxlite's" for title in PEERS.values())
    return markdown(["ms a step", *(titles[n] for n in names), *best], rows)


def _ratio(entries: Entries, precision: str, side: str) -> str:
    """Ratio of the best columns, with the names of both."""
    ours, theirs = fastest(entries, precision, "ours"), fastest(entries, precision, side)
    if ours is None or theirs is None:
        return "-"
    return f"{number(median(theirs) / median(ours))}: {theirs.column.title} / {ours.column.title}"


def memory(results: Results) -> str:
    """Peak memory in GiB: planned, counted by the allocator, and used on the device."""
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
    """Host microseconds to push one step, and our tasks that are not captured."""
    rows = []
    for net, entries in results:
        for e in entries.values():
            if e.seconds and e.host:
                plan = e.plan or {}
                hosted = f"{plan['on the host']} of {plan['tasks']}" if "tasks" in plan else "-"
                spread = Spread(tuple(s * 1e6 for s in e.host.values))
                rows.append([net.title, f"{e.column.title}, {e.column.precision}", str(spread), hosted])
    return markdown(["network", "column", "host us a step", "kernels on the host"], rows) if rows else ""


def notes(results: Results) -> str:
    rows = [[net.title, f"{e.column.title}, {e.column.precision}", e.note]
            for net, entries in results for e in entries.values() if e.note]  # fmt: skip
    return markdown(["network", "column", "why"], rows) if rows else ""
