"""Other programs, asked with a limit that holds even where one waits for a driver that never answers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GOING = 2.0  # seconds that a program which was killed has to be gone; a driver may hold it for ever


@dataclass(frozen=True)
class Answer:
    """What a program said. `code` is None where it did not end in time."""

    code: int | None
    out: str
    err: str

    @property
    def end(self) -> str:
        """How it ended, and its last words."""
        how = "did not end in time" if self.code is None else f"ended with {self.code}"
        return f"{how}: {(self.err or self.out).strip()[-800:]}"


def ask(
    command: Sequence[str], seconds: float, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Answer:
    """Run `command` for so many seconds at most. Raises OSError where there is no such program.

    `subprocess.run` waits for what it has killed, and so for ever for what the kernel does not let go.
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
    except subprocess.TimeoutExpired as gone:  # not gone, or what it has started holds its output
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.poll()
        text = gone.output or b""
        return Answer(None, text.decode(errors="replace") if isinstance(text, bytes) else text, "")
