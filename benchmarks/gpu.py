"""Milliseconds, bytes and host time of a training step on a GPU, beside PyTorch and JAX.

    python benchmarks/gpu.py                       all of it; writes results/<date>-gpu.md
    python benchmarks/gpu.py --quick               without compiled columns and budgets
    python benchmarks/gpu.py --emulated            on the tests' emulated GPU: a test of this file

Each column has a process of its own and the GPU to itself; all begin with the same weights, and a column
whose first losses differ is reported, not timed. The exit code is 1 where one of mxlite's has failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from gpu_columns import columns as known_columns, HOST_STEPS, nets as known_nets, report
from gpu_columns.contest import Clock, hold, largest_batches, NO_TIME
from harness import heading, RESULTS
from harness.machine import today
from networks.suite import Net
from peers.column import Column
from peers.contest import Entries, say, Terms

TUNING = "MXLITE_GPU_TUNING_SECONDS"
BUDGETS = {"7 GiB": 7 * 2**30, "4 GiB": 4 * 2**30}
ROOM, MOST_EXTRA = 8 * 10**9, 0.15

ASKED = 90  # seconds in which a framework has to say its version

ABOUT = """\
Device time of a step between two events (median (least-most) of the rounds), {seconds:g} s of steps in each
of {rounds} rounds. A step is forward, cross entropy, backward and SGD with momentum (PyTorch: the fused one),
on one batch that stays the same and lies on the GPU. float32 is without TF32 on both sides. channels_last and
max-autotune (torch.compile, which uses CUDA graphs) have images in channels_last; PyTorch's bfloat16 is
autocast. Dropout is left out. ResNet-1001 is `mx.models`' resnet1001_memonger.

JAX: the whole step under `jax.jit`, its state donated; time is the clock's, until all of a round is done.
Plain functions, channels last; attention is cuDNN's in bfloat16, else XLA's; an LSTM, and the equal blocks of
ResNet-1001, are `lax.scan`. remat: `jax.checkpoint` around every block or layer. Matrix products are of
precision "highest" in float32, "tensorfloat32" for TF32; in bfloat16 weights are rounded where they are used,
and norms, losses and cells of an LSTM stay float32.

"""
HOST = """\
The time until the last of {steps} steps was pushed (fewer where a round has fewer), divided by their number:
without waiting for the device, except where a framework waits by itself.

"""
MEMORY = """\
planned: what the plan said before anything was allocated; of JAX what XLA says of the compiled step. peak:
mxlite's measured bytes; the peak of PyTorch's allocator in a step; that of JAX's since its process began,
trials while compiling included. gone: bytes fewer free on the device than before the network was built,
modules, graphs and libraries included; of PyTorch and JAX what their allocators have reserved.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", help="some of the networks, with commas; also deep and batch")
    parser.add_argument("--columns", help="some of the columns, with commas; the first is mxlite's")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of steps in one round")
    parser.add_argument("--limit", type=float, default=600, help="seconds until a column must be ready")
    parser.add_argument("--time", type=float, help="seconds for everything; what is left then is left out")
    parser.add_argument("--tuning", type=int, help="seconds that a process of ours may measure kernels")
    parser.add_argument("--quick", action="store_true", help="some networks and columns")
    parser.add_argument("--emulated", action="store_true", help="small, on the tests' emulated GPU")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    if args.tuning is not None:
        os.environ[TUNING] = str(args.tuning)  # of the columns' processes
    nets = known_nets.small() if args.emulated else known_nets.nets()
    columns = known_columns.columns()
    if args.emulated:
        columns = [known_columns.emulated(c) for c in known_columns.small()]
    elif args.quick:
        columns = known_columns.quick()
    extra = [] if args.quick or args.emulated else ["deep", "batch"]
    if args.nets or (args.quick and not args.emulated):
        wanted = args.nets.split(",") if args.nets else [*known_nets.QUICK]
        extra = [n for n in wanted if n in ("deep", "batch")]
        nets = sorted((n for n in nets if n.name in wanted), key=lambda n: wanted.index(n.name))
    if args.columns:
        columns = [c for c in columns if c.name in args.columns.split(",")]
    short = args.quick or args.emulated
    terms = Terms(
        rounds=args.rounds or (2 if short else 5),
        seconds=args.seconds or (0.05 if args.emulated else 0.3 if short else 1.0),
        threads=8 if not args.emulated else 1,
        limit=args.limit,
        profiled=0,
    )
    output = args.output or (None if short or args.nets or args.columns else RESULTS)
    return int(run(nets, extra, columns, terms, Clock.of(args.time), output))


def run(
    nets: Sequence[Net],
    extra: Sequence[str],
    columns: Sequence[Column],
    terms: Terms,
    clock: Clock,
    output: Path | None,
) -> bool:
    """Measure and print; the file is written anew after each column, so that a stopped run leaves one.

    Returns whether a column of ours failed.
    """
    start = perf_counter()
    head = about(columns, clock)
    results: report.Results = []
    deep: Entries | None = None
    batches: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for net in nets:

            def tell(entries: Entries, net: Net = net) -> None:
                write(output, head + body([*results, (net, entries)], deep, batches, terms, start))

            results.append((net, hold(net, columns, terms, folder, clock, tell)))
        if "deep" in extra:

            def tell_deep(entries: Entries) -> None:
                write(output, head + body(results, entries, batches, terms, start))

            deep = hold(known_nets.deep(), known_columns.within(BUDGETS), terms, folder, clock, tell_deep)
        if "batch" in extra:
            try:
                for row in batch_sizes(terms, folder, clock):
                    batches.append(row)
                    write(output, head + body(results, deep, batches, terms, start))
            except Exception as error:
                batches.append({"column": "all others", "note": f"{type(error).__name__}: {error}"[:200]})
    text = head + body(results, deep, batches, terms, start)
    print(text)
    write(output, text)
    held = [*(es for _, es in results), deep or {}]
    return any(e.column.side == "ours" and e.note not in ("", NO_TIME) for es in held for e in es.values())


def batch_sizes(terms: Terms, folder: Path, clock: Clock) -> Iterator[dict[str, Any]]:
    """Of ResNet-50 in 8 GB."""
    say("largest batch")
    (net,) = [n for n in known_nets.nets() if n.name == "resnet50"]
    found = known_columns.within({})
    wanted = [
        Column("mxlite", "mxlite", "ours", found[0].script, {}, found[0].env),
        *(
            Column(c.name, {"eager": "PyTorch eager"}.get(c.name, c.title), "torch", c.script, c.options)
            for c in found
            if c.side == "torch"
        ),
    ]
    return largest_batches(net, ROOM, MOST_EXTRA, terms, folder, wanted, clock)


def about(columns: Sequence[Column], clock: Clock) -> str:
    """The heading: machine, GPU, versions of all frameworks. Who does not say takes a tenth of the time."""
    found: dict[str, dict[str, str]] = {}
    for column in columns:
        if column.side not in found and not column.missing():
            found[column.side] = {}
            with suppress(RuntimeError, OSError), column.start(1) as worker:  # who cannot start says so below
                found[column.side] = worker.ask(min(ASKED, clock.left / 10), do="versions")
    peers = {f"{side} {k}": v for side, own in found.items() for k, v in own.items()}
    return heading("A training step on the GPU", peers or {"no column": "could be asked"})


def body(
    results: report.Results,
    deep: Entries | None,
    batches: Sequence[dict[str, Any]],
    terms: Terms,
    start: float,
) -> str:
    """Everything below the heading."""
    text = f"- all of it took {(perf_counter() - start) / 60:.1f} minutes\n\n"
    text += ABOUT.format(seconds=terms.seconds, rounds=terms.rounds)
    if TUNING in os.environ:
        text += f"A process of mxlite's had {os.environ[TUNING]} s to measure kernels.\n\n"
    if terms.threads == 1:
        text += "Nothing here says anything of a GPU: it is the tests' emulated one, of others the CPU.\n"
    else:
        text += "## Targets\n\n" + report.targets(results, deep, batches)
    sections = {title: report.times(results, p) for p, title in known_columns.PRECISIONS.items()}
    sections["Memory"] = MEMORY + report.memory(results)
    sections["The host"] = HOST.format(steps=HOST_STEPS) + report.host(results)
    if deep is not None:
        whole = [(known_nets.deep(), deep)]
        sections["ResNet-1001 within budgets"] = report.times(whole, "tf32") + "\n" + report.memory(whole)
    if batches:
        lines = [f"- {b['column']}: {b.get('batch', b.get('note'))}\n" for b in batches]
        sections[f"Largest batch of ResNet-50 in {ROOM / 1e9:g} GB"] = "".join(lines)
    sections["Left out"] = report.notes(results)
    return text + "".join(f"\n## {title}\n\n{found}" for title, found in sections.items() if found)


def write(output: Path | None, text: str) -> None:
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        (output / f"{today()}-gpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
