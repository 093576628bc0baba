"""What the ranks of one machine tell their launcher: a table in a file that all of them map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

RUNNING, ENDED, ABORTED = range(3)
"""States of a rank: at work; ended as it should; has ended the job, and said why."""

PROCESS, STEP, STATE = range(3)
"""Columns of the table: the number of the process, 0 before it has joined; steps begun; state."""


def made(path: Path, ranks: int) -> Any:
    """A new table, (ranks, 3) of int64, all 0."""
    return np.memmap(path, np.int64, "w+", shape=(ranks, 3))


def row_of(path: str | None, rank: int, process: int) -> Any:
    """The row of a rank that is this `process`; of nobody's table if the launcher has none."""
    row = np.zeros(3, np.int64)
    if path is not None:
        row = np.memmap(path, np.int64, "r+").reshape(-1, 3)[rank]
    row[PROCESS] = process
    return row
