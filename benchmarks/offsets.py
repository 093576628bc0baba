"""Offsets of hard problems: the default heuristic compared with the lower bound, and the exact search.

    python benchmarks/offsets.py            a minute or two; writes results/<date>-offsets.md
        python benchmarks/offsets.py --quick    the default heuristic and a short search; prints only

The problems are MiniMalloc's challenging set (data/minimalloc/README.md), or the files of `--folder` that are
named <problem>.<capacity>.csv. Times are of this process's CPU. Every offset is checked for overlaps.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from itertools import combinations
from pathlib import Path
from statistics import mean

from harness import heading, markdown, RESULTS
from harness.machine import write_page

from mxlite.core import SearchLimitError
from mxlite.memplan import LiveRange, place
from mxlite.memplan.placement import exact
from mxlite.memplan.placement.liveness import most_live

DATA = Path(__file__).parent / "data" / "minimalloc"
QUICK = 20_000
SECONDS, RATIO, PLACE_SECONDS = 60.0, 1.10, 1.0  # targets: exact search, mean of default, its time


def read(path: Path) -> list[LiveRange]:
    with path.open() as file:
        rows = csv.DictReader(file)
        return [LiveRange((), int(r["lower"]), int(r["upper"]), int(r["size"])) for r in rows]


def judge(ranges: list[LiveRange], offsets: tuple[int, ...], capacity: int) -> None:
    """Raises SystemExit if two ranges overlap or one is out of bounds."""
    for r, at in zip(ranges, offsets, strict=True):
        if not 0 <= at <= capacity - r.nbytes:
            raise SystemExit(f"{r} lies outside at {at}.")
    for (a, p), (b, q) in combinations(zip(ranges, offsets), 2):
        if a.start < b.stop and b.start < a.stop and p < q + b.nbytes and q < p + a.nbytes:
            raise SystemExit(f"{a} at {p} and {b} at {q} overlap.")


def measure(paths: list[Path], limit: int) -> str:
    """Text of the table and the targets."""
    rows: list[list[object]] = []
    ratios, times, solved = [], [], []
    for path in paths:
        problem, capacity = path.name.split(".")[0], int(path.name.split(".")[1])
        ranges = read(path)
        bound = most_live([r.start for r in ranges], [r.stop for r in ranges], [r.nbytes for r in ranges])
        began = time.process_time()
        placed = place(ranges, bound)
        times.append(time.process_time() - began)
        judge(ranges, placed.offsets, placed.nbytes)
        ratios.append(placed.nbytes / bound)
        began = time.process_time()
        try:
            offsets = exact.solve(ranges, capacity, limit)
            answer = "impossible" if offsets is None else "solved"
            if offsets is not None:
                judge(ranges, offsets, capacity)
        except SearchLimitError:
            answer = f"open at {limit}"
        spent = time.process_time() - began
        if answer == "solved":
            solved.append(spent)
        rows.append(
            [problem, len(ranges), bound, f"{ratios[-1]:.4f}", f"{times[-1]:.2f}", answer, f"{spent:.2f}"]
        )
        print(*rows[-1], file=sys.stderr, flush=True)
    head = ["problem", "buffers", "bound", "default / bound", "default s", "at the capacity", "exact s"]
    quick_enough = sum(s <= SECONDS for s in solved)
    targets = [
        ["solved in 60 s each", len(rows), quick_enough, len(rows) == quick_enough],
        ["mean default / bound", f"{RATIO:.2f}", f"{mean(ratios):.4f}", mean(ratios) <= RATIO],
        ["longest default path, s", f"{PLACE_SECONDS:g}", f"{max(times):.2f}", max(times) < PLACE_SECONDS],
    ]
    return "\n".join(
        [
            "Bound: the most bytes live at a step; where default / bound is 1 the bound is the certificate.",
            "",
            markdown(head, rows),
            markdown(
                ["target", "limit", "found", "met"], [[*t[:3], "yes" if t[3] else "NO"] for t in targets]
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small limit, no result file")
    parser.add_argument("--python", action="store_true", help="without machine code, if llvmlite is there")
    parser.add_argument("--folder", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    output = args.output or (None if args.quick else RESULTS)
    if args.python:
        exact.machine_code = lambda: None
    paths = sorted(args.folder.glob("*.*.csv"))
    if not paths:
        raise SystemExit(f"{args.folder} holds no <problem>.<capacity>.csv.")
    code = "machine code by llvmlite" if exact.machine_code() else "Python"  # compiled before timing
    text = heading("Offsets of hard problems", None) + f"- inner loops: {code}\n\n"
    text += measure(paths, QUICK if args.quick else exact.LIMIT)
    write_page(text, output, "offsets")


if __name__ == "__main__":
    main()
