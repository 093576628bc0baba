"""Context of a section: destination of its rows, amount of work, and the GPU."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AGAIN = 8  # least seconds left for a restart after a fault


class Skip(Exception):
    """A check that cannot be made here; the message gives the reason."""


class Checks:
    """Rows of one section, written as they arrive."""

    def __init__(
        self,
        rows: Path,
        out: Path,
        small: bool,
        emulated: bool,
        seconds: float,
        shard: int,
        shards: int,
        after: str = "",
    ) -> None:
        """after: the last check of the process before this one, see `begin_again`."""
        self.rows, self.out, self.small, self.emulated = rows, out, small, emulated
        self.shard, self.shards, self.after = shard, shards, after
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left for this section."""
        return self.end - time.monotonic()

    def need(self, seconds: float) -> None:
        """Raise Skip if less time is left, so that an omitted check is distinguished from a failed one."""
        if self.left < seconds:
            raise Skip(f"{max(0.0, self.left):.0f} s are left of {self.seconds:.0f}, it may need {seconds:g}")

    def row(self, check: str, found: Any, verdict: str = "PASS", seconds: float = 0.0) -> None:
        line = {"check": check, "verdict": verdict, "found": found, "seconds": round(seconds, 2)}
        with open(self.rows, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=str) + "\n")

    @contextlib.contextmanager
    def check(self, name: str) -> Iterator[dict[str, Any]]:
        """Run one check: entries of the dict are its findings, an exception its failure."""
        found: dict[str, Any] = {}
        start = time.monotonic()
        verdict = "PASS"
        try:
            yield found
        except Skip as why:
            verdict, found = "SKIP", {"why": str(why)}
        except Exception as error:
            lines = traceback.format_exception(error)
            place = [s for s in "".join(lines).splitlines() if s.startswith("  File")][-1:]
            said = {"error": f"{type(error).__name__}: {error}"[:1500], "at": "".join(place).strip()}
            found = {**said, **found}  # tables cut off the end
            verdict = "FAIL"
            traceback.print_exc()
        self.row(name, found, verdict, time.monotonic() - start)

    def is_done(self, name: str) -> bool:
        """True if the process before this one has made that check; must be called for each check in order."""
        if not self.after:
            return False
        if name == self.after:
            self.after = ""
        return True

    def go_on(self, device: Any, after: str) -> None:
        """If the check `after` has lost the GPU, restart after it, if there is enough time."""
        if device.fault is not None and self.left > AGAIN:
            self.begin_again(after)

    def begin_again(self, after: str) -> None:
        """Continue after `after` in a new process, since this one has lost its GPU. Does not return."""
        command = [sys.executable, *sys.argv, "--after", after, "--seconds", f"{self.left:.0f}"]
        sys.stdout.flush()
        os.execv(sys.executable, command)

    @contextlib.contextmanager
    def device(self) -> Iterator[None]:
        """Inside, mx.gpu(0) is the device to check."""
        if not self.emulated:
            yield
            return
        from tests.emulators.emulated_driver import emulated_gpus

        with emulated_gpus(capacity=2**31):
            yield
