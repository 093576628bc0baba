"""Lower bound of a step's time: its matrix products at this machine's peak rate."""

from __future__ import annotations

from harness import markdown
from harness.table import number

from .contest import Entry
from .tables import best, Results, share
from .targets import LEAST

FLOOR = """\
What the products of matrices in a step (layers, attention, convolutions, recurrent networks) would take at
the peak of this machine, {flops:.0f} GFLOP/s in a large float32 product in this run, if all else took no
time; and the ratio to PyTorch that this leaves at most. Convolutions count as the direct algorithm's, so that
Winograd's may be below this floor.

"""
PRODUCTS = (
    "FullyConnected",
    "dense",
    "product",
    "dot",
    "gemm",
    "matmul",
    "onvolution",
    "rnn",
    "RNN",
    "attention",
)
"""Substrings of the names of operators that are essentially matrix products."""


def floor_s(e: Entry | None, peak: dict[str, float]) -> float | None:
    """Seconds of a step's products at this machine's peak rate; None if it was not profiled."""
    if e is None or e.profile is None:
        return None
    own = e.profile["peak"]["flops_per_s"]
    of_products = (k for k in e.profile["kinds"] if any(name in k["op"] for name in PRODUCTS))
    return sum(k["flops"] / max(peak["flops"], own.get(k["type"], 0.0)) for k in of_products)


def floors(results: Results, precision: str, peak: dict[str, float]) -> str:
    """Table of the products' time at the peak rate, and the largest ratio that it allows."""
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
    if not rows:
        return ""
    head = ["products alone", "floor, ms", "of mxlite's step", "of PyTorch's", "ratio at most"]
    table = markdown([*head, f"leaves {LEAST[precision]:g}"], rows)
    return FLOOR.format(flops=peak["flops"] / 1e9) + table
