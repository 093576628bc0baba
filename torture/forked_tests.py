"""Runs tests of a tree, each time in a fork of one process that has imported the unchanging packages.

Started with the tree as working directory. Requests and replies are lines of JSON: ``{"tests": […],
"seconds": s}`` and ``[status, tail of the output]``; the status is pytest's, minus the number of a signal
that ended the tests, or null if they did not end in time. Nothing of the tree itself is imported before the
fork, so each run sees the files as they are at that moment.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time

_IMPORTED = (
    "pytest",
    "xdist.plugin",
    "pytest_timeout",
    "_hypothesis_pytestplugin",
    "hypothesis",
    "numpy.testing",
)
_TAIL_BYTES = 2000


def serve() -> None:
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_run(asked["tests"], asked["seconds"])), flush=True)


def _run(tests: list[str], seconds: float) -> tuple[int | None, str]:
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            _test(tests, output.fileno())
        status = _ended(child, seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # with the children of its tests
        if status is None:
            os.waitpid(child, 0)
        output.seek(max(output.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
        return status, output.read().decode(errors="replace")


def _test(tests: list[str], output: int) -> None:
    """Run tests in the fork; does not return."""
    status = 3
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((null, 0), (output, 1), (output, 2)):
            os.dup2(old, new)
        sys.path.insert(0, os.getcwd())
        import pytest

        rewritten = (
            "ignore::pytest.PytestAssertRewriteWarning"  # plugins are imported; no test asserts in them
        )
        status = int(pytest.main(["-q", "-x", "-n0", "-p", "no:cacheprovider", "-W", rewritten, *tests]))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _ended(child: int, seconds: float) -> int | None:
    """The exit status; negative for a process that a signal ended; None if it still runs."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


if __name__ == "__main__":
    serve()
