"""One process of a section: started, watched, stopped."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .result import Row

if TYPE_CHECKING:
    from . import Section

PROGRAM = Path(__file__).resolve().parent.parent / "device_check.py"
ENDING = 5  # seconds that a process that was killed has to be gone


class Part:
    """`shard` is as "2/12". `path`, with .rows and .log, is where it writes its rows, and what it says.

    `code` is what it ended with, once it has: 0, a number, or words.
    """

    def __init__(
        self, section: Section, shard: str, limit: float, args: argparse.Namespace, path: Path
    ) -> None:
        self.shard = shard
        self.code: object = None
        self._rows, self._log = path.with_suffix(".rows"), path.with_suffix(".log")
        self._rows.unlink(missing_ok=True)
        self._read = 0
        command = [sys.executable, str(PROGRAM), "--section", section.name, "--shard", shard]
        command += ["--rows", str(self._rows.resolve()), "--out", str(args.out.resolve())]
        command += ["--seconds", f"{limit * 0.9 - 5:.0f}"]
        command += [f"--{flag}" for flag in ("emulated", "small") if getattr(args, flag)]
        with open(self._log, "w") as log:
            # A session of its own: what it has started itself ends with it.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "PYTHONFAULTHANDLER": "1", **section.env},
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def new_rows(self) -> Iterator[Row]:
        """What it has written since the last time."""
        if not self._rows.exists():
            return
        with open(self._rows, encoding="utf-8") as file:
            file.seek(self._read)
            while (line := file.readline()).endswith("\n"):
                self._read = file.tell()
                yield json.loads(line)

    def stop(self) -> None:
        """End all that still runs of it and of what it has started."""
        self.code = "stopped" if self.is_running else self._process.returncode
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(ENDING)
        except subprocess.TimeoutExpired:  # it waits for the driver, and that for nobody
            self.code = "stopped, and not gone"

    def end(self, limit: float) -> str:
        """How it ended, and what it said last."""
        code = f"{self.code} after {limit:.0f} s" if isinstance(self.code, str) else self.code
        lines = self._log.read_text(errors="replace")[-4000:].splitlines()
        lines = [x.strip() for x in lines if x.strip()]
        return f"ended with {code}: {' / '.join(lines[-1:] + lines[-9:-1])[:1500]}"
