"""Runs the torture and prints its table: python -m torture [--minutes 30] [--seed 0] [--out FILE] [PART …]"""

from __future__ import annotations

import argparse
import importlib
import logging
import pkgutil
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from time import monotonic

import torture.parts
from torture.allowance import Allowance


def names() -> list[str]:
    """The parts, in alphabetical order."""
    return sorted(found.name for found in pkgutil.iter_modules(torture.parts.__path__))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"some of: {', '.join(names())}; all if none is named"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=30,
        help="for all parts together; each has an equal share of what is left",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="the first case's; the table of another seed is another run"
    )
    parser.add_argument("--cases", type=int, help="of each part, instead of what its CASES says")
    parser.add_argument("--out", metavar="FILE", help="write the table there as well, as Markdown")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.parts) - set(names()):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(names())}.")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A background shell ignores SIGINT, which children would inherit, so that Ctrl-C had no effect.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    with _errors_alone():
        return _run(asked)


@contextmanager
def _errors_alone() -> Iterator[None]:
    """Inside, mxlite logs errors only: its warnings about random networks would hide a failure."""
    logger = logging.getLogger("mxlite")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _run(asked: argparse.Namespace) -> int:
    """Run the requested parts, print their table, and return the exit code."""
    chosen = asked.parts or names()
    ends = monotonic() + asked.minutes * 60
    rows, failed = [], []
    for place, name in enumerate(chosen):
        part = importlib.import_module(f"torture.parts.{name}")
        share = max(ends - monotonic(), 1) / (len(chosen) - place)
        allowance = Allowance(asked.seed, asked.cases or part.CASES, share)
        print(f"{name}: {share:.0f} s at most …", file=sys.stderr, flush=True)
        began = monotonic()
        outcome = part.run(allowance)
        what = (part.__doc__ or "").splitlines()[0]
        rows.append(
            (name, what, outcome.cases, len(outcome.failures), f"{monotonic() - began:.0f}", outcome.note)
        )
        failed += [f"{name}: {line}" for line in outcome.failures]
    table = _markdown(rows, failed, asked.seed)
    print(table)
    if asked.out:
        with open(asked.out, "w") as file:
            file.write(table + "\n")
    return 1 if failed else 0


def _markdown(rows: list[tuple], failed: list[str], seed: int) -> str:
    import numpy

    lines = [
        f"{date.today().isoformat()}, seed {seed}; Python {platform.python_version()}, "
        f"numpy {numpy.__version__}, {platform.system()} {platform.machine()}",
        "",
        "| part | what is done | cases | failures | seconds | covered |",
        "| --- | --- | ---: | ---: | ---: | --- |",
        *(f"| {' | '.join(map(str, row))} |" for row in rows),
    ]
    if failed:
        lines += ["", "Failures:", "", *(f"- {line}" for line in failed)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
