#!/usr/bin/env python
"""Compares the public names of mxlite's Gluon, and their signatures, with those of the real wheel.

    python scripts/gluon_names.py [--wheel PYTHON] [--output FOLDER]

Classes, what they are made with, their methods and the functions of `mx.gluon` and its parts (the list is in
gluon_runs/names.py); a method counts in the class that defines it. A signature agrees if the names come in
the wheel's order with its defaults; mxlite's may go on after them, and may take the rest as `*args`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from harness import markdown
from harness.machine import heading, write_page
from importable import reach
from mxnet_suites import wheel

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent


def listed(python: str, path: list[Path], methods: str) -> dict[str, list | None]:
    """The names that one Python's `mxnet` has; methods: "own" or "all"."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, SCRIPTS]))}
    command = [python, "-W", "ignore", "-P", "-m", "gluon_runs.names", methods]
    return json.loads(subprocess.check_output(command, env=environment, text=True))


def agrees(wheel: list | None, ours: list | None) -> bool:
    """True if what the wheel's takes comes first in ours, with the same defaults, or falls into `*args`.

    A default None of ours stands for an object of the wheel's, such as `cpu(0)`.
    """
    if wheel is None or ours is None:
        return wheel is None
    for place, (name, default) in enumerate(wheel):
        if place == len(ours):
            return False
        own_name, own_default = ours[place]
        if own_name == "*":
            return True
        is_object = default is not None and (default.startswith("<") or default == "cpu(0)")
        if name != own_name or (default != own_default and not (is_object and own_default == "None")):
            return False
    return True


def main() -> int:
    given = wheel.parsed(wheel.options(__doc__))
    reach(ROOT)
    with tempfile.TemporaryDirectory() as alias:
        wheel.make_alias(Path(alias))
        theirs, ours = listed(given.wheel, [], "own"), listed(sys.executable, [Path(alias), ROOT], "all")
    there = [name for name in theirs if name in ours]
    same = [name for name in there if agrees(theirs[name], ours[name])]
    rows = [[f"`{name}`", "missing"] for name in theirs if name not in ours]
    for name in there:
        if name not in same:
            texts = (
                ", ".join(n if d is None else f"{n}={d}" for n, d in s or ())
                for s in (theirs[name], ours[name])
            )
            rows.append([f"`{name}`", "`({})`, here `({})`".format(*texts)])
    text = heading("Gluon's names", wheel.versions(given.wheel))
    text += f"\n{len(there)} of {len(theirs)} names are there ({len(there) / len(theirs):.1%}); "
    text += f"the signatures of {len(same)} agree ({len(same) / len(theirs):.1%}).\n\n"
    write_page(text + markdown(["name", "what differs"], rows), given.output, "gluon-names")
    return 0


if __name__ == "__main__":
    sys.exit(main())
