"""The quick part of benchmarks/gpu.py; its table lies beside this script's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .checks import Checks


def run(checks: Checks) -> None:
    root = Path(__file__).resolve().parents[2]
    with checks.check("benchmarks/gpu.py --quick") as found:
        command = [sys.executable, str(root / "benchmarks" / "gpu.py"), "--quick"]
        # No column may take the time of all others.
        command += ["--output", str(checks.out), "--time", f"{checks.left - 5:.0f}", "--limit", "60"]
        command += ["--emulated"] if checks.emulated else []
        paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": paths}
        asked = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        found["says"] = asked.stdout[-3000:]
        assert asked.returncode == 0, asked.returncode
