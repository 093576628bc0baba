#!/usr/bin/env python
"""Runs MXNet's own Gluon programs with mxlite and with the real wheel, and compares their losses.

    python scripts/gluon_programs.py CHECKOUT [--only REGEX] [--wheel PYTHON] [--output FOLDER]

CHECKOUT is a checkout of MXNet 1.9.1; no part of it is kept here. Its example/gluon and the pages of its
tutorials run as they are, except that `import mxnet` gives mxlite (mxlite/core/alias.py): each in a process
of its own, first under the Python of the wheel (MXLITE_MXNET_PYTHON), then under this one. Data are made up
(gluon_runs/local_data.py), and both runs start from the same parameters and random numbers
(gluon_runs/draws.py). A program agrees if it ends by itself, or makes the steps asked for, on both sides,
and every loss lies within 1e-4 of the wheel's, relative to the largest of them if that is above 1. The exit
code is 1 if a program that the wheel runs does not agree.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from gluon_runs.catalogue import Program, PROGRAMS
from harness import markdown
from harness.machine import heading, write_page
from importable import reach
from mxnet_suites import wheel

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent
TOLERANCE = 1e-4
_EXPLAINED = """
Each program ran as it is, once with the wheel and once with mxlite, from the same parameters and on the same
made-up data (scripts/gluon_programs.py); some are stopped after a few steps (gluon_runs/catalogue.py). The
difference is that of the losses of all steps, relative to the largest loss if that is above 1.

"""


@dataclass(frozen=True)
class Run:
    """One side's run of a program: its losses, and why it ended early ("" if it did not)."""

    losses: list[float]
    error: str


@dataclass(frozen=True)
class Side:
    """One of the two: its name, its Python, folders of its `sys.path`, and seconds for a program."""

    name: str
    python: str
    path: list[Path]
    limit: int


def run(program: Program, checkout: Path, side: Side, scratch: Path) -> Run:
    """Run a program on one side; `scratch` holds what both sides share and a folder for each side."""
    name, flat = Path(program.file).name, program.file.replace("/", "-")
    if program.after:
        folder = next((scratch / side.name).glob(f"*{program.after}"))
    else:
        folder = scratch / side.name / flat
        folder.mkdir(parents=True)
        if program.files is not None:
            program.files(folder)
    losses = scratch / f"{name}.{side.name}"
    command = [side.python, "-P", "-m", "gluon_runs.one_run", checkout.resolve() / program.file, losses]
    command += [scratch / f"{flat}.npz", str(int(side.name == "wheel")), str(program.steps)]
    environment = {**os.environ, "HOME": str(folder), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, [*side.path, SCRIPTS]))
    environment["MXNET_SUBGRAPH_BACKEND"] = "NONE"
    running = subprocess.Popen(
        [*command, *program.arguments.split()], cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        out, errors = running.communicate(timeout=side.limit)
        lines = errors.strip().splitlines() or [f"ended with {running.returncode}"]
        error = "" if out.endswith("finished\n") else lines[-1]
    except subprocess.TimeoutExpired:
        error = f"did not end in {side.limit} s"
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
    found = losses.read_text().splitlines() if losses.exists() else []
    return Run([json.loads(line) for line in found], error)


def difference(theirs: Run, ours: Run) -> float:
    """The largest difference of losses, relative to the largest loss if that is above 1; inf if some lack."""
    if len(theirs.losses) != len(ours.losses):
        return float("inf")
    scale = max([1.0, *map(abs, theirs.losses)])
    return max((abs(a - b) / scale for a, b in zip(theirs.losses, ours.losses)), default=0.0)


def main() -> int:
    parser = wheel.options(__doc__)
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    parser.add_argument("--only", default="", help="regular expression of files of programs")
    parser.add_argument("--limit", type=int, default=300, help="seconds for a program on one side")
    given = wheel.parsed(parser)
    reach(ROOT)
    text, rows, wrong = heading("MXNet's Gluon programs", wheel.versions(given.wheel)), [], 0
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        wheel.make_alias(scratch / "alias")
        for program in PROGRAMS:
            if not re.search(given.only, program.file):
                continue
            path = [scratch / "alias", ROOT]
            theirs = run(program, given.checkout, Side("wheel", given.wheel, [], given.limit), scratch)
            ours = run(program, given.checkout, Side("mxlite", sys.executable, path, given.limit), scratch)
            apart = difference(theirs, ours)
            agrees = not ours.error and apart <= TOLERANCE
            wrong += not agrees and not theirs.error and (ours.error != "" or not program.parts)
            outcome = "agrees" if agrees else ours.error or f"differs: {program.parts}".removesuffix(": ")
            if theirs.error:
                outcome = f"the wheel: {theirs.error}"
            file = program.file.removeprefix("example/").removeprefix("docs/python_docs/python/")
            rows.append([f"`{file}`", len(ours.losses), f"{apart:.1e}", outcome[:90]])
            print(*rows[-1], flush=True)
    text += _EXPLAINED + markdown(["program", "losses", "largest difference", "outcome"], rows)
    write_page(text, given.output, "gluon-programs")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
