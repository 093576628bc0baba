"""The heading of a result file: machine, load, versions, date."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).resolve().parent.parent / "results"

PEER_VARIABLE = "MXLITE_MXNET_PYTHON"


def mxnet_python() -> str | None:
    """The interpreter that can `import mxnet` (1.9.1), named by MXLITE_MXNET_PYTHON; None if unset."""
    return os.environ.get(PEER_VARIABLE) or None


def heading(title: str, peer: dict[str, str] | None, beside: str = "in a process of its own") -> str:
    """Heading of a result: what was measured, machine and versions. `peer`: versions of the one beside, {} if
    there is none, None if it is MXNet and was not measured.

    No paths and no host name: results are published.
    """
    import mxlite

    versions = {"python": platform.python_version(), "numpy": np.__version__, "mxlite": mxlite.__version__}
    load = " ".join(f"{x:.2f}" for x in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    lines = [
        f"# {title}, {today()}",
        "",
        f"- machine: {cpu_model()}, {usable_cores()} cores, {memory_gib():.0f} GiB, {platform.system()}",
        f"- load average at the start (1, 5, 15 minutes): {load}",
        "- versions: " + ", ".join(f"{k} {v}" for k, v in versions.items()),
    ]
    if peer is None:
        lines.append(f"- MXNet was not measured: {PEER_VARIABLE} does not name a Python that has it")
    elif peer:
        lines.append(f"- peer, {beside}: " + ", ".join(f"{k} {v}" for k, v in peer.items()))
    return "\n".join(lines) + "\n"


def today() -> str:
    """The date as in file names, UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def write_page(text: str, folder: Path | None, name: str) -> None:
    """Print a page of results, and write it into `folder`, if given, under `name` and today's date."""
    print(text)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{today()}-{name}.md"
        path.write_text(text)
        print(f"written: {path.name}", file=sys.stderr)


def cpu_model() -> str:
    """The processor's own name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def keep_cores(threads: int) -> None:
    """Restrict this process and its children to `threads` cores, where the system supports that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def memory_gib() -> float:
    """Memory of the machine; 0.0 if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return 0.0
