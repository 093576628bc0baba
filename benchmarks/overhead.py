"""Overhead around the kernels of a bound program: Python per node, a busy main thread, bind and import.

    python benchmarks/overhead.py            about two minutes; writes results/<date>-overhead.md
    python benchmarks/overhead.py --quick    some seconds; prints only

Kernels run on one thread. Each setting has its own process; they take turns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness import heading, markdown, RESULTS, Spread, Worker
from harness.machine import write_page

SETTINGS = {
    "joined": {"MXLITE_KERNELS": "onednn,compiled"},
    "one by one": {"MXLITE_KERNELS": "onednn"},
    "numpy": {"MXLITE_KERNELS": "reference"},
}
"""A segment run as one call (which needs llvmlite), by calls from Python, and with reference kernels."""
HOW = {
    "ctypes": "a C function that does nothing, called from Python",
    "calls": "each kernel called from Python",
    "segments": "as the program calls them",
    "forward": "pushed, run by a worker, waited for",
}
INTERVALS = (5.0, 0.5)
MODEL, BATCH = "resnet50", 8
TARGETS = {
    "a node, beside its kernel": 1.5,
    "bind, cold": 2.0,
    "bind, warm": 0.5,
    "import": 0.3,
}  # us, s, s, s
IMPORTS = """
from time import perf_counter
start = perf_counter(); import numpy
between = perf_counter(); import mxlite
print(between - start, perf_counter() - between)
"""


def measure(workers: dict[str, Worker], rounds: int) -> dict[str, dict[str, Spread]]:
    """Case -> setting -> one value per round."""
    values: dict[str, dict[str, list[float]]] = {}

    def note(case: str, setting: str, value: float) -> None:
        values.setdefault(case, {}).setdefault(setting, []).append(value)

    for r in range(rounds):
        names = list(workers)
        for name in names[r % len(names) :] + names[: r % len(names)]:
            for how in HOW:
                note(f"node: {how}", name, workers[name].ask(do="node", how=how, rounds=20))
            for which, count in (("small", 10), ("large", 3)):
                for interval in INTERVALS:
                    if name == "numpy" and which == "large":
                        continue
                    found = workers[name].ask(do="busy", which=which, interval_ms=interval, rounds=count)
                    for part, value in found.items():
                        note(f"busy: {which}, {interval:g} ms: {part}", name, value)
        print(f"round {r + 1} of {rounds}", file=sys.stderr, flush=True)
    return {case: {s: Spread(tuple(v)) for s, v in row.items()} for case, row in values.items()}


def binding(rounds: int) -> dict[str, dict[str, Spread]]:
    """The same for binding: "cold" needs a new process each time."""
    values: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for name, env in SETTINGS.items():
            with Worker(sys.executable, "overhead_worker.py", env=env) as worker:
                for part, value in worker.ask(do="bind", model=MODEL, batch=BATCH).items():
                    values.setdefault(part, {}).setdefault(name, []).append(value)
    return {part: {s: Spread(tuple(v)) for s, v in row.items()} for part, row in values.items()}


def importing(rounds: int) -> dict[str, Spread]:
    """Seconds of `import numpy`, and of `import mxlite` after it, in a new process each time."""
    command = [sys.executable, "-c", IMPORTS]
    subprocess.run(command, check=True, capture_output=True)  # writes bytecode, fills the file cache
    found = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(rounds)
    ]
    numpy, own = zip(*(map(float, text.split()) for text in found))
    return {"numpy": Spread(numpy), "mxlite behind it": Spread(own)}


def report(
    times: dict[str, dict[str, Spread]], bound: dict[str, dict[str, Spread]], imports: dict[str, Spread]
) -> str:
    """The tables as Markdown."""
    names = list(SETTINGS)
    head = ["", *names]
    lines = [
        "Microseconds for each of 1,000 nodes, FullyConnected on 16 floats: median (least-most) of rounds.",
        "",
        markdown(head, [[text, *(times[f"node: {how}"][n] for n in names)] for how, text in HOW.items()]),
        "A forward pass while another thread computes in Python all the time, as a multiple of what it takes",
        "while all others wait, and how fast that thread is beside it, as a share of its rate alone. `small`",
        "are 200 kernels of about 50 us, `large` 40 of about 5 ms; in brackets Python's switch interval,",
        "5 ms unless a program sets another.",
        "",
    ]
    rows: list[list[Any]] = []
    for which in ("small", "large"):
        for interval in INTERVALS:
            case = f"busy: {which}, {interval:g} ms: "
            for part, text in (("busy", "times as long"), ("rate", "rate of the other")):
                row: list[Any] = [f"{which} ({interval:g} ms), {text}"]
                for n in names:
                    found = times.get(case + part, {}).get(n)
                    if found is not None and part == "busy":
                        found = found / times[case + "quiet"][n]
                    row.append("" if found is None else found)
                rows.append(row)
    lines.append(markdown(head, rows))
    nodes = int(next(iter(bound["nodes"].values())).median)
    lines += [
        f"Seconds to bind {MODEL}, batch {BATCH}, with SGD and momentum ({nodes} steps), and to make its",
        "training program; the first time in a process and the second.",
        "",
        markdown(head, [[part, *(bound[part][n] for n in names)] for part in bound if part != "nodes"]),
    ]
    lines += [
        "Seconds to import, in a new process each time.",
        "",
        markdown(["", *imports], [["import", *imports.values()]]),
    ]
    python = times["node: segments"]["joined"].median, times["node: segments"]["one by one"].median
    floor = python[0]  # time of the kernels themselves, and 1 / 64 of a call from Python
    reached = {
        "a node, beside its kernel": max(0.0, python[1] - floor),
        "bind, cold": bound["cold bind"]["joined"].median + bound["cold program"]["joined"].median,
        "bind, warm": bound["warm bind"]["joined"].median + bound["warm program"]["joined"].median,
        "import": imports["mxlite behind it"].median,
    }
    lines.append(
        markdown(
            ["target", "limit", "reached", "met"],
            [
                [c, f"{v:g}", f"{reached[c]:.2f}", "yes" if reached[c] <= v else "NO"]
                for c, v in TARGETS.items()
            ],
        )
    )
    lines.append("A node beside its kernel: one by one, less joined, which is the kernels and hardly more.\n")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, no result file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    rounds = 1 if args.quick else args.rounds
    output = args.output or (None if args.quick else RESULTS)
    common = {"MXLITE_NUM_THREADS": "1"}
    text = heading("What surrounds the kernels", None).replace("- MXNet was not measured", "- no peer")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("- no peer")) + "\n"
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(Worker(sys.executable, "overhead_worker.py", env=env | common))
            for name, env in SETTINGS.items()
        }
        times = measure(workers, rounds)
    text += f"- rounds: {rounds}, alternated\n\n" + report(times, binding(rounds), importing(rounds))
    write_page(text, output, "overhead")


if __name__ == "__main__":
    main()
