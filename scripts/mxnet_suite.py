#!/usr/bin/env python
"""Runs MXNet's own unit tests with mxlite, and with the real wheel for comparison.

    python scripts/mxnet_suite.py CHECKOUT ... [--files test_io.py ...] [--results FOLDER] [--output FOLDER]

CHECKOUT is a checkout of MXNet (we compare with its tags 1.9.1 and 1.0.0); no part of it is kept here. Each
file of FILES runs in its own process: once under this Python, where `import mxnet` gives mxlite
(mxlite/core/alias.py), and once under the Python of the wheel (MXLITE_MXNET_PYTHON). A test counts if the
wheel passes it; it is left out if its text concerns parts that mxlite does not have: gluon.contrib, mx.np,
handles of the C interface. With --results the outcomes are kept as JSON lines, and a second run reuses them,
except those of tests that ran out of time, which load can cause: delete a file to rerun its tests. With
--output a page of the counts, and of the tests that mxlite fails, is written into that folder.

The tests were written for nose and numpy 1.x: stand-ins for nose, and for names removed from numpy, are
installed in both processes. The exit code is 1 if mxlite fails a test that counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from harness.machine import heading, write_page
from importable import reach
from mxnet_suites import wheel
from mxnet_suites.table import File, page, reasons

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent
WHY = tuple(ROOT / "docs" / name for name in ("guide.md", "gluon.md"))
FILES = """
    attr autograd base contrib_autograd contrib_control_flow contrib_krprod contrib_operator contrib_optimizer
    contrib_text engine engine_import exc_handling executor gluon gluon_data gluon_data_vision gluon_model_zoo
    gluon_rnn gluon_save gluon_trainer gluon_utils higher_order_grad image infer_shape infer_type init io
    kvstore loss metric model_parallel module multi_device_exec ndarray operator optimizer profiler random
    recordio rnn runtime sparse_ndarray sparse_operator symbol test_utils thread_local viz
""".split()
"""Files on Symbol, NDArray, Module, Gluon and related parts; each tag has most of them."""


def _run(python: str, path: list[str], tests: Path, file: Path, given: argparse.Namespace) -> None:
    """Run one file of tests under one Python, as far as `file` has no outcomes of it."""
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NONE", "PYTHONHASHSEED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([*path, str(SCRIPTS)])
    command = [
        python,
        "-P",
        "-m",
        "mxnet_suites.one_file",
        str(tests),
        str(file),
        str(given.limit),
        given.only,
    ]
    done = file.with_suffix(".done")
    kept = [row for row in _kept(file).values() if row["outcome"] != "late"]
    if len(kept) < len(_kept(file)):
        file.write_text("".join(json.dumps(row) + "\n" for row in kept))
        done.unlink(missing_ok=True)
    while not done.exists():
        running = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        size, seen, outcome = 0, time.monotonic(), "failed"
        while running.poll() is None:
            time.sleep(0.2)
            now = file.stat().st_size if file.exists() else 0
            if now != size:
                size, seen = now, time.monotonic()
            elif time.monotonic() - seen > given.limit + 60:
                outcome = "late"  # a test blocked in native code
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
        at = file.with_suffix(".now")
        if running.returncode == 0 or not at.exists():
            done.touch()
            break
        with open(file, "a") as out:
            why = f"process ended with {running.returncode}"
            print(json.dumps({"test": at.read_text(), "outcome": outcome, "why": why}), file=out)
        at.unlink()


def _kept(file: Path) -> dict:
    """The outcomes in a file of them, by test."""
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {row["test"]: row for row in rows}


def _version(checkout: Path) -> str:
    text = (checkout / "python/mxnet/libinfo.py").read_text()
    return re.search(r"__version__ = ['\"](.*)['\"]", text)[1]


def main() -> int:
    parser = wheel.options(__doc__)
    parser.add_argument("checkouts", type=Path, nargs="+", metavar="CHECKOUT")
    parser.add_argument("--files", nargs="*", help="such as test_io.py; default: those about what mxlite has")
    parser.add_argument("--only", default="", help="regular expression of test names")
    parser.add_argument("--limit", type=int, default=300, help="seconds for a test")
    parser.add_argument("--results", type=Path, help="folder where outcomes are kept")
    parser.add_argument("--sides", default="wheel,mxlite", help="which to run; the other's are read")
    given = parser.parse_args()
    reach(ROOT)
    text = heading("MXNet's own unit tests", wheel.versions(given.wheel) if given.wheel else None)
    with tempfile.TemporaryDirectory() as scratch:
        given.results = given.results or Path(scratch)
        alias = Path(scratch, "alias")
        wheel.make_alias(alias)
        suites = {_version(checkout): _suite(checkout, given, alias) for checkout in given.checkouts}
    why = reasons("\n".join(file.read_text() for file in WHY))
    write_page(f"{text}\n{page(suites, why)}", given.output, "mxnet-suites")
    return int(any(file.failing for files in suites.values() for file in files))


def _suite(checkout: Path, given: argparse.Namespace, alias: Path) -> list[File]:
    """Run the files of one checkout, each on both sides, and say what becomes of them."""
    folder = (checkout / "tests/python/unittest").resolve()
    names = [Path(f).stem for f in given.files or [f"test_{name}" for name in FILES]]
    sides = {"wheel": (given.wheel, []), "mxlite": (sys.executable, [str(alias), str(ROOT)])}
    files = []
    for name in names:
        if not (folder / f"{name}.py").exists():
            continue
        found = {}
        for side, (python, path) in sides.items():
            file = given.results.resolve() / _version(checkout) / side / f"{name}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            if python and side in given.sides.split(","):
                _run(python, path, folder / f"{name}.py", file, given)
            rows = _kept(file)
            found[side] = {t: row for t, row in rows.items() if re.search(given.only, t) or t == "(import)"}
        files.append(File(name, **found))
        passed = len(files[-1].counted) - len(files[-1].failing)
        print(f"{name}: {passed} of {len(files[-1].counted)} that the wheel passes", flush=True)
        for test, row in files[-1].failing.items():
            print(f"    {test}: {row['outcome']} {row.get('why', '')}", flush=True)
    return files


if __name__ == "__main__":
    sys.exit(main())
