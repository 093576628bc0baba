"""A worker process that measures on request, so that two frameworks can take turns."""

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
LOOK_S = 0.5  # interval of checks that a silent process is still alive
ENDING_S = 5.0  # for a killed process to end; a driver may delay it further


def _absolute(env: dict[str, str]) -> dict[str, str]:
    """`env` with absolute paths in PYTHONPATH, so that the working directory does not matter."""
    path = env.get("PYTHONPATH", "")
    whole = [os.path.abspath(part) for part in path.split(os.pathsep) if part]
    return env | ({"PYTHONPATH": os.pathsep.join(whole)} if whole else {})


class Worker:
    """Process of `script` (a file next to this one, or a path) with `arguments`; `ask` queries it.

    Requests and replies are JSON, one per line. If the process ends, fails, or takes longer than `limit`
    seconds, RuntimeError is raised with its error output, and it is killed. Its output is read by a thread,
    as processes that it started may hold the pipe open after it has ended.
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
        with self.process.stdout as output:  # which a child may hold open after the process has ended
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
            pass  # it has ended; the error follows
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
        """The end of its error output."""
        self.errors.seek(0)
        return self.errors.read()[-2000:]

    def _line(self, end: float) -> str | None:
        """The next line of its output; an empty one at the time `end`, None if the output has ended."""
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
            pass  # it is blocked in the driver
        self._reader.join(LOOK_S)
        for pipe in (self.process.stdin, self.errors):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


REPLY = "reply: "


def serve(answer: Any) -> None:
    """The worker's side: call `answer(**request)` for each line of standard input and print the result."""
    for line in sys.stdin:
        print(REPLY + json.dumps(answer(**json.loads(line))), flush=True)
