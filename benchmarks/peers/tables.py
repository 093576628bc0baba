"""What a run of the benchmark says, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import exp, log
from typing import Any

from harness import markdown, Spread
from harness.table import number
from networks.suite import Net

from .column import Column
from .contest import brief, Entries, Entry

MIB = 2**20
SMALL_SHARE = 0.01  # of a step; kinds below are added up
Results = list[tuple[Net, Entries]]

RATES = {"fp32": 1.5, "bf16": 1.2}
LEAST = {"fp32": 1.1, "bf16": 1.0}
INFERENCE, MEMORY, MXNET, BUDGET = 1.2, 0.6, 2.0, 1.3


@dataclass(frozen=True)
class Target:
    """One line of the table of targets. `value` is None where it could not be measured."""

    what: str
    limit: str
    value: float | None
    met: bool
    spread: str = ""

    def row(self) -> tuple[str, str, str, str]:
        if self.value is None:
            return self.what, self.limit, "not measured", "-"
        return self.what, self.limit, number(self.value) + self.spread, "yes" if self.met else "NO"


def mean(values: Iterable[float]) -> float | None:
    """Geometric; None of nothing."""
    found = list(values)
    return exp(sum(map(log, found)) / len(found)) if found else None


def timed(entries: Entries, side: str, precision: str) -> list[Entry]:
    return [
        e
        for e in entries.values()
        if e.seconds and e.column.side == side and e.column.precision == precision and not e.column.alone
    ]


def best(entries: Entries, side: str, precision: str) -> Entry | None:
    """The column of that side and precision with the least median."""
    found = timed(entries, side, precision)
    return min(found, key=lambda e: e.seconds.median) if found else None  # type: ignore[union-attr]


def speed(entries: Entries, side: str, precision: str) -> Spread | None:
    """How many times as fast as the best column of `side` ours is, round by round."""
    ours, theirs = best(entries, "ours", precision), best(entries, side, precision)
    if ours is None or theirs is None or ours.seconds is None or theirs.seconds is None:
        return None
    return theirs.seconds / ours.seconds


def lightness(entries: Entries, precision: str) -> float | None:
    """Our bytes as a share of those of the PyTorch column that takes the least."""
    ours = best(entries, "ours", precision)
    peaks = [e.peak for e in timed(entries, "torch", precision) if e.peak]
    return ours.peak / min(peaks) if ours is not None and ours.peak and peaks else None


def process(entries: Entries, precision: str, what: str) -> float | None:
    """`what` (growth or resident) of our process as a share of that of the PyTorch column with the least."""
    ours = best(entries, "ours", precision)
    found = [n for e in timed(entries, "torch", precision) if (n := e.memory.get(what))]
    own = ours.memory.get(what) if ours is not None else None
    return own / min(found) if own and found else None


def best_seen(results: Results, peak: dict[str, float]) -> dict[str, float]:
    """The machine's peak rates, measured at the start or by a profiler later."""
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
    return f"{nbytes / MIB:.0f}" if nbytes else "-"


def shown(value: object) -> str:
    return "-" if value is None else str(value)


PRODUCTS = ("FullyConnected", "dot", "gemm", "matmul", "onvolution", "rnn", "RNN", "attention")
"""Parts of the names of operators that are products of matrices and little else."""


def floor_s(e: Entry | None, peak: dict[str, float]) -> float | None:
    """Seconds that the products of a step take at the peak of this machine; None if it was not profiled."""
    if e is None or e.profile is None:
        return None
    own = e.profile["peak"]["flops_per_s"]
    of_products = (k for k in e.profile["kinds"] if any(name in k["op"] for name in PRODUCTS))
    return sum(k["flops"] / max(peak["flops"], own.get(k["type"], 0.0)) for k in of_products)


def floors(results: Results, precision: str, peak: dict[str, float]) -> str:
    """How long products alone would take at the peak, and what ratio that leaves at most."""
    rows = []
    for net, entries in results:
        ours, torch = best(entries, "ours", precision), best(entries, "torch", precision)
        least = floor_s(ours, peak)
        if not least or ours is None or ours.seconds is None:
            continue
        row = [net.title, number(1e3 * least), share(least, ours.seconds.median)]
        if torch is None or torch.seconds is None:
            rows.append([*row, "-", "-", "-"])
            continue
        most = torch.seconds.median / least
        row += [share(least, torch.seconds.median), number(most)]
        rows.append([*row, "yes" if most >= LEAST[precision] else "NO"])
    head = ["products alone", "floor, ms", "of mxlite's step", "of PyTorch's", "ratio at most"]
    return markdown([*head, f"leaves {LEAST[precision]:g}"], rows) if rows else ""


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


def memory(results: Results, precision: str) -> str:
    """What the frameworks count themselves."""
    columns = columns_of(results, precision, "torch")
    rows = []
    for net, entries in results:
        ours = best(entries, "ours", precision)
        if ours is not None:
            row = [net.title, mib(ours.memory.get("planned")), mib(ours.memory.get("measured"))]
            row += [mib(entries[n].peak) if n in entries else "-" for n in columns]
            rows.append([*row, share_of(lightness(entries, precision))])
    head = ["MiB", "planned", "measured", *(c.title for c in columns.values()), "measured / least PyTorch"]
    return markdown(head, rows) if rows else ""


def processes(results: Results, precision: str) -> str:
    """What the system counts."""
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


def columns_of(results: Results, precision: str, side: str = "") -> dict[str, Column]:
    """Columns of the rounds, by name."""
    return {
        n: e.column
        for _, entries in results
        for n, e in entries.items()
        if e.column.precision == precision and not e.column.alone and side in ("", e.column.side)
    }


def share_of(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


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
    """The kinds of calls in a step, the longest first."""
    assert e.profile is not None
    step, kinds = e.profile["step"], e.profile["kinds"]
    # Other types may have a higher peak, which the profiler has measured.
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
    """GFLOP/s where arithmetic binds, GB/s where memory does: whichever is nearer to the machine's peak."""
    arithmetic, traffic = kind["flops"] / kind["seconds"], kind["nbytes"] / kind["seconds"]
    if not kind["flops"] and not kind["nbytes"]:
        return "-", "-"
    if arithmetic / most >= traffic / bandwidth:
        return f"{arithmetic / 1e9:.0f} GFLOP/s", f"{100 * arithmetic / most:.0f} %"
    return f"{traffic / 1e9:.1f} GB/s", f"{100 * traffic / bandwidth:.0f} %"


def targets(results: Results, budget: Entries | None, deep: Entries | None) -> list[Target]:
    training = [entries for net, entries in results if net.train]
    found = []
    for precision, limit in RATES.items():
        speeds = [s.median for e in training if (s := speed(e, "torch", precision))]
        found.append(at_least(f"{precision} training, geometric mean", limit, mean(speeds)))
        found.append(at_least(f"{precision} training, slowest", LEAST[precision], min(speeds, default=None)))
    inference = next((e for net, e in results if not net.train), None)
    found.append(of_spread("inference B1, fp32", INFERENCE, inference and speed(inference, "torch", "fp32")))
    for precision in RATES:
        for what, measure in (
            ("peak memory", lightness),
            ("growth of the process", partial(process, what="growth")),
            ("all of the process", partial(process, what="resident")),
        ):
            shares = [x for e in training if (x := measure(e, precision)) is not None]
            value = mean(shares)
            found.append(
                Target(
                    f"{what}, {precision}, geometric mean",
                    f"<= {MEMORY:g}",
                    value,
                    value is not None and value <= MEMORY,
                    f" ({number(min(shares))}-{number(max(shares))})" if shares else "",
                )
            )
    speeds = [s.median for e in training if (s := speed(e, "mxnet", "fp32"))]
    found.append(at_least("against MXNet 1.9.1, geometric mean", MXNET, mean(speeds)))
    third = of_spread("ResNet-50 in 1/3 of eager's peak", BUDGET, budget and speed(budget, "torch", "fp32"))
    if budget is not None and "no plan" in budget["mxlite"].column.title:
        third = replace(third, met=False, spread=third.spread + ", in more bytes")
    found.append(third)
    found.append(of_spread("1001 layers, budgeted", BUDGET, deep and speed(deep, "torch", "fp32")))
    return found


def at_least(what: str, limit: float, value: float | None) -> Target:
    return Target(what, f">= {limit:g}", value, value is not None and value >= limit)


def of_spread(what: str, limit: float, ratio: Spread | None) -> Target:
    if ratio is None:
        return at_least(what, limit, None)
    text = f" ({number(min(ratio.values))}-{number(max(ratio.values))})"
    return Target(what, f">= {limit:g}", ratio.median, ratio.median >= limit, text)
