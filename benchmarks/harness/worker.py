"""A second process that measures on request, so that two frameworks can take turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent
LOOK_S = 0.5  # between two looks whether a process that says nothing is still there
ENDING_S = 5.0  # for a process that was killed to be gone; a driver may hold it for longer


def _absolute(env: dict[str, str]) -> dict[str, str]:
    """`env` whose PYTHONPATH says the same wherever the process runs."""
    path = env.get("PYTHONPATH", "")
    whole = [os.path.abspath(part) for part in path.split(os.pathsep) if part]
    return env | ({"PYTHONPATH": os.pathsep.join(whole)} if whole else {})


class Worker:
    """Runs `script` (a file beside this one, or a whole path) with `arguments`; `ask` sends a request and
    waits for the reply.

    Requests and replies are JSON, one a line. Raises RuntimeError, with what the process wrote to its error
    output, when it ends or fails, or takes longer than `limit` seconds; then it is no more. Its output is
    read by a thread: processes that it has started may hold the pipe open when it is long gone.
    """

    def __init__(
        self, python: str, script: str, *arguments: str, env: Mapping[str, str] | None = None
    ) -> None:
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [python, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=_absolute({**os.environ, **(env or {})}),
        )
        self._lines: SimpleQueue[str | None] = SimpleQueue()  # None: the output has ended
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:  # which another process may hold for longer than its own
            for line in output:
                self._lines.put(line)
        self._lines.put(None)

    def ask(self, limit: float | None = None, **request: Any) -> Any:
        """The reply to `request`."""
        end = float("inf") if limit is None else time.monotonic() + limit
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; what it said follows
        while (line := self._line(end)) is not None:
            if line.startswith(REPLY):  # frameworks may print; replies are marked
                return json.loads(line[len(REPLY) :])
            if time.monotonic() > end:
                self.process.kill()
                error = RuntimeError(f"It took longer than {limit:g} s.")
                error.add_note(f"Its process had said:\n{self._said()}")
                raise error
        raise RuntimeError(f"The process for {request} ended:\n{self._said()}")

    def _said(self) -> str:
        """What it has written to its error output, the last of it."""
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def _line(self, end: float) -> str | None:
        """The next line of its output; an empty one at the time `end`, None where none will come."""
        while (left := end - time.monotonic()) > 0:
            was_there = self.process.poll() is None
            try:
                return self._lines.get(timeout=max(0.001, min(LOOK_S, left)))
            except Empty:
                if not was_there:
                    return None
        return ""

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        try:
            self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            pass  # it waits for the driver
        self._reader.join(LOOK_S)
        for pipe in (self.process.stdin, self.errors):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


REPLY = "reply: "


def serve(answer: Any) -> None:
    """The other side: call `answer(**request)` for each line of standard input and print what it returns."""
    for line in sys.stdin:
        print(REPLY + json.dumps(answer(**json.loads(line))), flush=True)
