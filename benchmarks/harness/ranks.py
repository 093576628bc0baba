"""Jobs of several ranks, and what rank 0 of one prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))
MARK = "MEASURED "
"""The beginning of the line that rank 0 prints, before its JSON."""


def tell(found: Mapping[str, Any]) -> None:
    """Print what this rank found, for `measured`."""
    print(MARK + json.dumps(found), flush=True)


def measured(
    arguments: Sequence[str], threads: int, limit: float, settings: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The answer of a job with these arguments of mpiexec. RuntimeError if none comes."""
    env = os.environ | {"MXLITE_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [MPIEXEC, *arguments], env=env | dict(settings or {}), capture_output=True, text=True, timeout=limit
    )
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            answer: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return answer
    raise RuntimeError(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
