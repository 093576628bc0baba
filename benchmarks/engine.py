"""Microseconds of a tiny operation, imperative and bound, compared with MXNet 1.9.1.

    python benchmarks/engine.py            about two minutes; writes results/<date>-engine.md
    python benchmarks/engine.py --quick    a few seconds; prints only

MXLITE_MXNET_PYTHON names a Python that has MXNet 1.9.1; without it its columns are left out. Every
framework and engine runs in its own process; they take turns, and ratios are taken round by round.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from harness import heading, markdown, mxnet_python, RESULTS, Spread, Worker
from harness.machine import write_page

PUSHES = {
    "a += 1": 10_000,
    "elemwise_add(a, b, out=c)": 10_000,
    "(a + 1).asnumpy()": 3_000,
    "numpy a += 1": 50_000,
}
CHAINS = {"x * 1.001": 30, "tanh(x)": 30}
RUNS = ("training forward", "forward + backward", "inference")
BUILDS = {"compose": 10, "simple_bind": 3}
TARGETS = {"a += 1": 16.0, "x * 1.001: training forward": 5.0}  # microseconds, first targets of this project

Times = dict[str, dict[str, Spread]]


def measure(workers: dict[str, Worker], rounds: int, quick: bool) -> Times:
    """Case -> worker -> microseconds of each round. A warm-up round is discarded."""
    cases: dict[str, dict[str, object]] = {}
    for case, count in PUSHES.items():
        cases[case] = dict(do="push", case=case, count=count // (10 if quick else 1))
    for op, count in CHAINS.items():
        for case in RUNS:
            cases[f"{op}: {case}"] = dict(do="chain", op=op, case=case, count=3 if quick else count)
    for case, count in BUILDS.items():
        cases[f"x * 1.001: {case}"] = dict(do="chain", op="x * 1.001", case=case, count=1 if quick else count)
    values: dict[str, dict[str, list[float]]] = {c: {w: [] for w in workers} for c in cases}
    for r in range(rounds + 1):
        for case, request in cases.items():
            # Each round starts with another worker, so that none always runs after the same one.
            names = list(workers)
            for name in names[r % len(names) :] + names[: r % len(names)]:
                time = workers[name].ask(**request)
                if r:
                    values[case][name].append(time)
        print(f"round {r} of {rounds}" + ("" if r else " (warm-up)"), file=sys.stderr, flush=True)
    return {c: {w: Spread(tuple(v)) for w, v in row.items()} for c, row in values.items()}


def report(times: Times, workers: dict[str, Worker]) -> str:
    """The result tables and the targets as Markdown."""
    names = list(workers)
    peer = names[-1] if "MXNet" in names[-1] else None
    first = names[0]
    head = ["case", *names] + ([f"{n} / MXNet" for n in names[:-1]] if peer else [])
    rows = []
    for case, row in times.items():
        cells: list[object] = [case, *row.values()]
        if peer:
            cells += [row[n] / row[peer] for n in names[:-1]]
        rows.append(cells)
    lines = [
        "Microseconds: median (least-most) of the rounds. `a += 1` and its neighbours: each operation on",
        "4 floats, pushed one after another, then waited for. Chains: each of the 1,000 forward nodes of a",
        "bound symbol on 4 floats; forward + backward runs two nodes for each of them. `compose` and",
        "`simple_bind`: each node of such a chain. Ratios are below 1 where mxlite is faster.",
        "",
        markdown(head, rows),
        markdown(
            ["target", "limit", f"{first}", "met"],
            [
                [
                    case,
                    f"{limit:g}",
                    times[case][first],
                    "yes" if times[case][first].median <= limit else "NO",
                ]
                for case, limit in TARGETS.items()
            ],
        ),
    ]
    return "\n".join(lines)


def agree(workers: dict[str, Worker]) -> None:
    """Check that all workers compute the same values; otherwise the times are not comparable."""
    for op in CHAINS:
        values = {name: w.ask(do="check", op=op) for name, w in workers.items()}
        low = [min(v) for v in zip(*values.values())]
        high = [max(v) for v in zip(*values.values())]
        if any(h - lo > 1e-3 * abs(h) + 1e-6 for lo, h in zip(low, high)):
            raise SystemExit(f"The chain of {op} gives different results: {values}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, no result file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    rounds = 1 if args.quick else args.rounds
    output = args.output or (None if args.quick else RESULTS)

    with ExitStack() as stack:
        workers = {
            f"mxlite {engine}": stack.enter_context(
                Worker(sys.executable, "engine_worker.py", "mxlite", env={"MXLITE_ENGINE": engine})
            )
            for engine in ("threaded", "naive")
        }
        peer = None
        if python := mxnet_python():
            env = {"MXNET_SUBGRAPH_BACKEND": "NONE", "MXNET_ENGINE_TYPE": "ThreadedEnginePerDevice"}
            workers["MXNet"] = stack.enter_context(Worker(python, "engine_worker.py", "mxnet", env=env))
            peer = workers["MXNet"].ask(do="versions") | {"engine": "ThreadedEnginePerDevice"}
        text = heading("Microseconds of a tiny operation", peer) + f"- rounds: {rounds}, alternated\n\n"
        agree(workers)
        text += report(measure(workers, rounds, args.quick), workers)
    write_page(text, output, "engine")


if __name__ == "__main__":
    main()
