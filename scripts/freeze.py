"""Record what a tree of mxlite does, and compare two records: a refactoring ends with "no difference".

    python scripts/freeze.py record OUT.json                        this checkout
    python scripts/freeze.py record OUT.json --tree PATH            another one, by this copy of the script
    python scripts/freeze.py record OUT.json --only kernels,plans --match "relu.*|resnet50"
    python scripts/freeze.py compare BEFORE.json AFTER.json         exit code 1 where they differ
    python scripts/freeze.py compare BEFORE.json AFTER.json --renamed _banded_relu=_tiled_relu

| section | key                      | what is recorded                                                      |
|---------|--------------------------|-----------------------------------------------------------------------|
| kernels | row, dtype, pass, device | the kernel that is chosen, its workspace in bytes                     |
| plans   | network, options, budget | bytes, extra time, steps, kernels by operator, digest of the schedule |
| code    | kernel, digest of text   | the machine code that LLVM makes of it; of CUDA the text alone        |
| results | row, dtype, pass         | digest of each output and gradient                                    |
|         | network, options, budget | digests after two steps of training                                   |

A record is made in a process of its own with fixed settings and no cache: nothing in it depends on what ran
before, and nothing on a clock. `code` holds the texts that the other selected sections asked for, so that it
is compared only between records of the same selection. Schedules are digested as numbers of tasks, addresses
and live ranges, without names: a renamed operator changes what is printed of a plan, not its digest.

Not recorded, as they depend on a clock: the plans that training runs. Binding within a budget may time
candidates on this machine (`executor/rehearsal.py`); by promise results do not depend on the choice.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))  # after all installed packages

from freezing.comparison import compare, load, SECTIONS
from freezing.digest import digest
from freezing.plans import record_plans
from freezing.rows import record_rows
from freezing.texts import Texts
from freezing.training import record_training
from freezing.tree import internals

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    "MXLITE_NUM_THREADS": "2",
    "MXLITE_CACHE_DIR": "off",
    "MXLITE_PLAN_CACHE": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",
}


def record(tree: Path, sections: list[str], match: str) -> dict[str, Any]:
    """The record of `tree`, in this process, which must not have seen mxlite before."""
    texts, pattern, began = Texts(), re.compile(match), time.process_time()
    texts.watch_llvm()
    own = internals(tree)
    found: dict[str, Any] = {"header": header(own.mx, sections, match), **{s: {} for s in sections}}
    if "kernels" in sections or "results" in sections:
        record_rows(own, pattern, found, texts)
        print(f"rows: {time.process_time() - began:.0f} s of work", file=sys.stderr)
    if "plans" in sections:
        record_plans(own, pattern, found["plans"], texts)
        print(f"plans: {time.process_time() - began:.0f} s of work", file=sys.stderr)
    if "results" in sections:
        texts.at = "training"
        record_training(own, pattern, found["results"])
        print(f"training: {time.process_time() - began:.0f} s of work", file=sys.stderr)
    if "code" in sections:
        found["code"] = {
            f"{key} {text}": facts for key, texts_ in texts.found.items() for text, facts in texts_.items()
        }
    return found


def header(mx: Any, sections: list[str], match: str) -> dict[str, Any]:
    """Settings and versions that a record depends on besides the tree."""
    import numpy

    found = {"sections": sections, "match": match, "python": platform.python_version()}
    found |= {"numpy": numpy.__version__, "cores": len(os.sched_getaffinity(0)), "settings": SETTINGS}
    try:
        import llvmlite.binding as llvm

        found["llvm"] = ".".join(map(str, llvm.llvm_version_info))
        found["processor"] = llvm.get_host_cpu_name()
        found["features"] = digest(llvm.get_host_cpu_features().flatten())
    except ImportError:
        found["llvm"] = "none"
    return found


def record_apart(tree: Path, out: Path, sections: list[str], match: str) -> int:
    """Record in a new process with fixed settings, in an empty folder, `tree` first on the path."""
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("MXLITE_", "PYTHON"))}
    command = [sys.executable, str(Path(__file__).resolve()), "record", str(out.resolve())]
    command += ["--tree", str(tree.resolve()), "--only", ",".join(sections), "--match", match, "--here"]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, env={**clean, **SETTINGS}, cwd=folder).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    asked = commands.add_parser("record", help="write what a tree does")
    asked.add_argument("out", type=Path)
    asked.add_argument("--only", default=",".join(SECTIONS), help="sections, with commas between")
    asked.add_argument("--match", default=".*", help="expression for the names of rows and networks")
    asked.add_argument("--tree", type=Path, default=ROOT, help="the checkout; default: this one")
    asked.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = commands.add_parser("compare", help="print how two records differ")
    given.add_argument("before", type=Path)
    given.add_argument("after", type=Path)
    given.add_argument("--limit", type=int, default=20, help="lines of each kind and section")
    given.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW", help="words of BEFORE")
    args = parser.parse_args()
    if args.command == "compare":
        return compare(load(args.before, args.renamed), load(args.after, []), args.limit)
    sections = [s for s in SECTIONS if s in args.only.split(",")]
    if wrong := set(args.only.split(",")) - set(SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(wrong))}; there are {', '.join(SECTIONS)}")
    if sections == ["code"]:
        parser.error("code is what other sections ask for: name one of them too")
    if not args.here:
        return record_apart(args.tree, args.out, sections, args.match)
    found = record(args.tree, sections, args.match)
    args.out.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
