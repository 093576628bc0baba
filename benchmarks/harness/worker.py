"""A second process that measures on request, so that two frameworks can take turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Timer
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parent


def _absolute(env: dict[str, str]) -> dict[str, str]:
    """`env` whose PYTHONPATH says the same wherever the process runs."""
    path = env.get("PYTHONPATH", "")
    whole = [os.path.abspath(part) for part in path.split(os.pathsep) if part]
    return env | ({"PYTHONPATH": os.pathsep.join(whole)} if whole else {})


class Worker:
    """Runs `script` (a file beside this one, or a whole path) with `arguments`; `ask` sends a request and
    waits for the reply.

    Requests and replies are JSON, one a line. Raises RuntimeError, with what the process wrote to its error
    output, when it ends or fails, or takes longer than `limit` seconds; then it is no more.
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

    def ask(self, limit: float | None = None, **request: Any) -> Any:
        """The reply to `request`."""
        if limit is None:
            return self._ask(request)
        late = Event()

        def stop() -> None:
            late.set()
            self.process.kill()

        timer = Timer(limit, stop)
        timer.start()
        try:
            return self._ask(request)
        except RuntimeError:
            if late.is_set():
                raise RuntimeError(f"It took longer than {limit:g} s.") from None
            raise
        finally:
            timer.cancel()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; what it said follows
        # Frameworks may print; replies are marked.
        for line in self.process.stdout:
            if line.startswith(REPLY):
                return json.loads(line[len(REPLY) :])
        self.errors.seek(0)
        raise RuntimeError(f"The process for {request} ended:\n{self.errors.read()[-2000:]}")

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
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
