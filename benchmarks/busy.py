"""A training step in competition with other processes for the same cores, in mxlite and in PyTorch.

    python benchmarks/busy.py            about three minutes; writes results/<date>-busy.md
    python benchmarks/busy.py --quick    one short round of two networks; prints only
    python benchmarks/busy.py --also OMP_WAIT_POLICY=passive    a further column: mxlite with that setting

A competing process counts in Python and does nothing else. Both frameworks use as many threads as this
machine has cores; each network of each framework runs in its own process, which waits while others run.
Within a round they take turns at each number of competitors, so that other load on the machine affects all
alike. The slowdown is the time of a step over that without competitors in the same round. Two threads on two
cores with 2 and 4 competing processes get a half and a third of the cores: if the system shares them evenly,
code that uses both cores is slowed at least 2 and 3 times in the long run.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, ExitStack
from functools import partial
from pathlib import Path
from time import sleep

from harness import heading, markdown, RESULTS, Spread, Worker
from harness.machine import usable_cores, write_page
from networks.suite import by_name, Net
from peers.column import Column, OURS, TORCH

import mxlite as mx

LOADS = [0, 1, 2, 4]
SAMPLE_S = 0.7  # of steps for one sample without competitors; more than a dozen of the scheduler's slices
QUICK_S = 0.1
SETTLE_S = 0.05
LIMIT_S = 120.0
LENGTH = 64  # side of an image


def _mlp(width: int, layers: int = 6) -> Net:
    return Net(
        f"mlp{width}",
        f"MLP {layers}x{width} B64",
        partial(mx.models.get, "mlp", hidden=(width,) * layers),
        (64, 784),
        (64,),
        10,
        ("MLP", dict(widths=(784, *(width,) * layers, 10))),
        rate=0.01,
        is_image=False,
    )


NETS = [
    _mlp(512),
    _mlp(1024),
    Net(
        "densenet",
        f"DenseNet-121 {LENGTH} B4",
        partial(mx.models.get, "densenet121"),
        (4, 3, LENGTH, LENGTH),
        (4,),
        1000,
        ("DenseNet", dict(classes=1000)),
        rate=0.001,
    ),
    *by_name(["lstm"]),
]


@contextmanager
def competitors(count: int) -> Iterator[None]:
    """Run `count` competing processes inside the `with` block."""
    started = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"], env={**os.environ})
        for _ in range(count)
    ]
    try:
        sleep(SETTLE_S if not count else 4 * SETTLE_S)
        yield
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
        for process in started:
            process.wait()


Times = dict[tuple[str, str, int], list[float]]
"""Seconds of a step, by network, column and number of competitors; one value per round."""


def measure(
    nets: list[Net], columns: list[Column], loads: list[int], rounds: int, seconds: float
) -> tuple[Times, dict[str, str]]:
    """Measured times, and the versions of the columns."""
    times: Times = {}
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers: dict[tuple[str, str], Worker] = {}
        counts: dict[tuple[str, str], int] = {}
        for net in nets:
            spec = net.prepare(Path(folder))
            for column in columns:
                worker = stack.enter_context(column.start(usable_cores()))
                worker.ask(LIMIT_S, do="load", spec=spec, **column.options)
                worker.ask(LIMIT_S, do="losses", count=2)
                found = worker.ask(LIMIT_S, do="versions")
                versions[column.title] = ", ".join(f"{k} {v}" for k, v in found.items())
                once = min(worker.ask(LIMIT_S, do="run", count=2) for _ in range(2))
                key = (net.name, column.name)
                workers[key], counts[key] = worker, max(2, round(seconds / once))
                print(f"{net.title}, {column.title}: {1e3 * once:.1f} ms", file=sys.stderr, flush=True)
        for r in range(rounds):
            for load in loads[:: 1 if r % 2 == 0 else -1]:
                with competitors(load):
                    for net in nets:
                        for column in columns[r % len(columns) :] + columns[: r % len(columns)]:
                            key = (net.name, column.name)
                            count = max(2, counts[key] // (1 + load))
                            once = workers[key].ask(LIMIT_S, do="run", count=count)
                            times.setdefault((*key, load), []).append(once)
                            sleep(SETTLE_S)
            print(f"round {r + 1} of {rounds}", file=sys.stderr, flush=True)
    return times, versions


def report(times: Times, nets: list[Net], columns: list[Column], among: list[int]) -> str:
    """The result tables as Markdown."""
    spreads = {key: Spread(tuple(values)) for key, values in times.items()}
    loads = [str(load) for load in among]
    milliseconds, slowdowns = [], []
    for net in nets:
        for column in columns:
            of = [spreads[net.name, column.name, load] for load in among]
            title = f"{net.title}, {column.title}"
            milliseconds.append([title, *(Spread(tuple(1e3 * v for v in s.values)) for s in of)])
            slowdowns.append([title, *(s / of[0] for s in of[1:])])
    verdicts = []
    for net in nets:
        row = [net.title]
        for load in among[1:]:
            ours, theirs = (
                spreads[net.name, name, load] / spreads[net.name, name, 0] for name in ("mxlite", "eager")
            )
            row.append(f"{ours.median:.2f} : {theirs.median:.2f}, {_verdict(ours.median, theirs.median)}")
        verdicts.append(row)
    return "\n".join(
        [
            "Milliseconds of a step beside so many competing processes: median (least-most) of rounds.",
            "",
            markdown(["", *loads], milliseconds),
            "Slowdown, round by round.",
            "",
            markdown(["", *loads[1:]], slowdowns),
            "Slowdown of mxlite : of PyTorch (medians); the target is that mxlite's is no larger.",
            "",
            markdown(["", *loads[1:]], verdicts),
        ]
    )


def _verdict(ours: float, theirs: float) -> str:
    return "met" if ours <= theirs else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, no result file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nets", help=f"some of {', '.join(n.name for n in NETS)}, with commas between")
    parser.add_argument("--loads", default=",".join(map(str, LOADS)), help="numbers of competitors, 0 first")
    parser.add_argument("--seconds", type=float, default=SAMPLE_S, help="of steps for one time")
    parser.add_argument(
        "--also", action="append", default=[], metavar="NAME=VALUE", help="a column of mxlite"
    )
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    names = args.nets.split(",") if args.nets else ["mlp512", "lstm"] if args.quick else None
    nets = [n for n in NETS if names is None or n.name in names]
    columns = [
        Column("mxlite", "mxlite", "ours", OURS),
        Column("eager", "PyTorch", "torch", TORCH),
        *(Column(e, f"mxlite {e}", "ours", OURS, env=dict([e.split("=", 1)])) for e in args.also),
    ]
    for column in columns:
        if why := column.missing():
            raise SystemExit(f"{column.title} cannot be measured: {why}.")
    rounds = 1 if args.quick else args.rounds
    head = heading("Steps on a busy machine", None).splitlines()
    loads = [int(load) for load in args.loads.split(",")]
    times, versions = measure(nets, columns, loads, rounds, QUICK_S if args.quick else args.seconds)
    lines = [line for line in head if not line.startswith("- MXNet was not measured")]
    lines += [f"- {title}: {found}" for title, found in versions.items()]
    lines += [f"- rounds: {rounds}, alternated; threads: {usable_cores()}", ""]
    text = "\n".join(lines) + "\n" + report(times, nets, columns, loads)
    write_page(text, args.output or (None if args.quick else RESULTS), "busy")


if __name__ == "__main__":
    main()
