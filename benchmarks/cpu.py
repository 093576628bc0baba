"""Milliseconds and bytes of a training step on the CPU, beside PyTorch and MXNet 1.9.1.

    python benchmarks/cpu.py            about 25 minutes; writes results/<date>-cpu.md
    python benchmarks/cpu.py --quick    about 4 minutes, small networks; prints only

Each column has a process of its own, which keeps its network and waits while others run; all begin with the
same weights, and a network whose first losses differ is reported, not timed. PyTorch's columns need PyTorch
in this environment; MXLITE_MXNET_PYTHON names a Python that has MXNet 1.9.1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from harness import heading, RESULTS, Worker
from harness.machine import today, usable_cores
from networks.suite import by_name, deep_resnet, DIGITS, Net, NETS
from peers import tables
from peers.column import chosen, Column, COLUMNS, LAST, OURS, TORCH
from peers.contest import Entries, FEW, hold, say, Terms

QUICK = ["resnet20", "lenet", "mlp", "lstm", "transformer", "inference"]
DEEP_BUDGET = "32MiB"

ABOUT = """\
Median (least-most) of the rounds. Ratios are taken round by round; above 1, mxlite is faster. Columns take
turns, {seconds:g} s (at least one step) in each of {rounds} rounds ({few} where a step takes seconds), each
begun by another column. A step is forward, cross entropy, backward and SGD with momentum (PyTorch: the fused
one), on one batch that stays the same; mxlite and MXNet copy it into the network's inputs at each step.
channels_last, compile and PyTorch bf16 (autocast) have images in channels_last; compile is torch.compile's
default mode for network and loss. Dropout is left out. The LSTM is a language model of 10,000 words. "numpy
only" is mxlite without oneDNN and without generated code: one step.

"""
MEMORY = """\
mxlite: planned and measured bytes: weights, gradients, states of the optimizer, inputs, outputs, activations
and workspaces. PyTorch: the peak of its allocator, which counts tensors and not what libraries take behind
its back. No recomputation anywhere.

"""
FLOOR = """\
What the products of matrices in a step (layers, attention, convolutions, recurrent networks) would take at
the peak of this machine, {flops:.0f} GFLOP/s in a large float32 product in this run, if all else took no
time; and the ratio to PyTorch that this leaves at most. Convolutions count as the direct algorithm's, so that
Winograd's may be below this floor.

"""
PROCESS = """\
Resident memory of the process: what came since before the network was built (code that was loaded or
generated meanwhile included) of all of it, at the peak of the timed steps.

"""
PROFILE = """\
Every call of the bound program was timed (`mx.profiler`). flops are those of the direct algorithms, of which
Winograd's does without many; bytes are those of all inputs and outputs, some of which come from caches. The
rate is whichever of arithmetic and traffic is nearer to the peak of this machine, measured in this run with
as many threads: {flops:.0f} GFLOP/s in a float32 matrix product, {bandwidth:.1f} GB/s read and written in
a copy.

"""


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
    """The demo's network within its budget, PyTorch without one."""
    return [
        Column("mxlite", f"mxlite within {DEEP_BUDGET}", "ours", OURS, {"memory_budget": DEEP_BUDGET}),
        Column("eager", "PyTorch eager, no budget", "torch", TORCH),
        Column("channels_last", "the same, channels_last", "torch", TORCH, LAST),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(n.name for n in NETS)
    parser.add_argument("--nets", help=f"some of {names}, with commas between; also budget and deep")
    columns = ", ".join(c.name for c in COLUMNS)
    parser.add_argument("--peers", help=f"columns beside mxlite: some of {columns}, with commas; or none")
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
    args = parser.parse_args()
    nets = args.nets.split(",") if args.nets else QUICK if args.quick else None
    peers = [p for p in args.peers.split(",") if p != "none"] if args.peers else None
    if peers is None and args.quick:
        peers = [c.name for c in COLUMNS if c.name not in ("compile", "numpy")]
    whole = not (args.quick or args.nets or args.peers)
    output = args.output or (RESULTS if whole else None)
    keep_cores(args.threads)
    terms = Terms(
        rounds=args.rounds or (3 if args.quick else 5),
        seconds=args.seconds or (0.3 if args.quick else 1.0),
        threads=args.threads,
        limit=args.limit,
        profiled=0 if args.no_profile else 3,
    )
    run(nets, chosen(peers), terms, output)


def keep_cores(threads: int) -> None:
    """Let this process and all it starts run on `threads` cores only, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def run(nets: list[str] | None, columns: list[Column], terms: Terms, output: Path | None) -> None:
    """Measure and print; the file is written anew after each network, so that a stopped run leaves one."""
    start = perf_counter()
    wanted = [*(n.name for n in NETS), "budget", "deep"] if nets is None else nets
    text = about(columns, terms)
    results: tables.Results = []
    budget = deep = None
    plain = replace(terms, profiled=0)
    with tempfile.TemporaryDirectory() as folder:
        peak = best_rates(terms)
        for net in by_name([n for n in wanted if n not in ("budget", "deep")]):
            results.append((net, hold(net, columns, terms, Path(folder))))
            write(output, text + report(results, budget, deep, peak, terms, start))
            for file in Path(folder).iterdir():
                file.unlink()
        if "budget" in wanted:
            budget = in_a_third(results, plain, Path(folder))
        if "deep" in wanted:
            deep = hold(deep_resnet(), deep_columns(), plain, Path(folder))
    text += report(results, budget, deep, peak, terms, start)
    print(text)
    write(output, text)


def in_a_third(results: tables.Results, terms: Terms, folder: Path) -> Entries | None:
    """ResNet-50 in a third of the bytes that PyTorch eager takes at its peak."""
    net: Net = by_name(["resnet50"])[0]
    eager = next((e["eager"] for n, e in results if n.name == net.name and "eager" in e), None)
    if eager is None or not eager.peak:
        say("budget: PyTorch eager's peak for resnet50 is not known; measure resnet50 with eager too")
        return None
    asked = eager.peak // 3
    return hold(net, budget_columns(net.least_budget(asked), asked), terms, folder)


def about(columns: list[Column], terms: Terms) -> str:
    """The heading: machine, versions of all frameworks, and of the libraries that our kernels come from."""
    found: dict[str, dict[str, str]] = {}
    for column in columns:
        if column.side not in found and not column.missing():
            # One that cannot start says so where its figures would be.
            with column.start(terms.threads) as worker, suppress(RuntimeError):
                found[column.side] = worker.ask(do="versions")
    ours = found.pop("ours")
    peers = {
        name: f"{own[name]} ({', '.join(f'{k} {v}' for k, v in own.items() if k != name)})"
        for name, own in found.items()
    }
    text = heading("A training step on the CPU", peers or None)
    return f"{text}- mxlite's kernels: oneDNN {ours['oneDNN']}; LLVM {ours['LLVM']}\n"


def best_rates(terms: Terms) -> dict[str, float]:
    """What this machine can do."""
    with Worker(sys.executable, str(Path(__file__).parent / "peers" / "peak_peer.py")) as worker:
        return worker.ask(do="peak", threads=terms.threads, quick=terms.seconds < 1)


def report(
    results: tables.Results,
    budget: Entries | None,
    deep: Entries | None,
    peak: dict[str, float],
    terms: Terms,
    start: float,
) -> str:
    """Everything below the heading."""
    peak = tables.best_seen(results, peak)
    text = f"- threads: {terms.threads}; all of it took {(perf_counter() - start) / 60:.1f} minutes\n\n"
    text += ABOUT.format(seconds=terms.seconds, rounds=terms.rounds, few=FEW)
    rows = [t.row() for t in tables.targets(results, budget, deep)]
    text += "## Targets\n\n" + tables.markdown(["ratio", "target", "reached", "met"], rows)
    sections = {
        "float32": tables.times(results, "fp32"),
        "float32: the floor": with_text(FLOOR, tables.floors(results, "fp32", peak), peak),
        "bfloat16": tables.times(results, "bf16"),
        "bfloat16: the floor": with_text(FLOOR, tables.floors(results, "bf16", peak), peak),
        "Without oneDNN and generated code": tables.fallback(results),
        "Memory, float32": MEMORY + tables.memory(results, "fp32"),
        "Memory, bfloat16": tables.memory(results, "bf16"),
        "Processes, float32": PROCESS + tables.processes(results, "fp32"),
        "Processes, bfloat16": tables.processes(results, "bf16"),
    }
    everything = list(results)
    if budget is not None:
        everything.append((by_name(["resnet50"])[0], budget))
        sections["ResNet-50 224 B8 in a third of PyTorch eager's peak"] = tables.contest(budget, "a step")
    if deep is not None:
        everything.append((deep_resnet(), deep))
        batches = -(-DIGITS // 32)
        sections[f"1001 layers: seconds for an epoch of {batches} batches, from steps measured"] = (
            tables.contest(deep, "an epoch", per=batches, unit="s")
        )
    sections["Losses"] = (
        "The difference is the largest of the steps, relative to PyTorch eager (else MXNet).\n\n"
        + tables.losses(everything)
    )
    sections["Left out"] = tables.notes(results)
    profiles = ""
    for net, entries in results:
        for name in ("mxlite", "mxlite-bf16"):
            if name in entries and entries[name].profile is not None:
                profiles += f"\n### {net.title}, {entries[name].column.title}\n\n"
                profiles += tables.profile(entries[name], peak)
    if profiles:
        rates = {k: v / 1e9 for k, v in peak.items()}
        sections["Where the time goes"] = PROFILE.format(**rates) + profiles.lstrip("\n")
    return text + "".join(f"\n## {title}\n\n{body}" for title, body in sections.items() if body)


def with_text(text: str, table: str, peak: dict[str, float]) -> str:
    """`table` below what it means; nothing without a table."""
    return table and text.format(flops=peak["flops"] / 1e9) + table


def write(output: Path | None, text: str) -> None:
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / f"{today()}-cpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
