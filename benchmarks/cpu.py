"""Milliseconds and bytes of a training step on the CPU, compared with PyTorch and MXNet 1.9.1.

        python benchmarks/cpu.py               everything; prints an estimate of its duration first; writes
                                               results/<date>-cpu.md
        python benchmarks/cpu.py --estimate    prints the estimate only
        python benchmarks/cpu.py --quick       small networks; prints only

It can be run in parts whose results are collected in one file; the tables are made from all of them. Parts
with the same network add columns, or replace measured ones:

    python benchmarks/cpu.py --gather cpu.json --nets resnet18,resnet50 --columns eager,channels_last
    python benchmarks/cpu.py --gather cpu.json --nets resnet18,resnet50 --columns compile
    python benchmarks/cpu.py --gather cpu.json --nets budget,deep
    python benchmarks/cpu.py --gather cpu.json --nets none    measures nothing; tables only

Each column runs in its own process, which keeps its network and waits while others run; all start from the
same weights, and a network whose first losses differ is reported, not timed. PyTorch's columns need PyTorch
in this environment; MXLITE_MXNET_PYTHON names a Python that has MXNet 1.9.1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from harness import heading, RESULTS, Worker
from harness.machine import keep_cores, today, usable_cores
from networks.suite import by_name, deep_resnet, Net, NETS
from peers.column import chosen, Column, COLUMNS, LAST, OURS, TORCH
from peers.contest import Entries, hold, say, Terms
from peers.duration import seconds_for
from peers.gathered import Gathered, Part
from peers.report import BUDGET, DEEP, report

QUICK = ["resnet20", "lenet", "mlp", "lstm", "transformer", "inference"]
DEEP_BUDGET = "32MiB"
PLANNING_S = 60.0  # for planning within a budget that is in no cache


def budget_columns(nbytes: int, asked: int) -> list[Column]:
    """ResNet-50 within `nbytes`, and PyTorch with a checkpoint around every block."""
    again = {"checkpointed": True}
    title = f"mxlite within {nbytes / 2**20:.0f} MiB"
    if nbytes > asked:
        title += f" (no plan for {asked / 2**20:.0f} MiB)"
    return [
        Column("mxlite", title, "ours", OURS, {"memory_budget": nbytes}),
        Column("eager", "PyTorch, checkpointed", "torch", TORCH, again),
        Column("channels_last", "the same, channels_last", "torch", TORCH, {**again, **LAST}),
    ]


def deep_columns() -> list[Column]:
    """The demo's network within its budget, and PyTorch without one."""
    return [
        Column("mxlite", f"mxlite within {DEEP_BUDGET}", "ours", OURS, {"memory_budget": DEEP_BUDGET}),
        Column("eager", "PyTorch eager, no budget", "torch", TORCH),
        Column("channels_last", "the same, channels_last", "torch", TORCH, LAST),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(n.name for n in NETS)
    parser.add_argument(
        "--nets", help=f"some of {names}, with commas between; also {BUDGET} and {DEEP}; or none"
    )
    columns = ", ".join(c.name for c in COLUMNS)
    parser.add_argument(
        "--peers", "--columns", help=f"columns beside mxlite: some of {columns}, with commas; or none"
    )
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one column in one round; at least one step is run")
    parser.add_argument(
        "--threads", type=int, default=usable_cores(), help="of each framework (default: cores)"
    )
    parser.add_argument(
        "--limit", type=float, default=420, help="seconds until a column must be ready to run"
    )
    parser.add_argument("--quick", action="store_true", help="small networks, short rounds, no result file")
    parser.add_argument("--no-profile", action="store_true", help="without the tables of kernels")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    parser.add_argument(
        "--gather",
        type=Path,
        metavar="FILE",
        help="add what is measured to this file, and make the tables from all that is in it; results/ too",
    )
    parser.add_argument("--estimate", action="store_true", help="say about how long it takes, and end")
    args = parser.parse_args()
    nets = args.nets.split(",") if args.nets else QUICK if args.quick else None
    peers = [p for p in args.peers.split(",") if p != "none"] if args.peers else None
    if peers is None and args.quick:
        peers = [c.name for c in COLUMNS if c.name not in ("compile", "numpy")]
    whole = not (args.quick or args.nets or args.peers)
    output = args.output or (RESULTS if whole or args.gather else None)
    keep_cores(args.threads)
    terms = Terms(
        rounds=args.rounds or (3 if args.quick else 5),
        seconds=args.seconds or (0.3 if args.quick else 1.0),
        threads=args.threads,
        limit=args.limit,
        profiled=0 if args.no_profile else 3,
    )
    every = [*(n.name for n in NETS), BUDGET, DEEP]
    wanted = every if nets is None else [n for n in every if n in nets]
    if unknown := set(nets or ()) - {*every, "none"}:
        raise SystemExit(f"There is no network {sorted(unknown)[0]!r}; there are {', '.join(every)}.")
    left = {n: expected(n, chosen(peers), terms) for n in wanted}
    for name, seconds in left.items():
        say(f"{name}: about {seconds / 60:.1f} minutes")
    say(f"all of it: about {sum(left.values()) / 60:.0f} minutes")
    if not args.estimate:
        run(wanted, chosen(peers), terms, output, args.gather)


def run(
    wanted: list[str], columns: list[Column], terms: Terms, output: Path | None, file: Path | None
) -> None:
    """Measure and print; files are rewritten after each network, so that an interrupted run leaves some."""
    start = perf_counter()
    gathered = Gathered.read(file)
    plain = replace(terms, profiled=0)
    if wanted:
        part = Part.begun(terms.threads, terms.rounds, terms.seconds)
        part.versions = versions(columns, terms)
        gathered.begin(part)
        gathered.offer(best_rates(terms))
    elif not gathered.parts:
        raise SystemExit("Nothing is to be measured, and nothing has been gathered.")
    text = about(gathered)
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            if name == BUDGET:
                found = in_a_third(gathered, plain, Path(folder))
            elif name == DEEP:
                found = hold(deep_resnet(), deep_columns(), plain, Path(folder))
            else:
                found = hold(by_name([name])[0], columns, terms, Path(folder))
        if found is not None:
            gathered.add(name, found)
        part.minutes = (perf_counter() - start) / 60
        say(f"{name} is done after {part.minutes:.1f} minutes")
        if file is not None:
            gathered.write(file)
        write(output, text + report(gathered))
    text += report(gathered)
    print(text)
    write(output, text)


def in_a_third(gathered: Gathered, terms: Terms, folder: Path) -> Entries | None:
    """ResNet-50 in a third of PyTorch eager's peak bytes."""
    net: Net = by_name(["resnet50"])[0]
    eager = gathered.entries.get(net.name, {}).get("eager")
    if eager is None or not eager.peak:
        say("budget: PyTorch eager's peak for resnet50 is not known; measure resnet50 with eager too")
        return None
    asked = eager.peak // 3
    return hold(net, budget_columns(net.least_budget(asked), asked), terms, folder)


def expected(name: str, columns: list[Column], terms: Terms) -> float:
    """Estimated seconds that `run` spends on `name`."""
    if name == BUDGET:
        return PLANNING_S + seconds_for(by_name(["resnet50"])[0], budget_columns(0, 0), terms)
    if name == DEEP:
        return PLANNING_S + seconds_for(deep_resnet(), deep_columns(), terms)
    return seconds_for(by_name([name])[0], columns, terms)


def versions(columns: list[Column], terms: Terms) -> dict[str, dict[str, str]]:
    """Versions of all frameworks, and of the libraries that provide our kernels."""
    found: dict[str, dict[str, str]] = {}
    for column in columns:
        if column.side not in found and not column.missing():
            # One that cannot start says so where its figures would be.
            with column.start(terms.threads) as worker, suppress(RuntimeError):
                found[column.side] = worker.ask(do="versions")
    return found


def about(gathered: Gathered) -> str:
    """The heading: machine and versions."""
    found = gathered.versions()
    ours = found.pop("ours")
    peers = {
        name: f"{own[name]} ({', '.join(f'{k} {v}' for k, v in own.items() if k != name)})"
        for name, own in found.items()
    }
    text = heading("A training step on the CPU", peers or None)
    return f"{text}- mxlite's kernels: oneDNN {ours['oneDNN']}; LLVM {ours['LLVM']}\n"


def best_rates(terms: Terms) -> dict[str, float]:
    """Peak rates of this machine (arithmetic and memory)."""
    with Worker(sys.executable, str(Path(__file__).parent / "peers" / "peak_peer.py")) as worker:
        return worker.ask(do="peak", threads=terms.threads, quick=terms.seconds < 1)


def write(output: Path | None, text: str) -> None:
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / f"{today()}-cpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
