"""Ranks on GPUs of their own, joined by NCCL: the programs of tests/dist, and how fast sums are."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mxlite as mx

from .checks import Checks, Skip

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "dist" / "programs"
JOBS = {
    "sums, broadcasts and arrays of ranks": ("sums.py",),
    "statistics of all ranks' batches": ("norms.py",),
    **{
        f"training has the bits of one process: {case}": ("training.py", case)
        for case in ("rows", "momentum", "states that ranks share", "adam, bfloat16")
    },
}
MOST = 4  # ranks
LEAST = 5  # seconds for a job to start, and find its GPUs
LIMIT = 60  # seconds for a job, where the section has less: whoever started it ends it then


def run(checks: Checks) -> None:
    ranks = 2 if checks.emulated else min(MOST, mx.context.num_gpus())
    device = "emulated" if checks.emulated else "gpu"
    for name, (program, *cases) in JOBS.items() if not checks.emulated else ():  # whose own tests run these
        with checks.check(name) as found:
            job(checks, ranks, found, PROGRAMS / program, str(ranks), device, *cases)
    with checks.check("seconds of a sum over ranks, and of a step") as found:
        size = 256 if checks.emulated else 256 << 10
        path = Path(__file__).with_name("rank_speed.py")
        found |= json.loads(job(checks, ranks, found, path, device, str(size)).splitlines()[-1])


def job(checks: Checks, ranks: int, found: dict[str, Any], program: Path, *arguments: str) -> str:
    """The output of a program on as many ranks as there are GPUs; it has to end well. Raises Skip."""
    if ranks < 2:
        raise Skip(f"messages between GPUs need two of them, and this machine has {ranks}")
    if importlib.util.find_spec("mpi4py") is None:
        raise Skip("ranks are started by MPI, and mpi4py is not installed: pip install 'mxlite[mpi]'")
    checks.need(LEAST)
    found["ranks"] = ranks
    line = [sys.executable, "-m", "mxlite.launch", "-n", str(ranks), str(program), *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        line, cwd=ROOT, env=env, capture_output=True, text=True, timeout=max(LIMIT, checks.left)
    )
    assert not ended.returncode, f"status {ended.returncode}\n{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout
