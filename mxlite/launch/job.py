"""A job of ranks on this machine, and which of them was killed first, if one was.

MPI's launcher ends the other ranks within milliseconds, and names the process that it has lost. So this one
watches all processes, and knows from their table (`comm/job_table.py`) which rank one is, and in which step.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..comm import job_table

POLL_MS = 200
"""Milliseconds between two looks for ranks that have joined."""


def run(line: Sequence[str], ranks: int) -> int:
    """Run the command of a launcher of MPI's; its exit status."""
    with tempfile.TemporaryDirectory(prefix="mxlite-job-") as folder:
        path = Path(folder, "ranks")
        table = job_table.made(path, ranks)
        process = subprocess.Popen(line, env=os.environ | {"MXLITE_JOB_TABLE": str(path)})
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher gets it as well, and ends the ranks
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        lost = _first_lost(process, table)
        status = process.wait()
        if status and lost and not (table[:, job_table.STATE] == job_table.ABORTED).any():
            which = " or ".join(f"rank {r} in step {table[r, job_table.STEP]}" for r in lost)
            print(f"mxlite: the first to be lost was {which}. The job ends.", file=sys.stderr, flush=True)
    return status if status >= 0 else 128 - status


def _first_lost(process: subprocess.Popen[bytes], table: Any) -> list[int]:
    """The rank that ended first without having said so; several if they ended between two looks."""
    watched: dict[int, int] = {}  # ranks by the descriptors of their processes
    known, lost, ends = set[int](), list[int](), select.poll()
    while process.poll() is None:
        for rank, (number, _, _) in enumerate(table.tolist()):
            if number and rank not in known:
                known.add(rank)
                try:
                    descriptor = os.pidfd_open(number)
                except OSError:
                    continue  # it is over already
                watched[descriptor] = rank
                ends.register(descriptor, select.POLLIN)
        ended = [descriptor for descriptor, _ in ends.poll(POLL_MS)]
        found = [r for d in ended if table[r := watched[d], job_table.STATE] == job_table.RUNNING]
        lost = lost or found
        for descriptor in ended:
            ends.unregister(descriptor)
            os.close(descriptor)
    return lost
