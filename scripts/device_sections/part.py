"""One process of a section: start, observe, stop."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .result import Row

if TYPE_CHECKING:
    from . import Section

PROGRAM = Path(__file__).resolve().parent.parent / "device_check.py"
TELLING = 1.0  # seconds for a process to print where it is, before it is killed
ENDING = 5.0  # seconds for all killed processes to end


class Part:
    """`shard` is as "2/12". `path`, with .rows and .log, is where it writes its rows and its output.

    `code` is how it ended: 0, another exit code, or a text; None before that.
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
            # A session of its own, so that its children can be killed with it.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={
                    "MXLITE_GPU_TUNING_SECONDS": str(section.tuning),
                    **os.environ,
                    "PYTHONFAULTHANDLER": "1",
                    **section.env,
                },
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def new_rows(self) -> Iterator[Row]:
        """Rows written since the last call."""
        if not self._rows.exists():
            return
        with open(self._rows, encoding="utf-8", errors="replace") as file:
            file.seek(self._read)
            while (line := file.readline()).endswith("\n"):
                self._read = file.tell()
                yield _row(line)

    def tell(self, number: int) -> None:
        """Send a signal to the process and its children."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, number)

    def close(self, until: float) -> None:
        """Wait for the process until then."""
        try:
            self._process.wait(max(0.01, until - time.monotonic()))
        except subprocess.TimeoutExpired:  # it is blocked in the driver
            self.code = "stopped, and not gone"

    def end(self, limit: float) -> str:
        """How it ended, and the end of its output: its position, if it was stopped."""
        code = f"{self.code} after {limit:.0f} s" if isinstance(self.code, str) else self.code
        try:
            lines = self._log.read_text(errors="replace")[-20000:].splitlines()
        except OSError as error:
            lines = [str(error)]
        lines = [x.strip() for x in lines if x.strip()]
        stacks = [i for i, x in enumerate(lines) if x.startswith(("Thread 0x", "Current thread 0x"))]
        said = lines[: stacks[0]] if stacks else lines
        where = lines[stacks[-1] :][:8] if stacks else []  # the main thread's is the last, innermost first
        return f"ended with {code}: {' / '.join(said[-1:] + where + said[-9:-1])[:1500]}"


def stop(parts: Sequence[Part]) -> None:
    """End all that still run and their children, in a few seconds altogether."""
    running = [p for p in parts if p.is_running]
    for part in parts:
        part.code = "stopped" if part in running else part._process.returncode
    if running:
        for part in running:
            part.tell(signal.SIGUSR1)  # see run_section
        time.sleep(TELLING)
    for part in parts:
        part.tell(signal.SIGKILL)
    until = time.monotonic() + ENDING
    for part in parts:
        part.close(until)


def _row(line: str) -> Row:
    """The row that was written, or one that says that it cannot be read."""
    try:
        row = json.loads(line)
        return {"check": row["check"], "verdict": row["verdict"], "found": row["found"],
                "seconds": row["seconds"]}  # fmt: skip
    except (ValueError, KeyError, TypeError):
        return {"check": "a row that cannot be read", "verdict": "FAIL", "found": line[:400], "seconds": 0.0}
