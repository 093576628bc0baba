"""The planner's scoreboard: every figure next to the best that is published, known or proven.

    python benchmarks/planner.py            the part run alone took 33 minutes on two cores;
                                            writes results/<date>-planner.md as it goes
    python benchmarks/planner.py --quick    about a minute, small networks; prints only
    python benchmarks/planner.py --full     ResNet-50 at 224x224 is run too
    python benchmarks/planner.py --parts run --nets resnet1001 --rounds 5 --without sqrt,blocks
                                            one network within budgets; fewer rounds and columns
    python benchmarks/planner.py --gather planner.json --parts run
                                                                                        some parts; the file
                                                                                        collects those of
                                                                                        several runs, and the
                                                                                        result file is made
                                                                                        from all of them

Parts: arena, zoo, offsets, overhead, headline, lstm, speed are planned only; run is measured on this machine,
with PyTorch for comparison if it is installed (compiled too, if the network is not too deep for that). Optima
need ortools (extra `exact`).
"""

from __future__ import annotations

import argparse
import os
from datetime import datetime, UTC
from pathlib import Path
from time import perf_counter

import offsets
from harness import heading, RESULTS
from harness.machine import today, usable_cores
from planning import arena, headline, measured, overhead, speed
from planning.report import Report, say

from mxlite.memplan.placement import exact

PARTS = ("headline", "lstm", "overhead", "arena", "zoo", "offsets", "speed", "run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small networks, no result file")
    parser.add_argument("--full", action="store_true", help="ResNet-50 at 224x224 too")
    parser.add_argument("--parts", help=f"some of {', '.join(PARTS)}, with commas between")
    parser.add_argument("--graphs", help="of overhead: some of its graphs, with commas between")
    parser.add_argument("--nets", help="of run: some of its networks by name, with commas between")
    parser.add_argument("--without", help="of run: PyTorch's columns to leave out, with commas between")
    parser.add_argument("--rounds", type=int, help="of run: rounds of ours (default 100)")
    parser.add_argument("--gather", type=Path, help="a JSON file that gathers parts of several runs")
    parser.add_argument("--effort", type=float, help="of CP-SAT for one budget, about seconds (default 10)")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of what is run (default: cores)")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    parts = args.parts.split(",") if args.parts else list(PARTS)
    for part in parts:
        if part not in PARTS:
            raise SystemExit(f"There is no part {part!r}; there are {', '.join(PARTS)}.")
    output = args.output or (None if args.quick or (args.parts and not args.gather) else RESULTS)
    path = None
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        path = output / f"{today()}-planner.md"
    start = perf_counter()
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.2f}" if args.gather else ""
    report = Report(heading("The memory planner", None), path, args.gather, began)
    for part in PARTS:
        if part in parts:
            measure(part, report, args)
            say(f"{part}: done after {perf_counter() - start:.0f} s")
    if not args.gather:
        report.heading += f"- all of it took {(perf_counter() - start) / 60:.1f} minutes\n"
    print(report.text())
    report.write()
    if path is not None:
        say(f"written: {path.name}")


def measure(part: str, report: Report, args: argparse.Namespace) -> None:
    if part == "headline":
        headline.measure(report, args.quick)
    elif part == "lstm":
        headline.lstm(report, args.quick)
    elif part == "overhead":
        graphs = args.graphs.split(",") if args.graphs else None
        overhead.measure(report, args.quick, args.effort or (2.0 if args.quick else 10.0), graphs)
    elif part == "arena":
        arena.measure(report, args.quick)
    elif part == "zoo":
        arena.measure_zoo(report, args.quick)
    elif part == "offsets":
        limit = 1_000 if args.quick else exact.LIMIT
        paths = sorted(offsets.DATA.glob("*.*.csv"))
        code = "machine code by llvmlite" if exact.machine_code() else "Python"
        text = offsets.measure(paths[:3] if args.quick else paths, limit)
        text += "\nMiniMalloc in C++ solves 11 of 11; best of 33 placements 1.125, greedy by size 1.355.\n"
        report.put("Offsets: MiniMalloc's challenging set", f"Inner loops: {code}. {text}")
    elif part == "speed":
        speed.measure(report, args.quick)
    elif part == "run":
        nets = args.nets.split(",") if args.nets else None
        without = args.without.split(",") if args.without else []
        measured.measure(report, args.quick, args.full, args.threads, nets, without, args.rounds)


if __name__ == "__main__":
    main()
