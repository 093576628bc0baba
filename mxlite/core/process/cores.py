"""The number of cores that this process may use: its affinity mask, limited by a container's quota."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

SYSTEM = Path("/")  # tests put a tree of their own here


def available_cores() -> int:
    """Number of cores that this process may run on, at most its quota of processor time; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _quota(SYSTEM)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


@functools.cache
def _quota(system: Path) -> float | None:
    """Cores that the cgroups of this process may use on average; None if there is no limit.

    A limit holds for everything below it, so the least on the way up counts. Both forms of cgroups are
    asked (`cpu.max` of version 2, `cpu.cfs_quota_us` of version 1): Documentation/admin-guide/cgroup-v2.rst
    and Documentation/scheduler/sched-bwc.rst of Linux.
    """
    return min((q for q in (_limit(p) for p in _groups(system)) if q is not None), default=None)


def _groups(system: Path) -> Iterator[Path]:
    """The directories of the process's cgroups and of those above them.

    In a container the path in /proc is often that of the host, of which only the end is mounted: so
    directories that do not exist are ignored later.
    """
    try:
        lines = (system / "proc/self/cgroup").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            roots = ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            roots = [f"sys/fs/cgroup/{controllers}", "sys/fs/cgroup/cpu"]
        else:
            continue
        below = PurePosixPath(path.lstrip("/"))
        for root in roots:
            for part in (below, *below.parents):
                yield system / root / part


def _limit(group: Path) -> float | None:
    """Cores that one cgroup may use; None if it sets no limit or does not say."""
    try:
        if (file := group / "cpu.max").exists():
            quota, period = file.read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        cores = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # not there, or "max"
        return None
    return cores if cores > 0 and math.isfinite(cores) else None  # -1 is no limit
