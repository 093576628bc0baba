"""Memory against depth or length on logarithmic axes: a power law is a line, its exponent the slope."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

MIB = 2**20

OURS = {
    # what, colour, label
    "none": ("#b0b0b0", "none"),
    "in_place": ("#e6a93c", "in-place"),
    "sharing": ("#d1495b", "sharing"),
    "drop_cheap": ("#7f62b3", "drop cheap"),
    "sublinear": ("#1f77b4", "sublinear, one more forward"),
    "least": ("#2a9d5c", "least"),
}
PEERS = {
    "none": ("#b0b0b0", "v"),
    "in_place": ("#e6a93c", "D"),
    "sharing": ("#d1495b", "s"),
    "memonger": ("#1f77b4", "o"),
}
PEER_LABELS = {
    "none": "MXNet, no reuse",
    "in_place": "MXNet in-place",
    "sharing": "MXNet sharing",
    "memonger": "memonger",
}


def draw(families: dict[str, list[Any]], folder: Path, stem: str, form: str) -> dict[str, str]:
    """Draw one figure per family; family -> file name. Empty, with a notice, if matplotlib is missing.

    Lines are mxlite's strategies, open markers MXNet's and memonger's plans for the same network.
    """
    try:
        import matplotlib
    except ImportError:
        print("No plots: matplotlib is not installed (pip install mxlite[viz]).", file=sys.stderr)
        return {}
    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Fixed settings, so that the same data give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "mxlite", "svg.fonttype": "none", "font.size": 10})
    drawn = {}
    for name, rows in families.items():
        if len(rows) < 2:
            continue
        figure, axes = pyplot.subplots(figsize=(8, 5.2), layout="constrained")
        curves(axes, rows)
        axes.set(
            xlabel="depth (weight layers)" if name.startswith("ResNet") else "steps of the unrolled LSTM"
        )
        axes.set_ylabel("planned memory (arena and outputs)")
        axes.set_title(name)
        path = folder / f"{stem}-{name.lower().replace(', ', '-').replace(' ', '-')}.{form}"
        figure.savefig(path, dpi=110, metadata={"Date": None} if form == "svg" else None)
        pyplot.close(figure)
        drawn[name] = path.name
    return drawn


def curves(axes: Any, rows: list[Any]) -> None:
    """Draw everything inside one pair of axes."""
    from matplotlib.ticker import FuncFormatter, NullLocator, ScalarFormatter

    sizes = [r.size for r in rows]
    for key, (colour, label) in OURS.items():
        values = [getattr(r, key) for r in rows]
        nbytes = [v[0] if isinstance(v, tuple) else v for v in values]
        axes.plot(
            sizes, [n / MIB for n in nbytes], color=colour, marker=".", linewidth=1.6, label=f"mxlite {label}"
        )
    for key, (colour, marker) in PEERS.items():
        points = [(r.size, getattr(r.measured, key)) for r in rows if r.measured is not None]
        points = [p for p in points if p[1] is not None]
        if points:
            axes.plot(
                *zip(*points), linestyle="", marker=marker, markersize=7, color=colour, fillstyle="none",
                markeredgewidth=1.4, label=PEER_LABELS[key],
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(sizes)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda v, _: f"{v / 1024:g} GiB" if v >= 1024 else f"{v:g} MiB")
    )
    axes.grid(True, color="#e4e4e4")
    axes.set_axisbelow(True)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
