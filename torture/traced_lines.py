"""A pytest plugin that records which tests run which lines of some files.

    pytest -p torture.traced_lines --lines-of a.py --lines-of b.py --lines-to out.json tests/…

The output file holds ``{"lines": {"a.py": {"12": [test, …]}}, "seconds": {test: s}}``. A line that runs while
modules are imported has the test "". Lines run in other processes are not recorded.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import defaultdict
from types import FrameType
from typing import Any


class _Lines:
    """Plugin that follows the tests, and trace function of every thread."""

    def __init__(self, files: list[str], out: str) -> None:
        self.files = {os.path.realpath(file): file for file in files}
        self.out = out
        self.seen: dict[str, dict[int, set[str]]] = {file: defaultdict(set) for file in files}
        self.seconds: dict[str, float] = defaultdict(float)
        self.test = ""

    def called(self, frame: FrameType, event: str, value: Any) -> Any:
        """The trace function of a call: returns one for its lines if it is in these files."""
        file = self.files.get(frame.f_code.co_filename)
        if file is None:
            return None
        seen = self.seen[file]

        def line(frame: FrameType, event: str, value: Any) -> Any:
            seen[frame.f_lineno].add(self.test)
            return line

        return line(frame, event, value)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid

    def pytest_runtest_setup(self) -> None:
        sys.settrace(self.called)  # a test may have replaced it

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        lines = {
            file: {line: sorted(tests) for line, tests in seen.items()} for file, seen in self.seen.items()
        }
        with open(self.out, "w") as out:
            json.dump({"lines": lines, "seconds": self.seconds}, out)


def pytest_addoption(parser: Any) -> None:
    parser.addoption("--lines-of", action="append", default=[])
    parser.addoption("--lines-to")


def pytest_configure(config: Any) -> None:
    lines = _Lines(config.getoption("--lines-of"), config.getoption("--lines-to"))
    config.pluginmanager.register(lines)
    threading.settrace(lines.called)
    sys.settrace(lines.called)
