"""The quick part of benchmarks/gpu.py; its table is written next to this script's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .checks import Checks

ENDING = 16  # seconds that it may exceed its limit


def run(checks: Checks) -> None:
    root = Path(__file__).resolve().parents[2]
    with checks.check("benchmarks/gpu.py --quick") as found:
        command = [sys.executable, str(root / "benchmarks" / "gpu.py"), "--quick"]
        # No column may use the time of the others, and ours must compile and time kernels first.
        limit = checks.left if checks.emulated else 90  # the emulator's compiler is slow
        command += [
            "--output",
            str(checks.out),
            "--time",
            f"{max(0.0, checks.left - ENDING):.0f}",
            "--limit",
            f"{limit:.0f}",
        ]
        command += ["--emulated"] if checks.emulated else []
        paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": paths}
        process = subprocess.Popen(command, env=environment)  # its output goes to our log
        try:
            code = process.wait(max(1.0, checks.left))
        except subprocess.TimeoutExpired:
            process.kill()
            code = None
        written = sorted(checks.out.glob("*-gpu.md"))
        found["files"] = [p.name for p in written]
        found["says"] = "".join(p.read_text(encoding="utf-8") for p in written)
        assert code == 0, "it did not end in time" if code is None else f"it ended with {code}"
