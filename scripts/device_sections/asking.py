"""Runs programs with a time limit that holds even if one waits forever for the driver."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GOING = 2.0  # seconds for a killed program to end; a driver may hold it forever


@dataclass(frozen=True)
class Answer:
    """Result of a program. `code` is None if it did not end in time."""

    code: int | None
    out: str
    err: str

    @property
    def end(self) -> str:
        """How it ended, and the end of its output."""
        how = "did not end in time" if self.code is None else f"ended with {self.code}"
        return f"{how}: {(self.err or self.out).strip()[-800:]}"


def ask(
    command: Sequence[str], seconds: float, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Answer:
    """Run `command` for at most so many seconds. Raises OSError if there is no such program.

    `subprocess.run` waits for the process it has killed, and so forever if the kernel does not release it.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        errors="replace", cwd=cwd, env=env,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=seconds)
        return Answer(process.returncode, out, err)
    except subprocess.TimeoutExpired:
        process.kill()
    try:
        return Answer(None, *process.communicate(timeout=GOING))
    except subprocess.TimeoutExpired as gone:  # not ended, or a child holds its output
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.poll()
        text = gone.output or b""
        return Answer(None, text.decode(errors="replace") if isinstance(text, bytes) else text, "")
