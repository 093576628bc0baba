"""A ResNet with 991 convolutions on images of 224x224, trained within a few GiB (executed, not only planned).

    python benchmarks/deep.py            about 10 minutes on two cores; writes results/<date>-deep.md
    python benchmarks/deep.py --quick    a ResNet-152 on 1 image; prints only
    python benchmarks/deep.py --budgets 7GiB,4GiB --rounds 1

Every budget has its own process, and all of them are alive at the same time: the machine needs the bytes of
all budgets together.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness import heading, markdown, RESULTS, Spread, Worker
from harness.machine import memory_gib, usable_cores, write_page
from networks.suite import Net
from peers.column import Column, OURS
from peers.contest import reason, say

import mxlite as mx

BUDGETS = ("7GiB", "4GiB", "3.1GiB")
QUICK = ("700MiB", "560MiB")
ROUNDS = 2
LIMIT_S = 3600  # for planning and the first step
GIB = 2**30

ABOUT = """\
memonger's ResNet (`zoo:{name}`), a batch of {shape}, float32, SGD with momentum, on {threads} threads.
Without a budget its plan takes {free:.2f} GiB ({light:.1f} % slower by the model than a step that keeps all,
{all:.2f} GiB). Bytes are of the whole program: weights, gradients, momentum, batch and all else; "measured"
counts the arrays that the program owns, "process" is how much more resident memory it took at its peak than
before the network was built. Columns take turns, {rounds} rounds of a step: median (least-most). Predicted by
the planner's default model (10 TFLOP/s, 600 GB/s). "Same bits": weights, statistics and momentum after all
steps equal those within the first budget, bit by bit.

"""


def network(depth: int, batch: int) -> Net:
    """memonger's topology; there is no PyTorch counterpart of it here."""
    name = f"resnet{depth}_memonger"
    symbol = partial(mx.models.get, name)
    return Net(
        name, name, symbol, (batch, 3, 224, 224), (batch,), 1000, ("", {"bottleneck": True}), rate=1e-4
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small network, no result file")
    parser.add_argument("--budgets", help="with commas between, as in 4GiB; the largest first")
    parser.add_argument("--depth", type=int, default=1001)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=usable_cores())
    args = parser.parse_args()
    if args.quick:
        args.depth, args.batch = 152, 1
    asked = args.budgets.split(",") if args.budgets else QUICK if args.quick else BUDGETS
    budgets = {name: mx.parse_bytes(name) for name in asked}
    if sum(budgets.values()) > memory_gib() * GIB:
        together = f"{sum(budgets.values()) / GIB:.1f} GiB"
        raise SystemExit(
            f"All budgets together are {together}, this machine has {memory_gib():.1f} GiB:"
            " ask for some of them, --budgets 4GiB,2GiB"
        )
    net = network(args.depth, args.batch)
    text = heading("A thousand layers, run", None)
    write_page(text + "\n" + measure(net, budgets, args), None if args.quick else RESULTS, "deep")


@dataclass
class Run:
    """Results of a budget's process. `seconds` of a step, by round; `note`: why there are no results."""

    seconds: list[float] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    extra_time: float = 0.0
    loss: float = 0.0
    digest: str = ""
    note: str = ""


def measure(net: Net, budgets: dict[str, int], args: argparse.Namespace) -> str:
    """Text of the page below its heading."""
    runs = {name: Run() for name in budgets}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        spec = net.prepare(Path(folder))
        workers: dict[str, Worker] = {}
        for name, nbytes in budgets.items():  # one after the other: a step uses all cores
            worker = stack.enter_context(Column(name, name, "ours", OURS).start(args.threads))
            try:
                worker.ask(LIMIT_S, do="load", spec=spec, memory_budget=nbytes)
                (runs[name].loss,) = worker.ask(LIMIT_S, do="losses", count=1)
                workers[name] = worker
            except RuntimeError as error:
                runs[name].note = reason(error)
            say(f"{name}: loss {runs[name].loss:.6f} {runs[name].note}")
        for r in range(args.rounds):
            for name in [*workers][r % len(workers) :] + [*workers][: r % len(workers)]:
                runs[name].seconds.append(workers[name].ask(do="run", count=1))
                say(f"{name}: {runs[name].seconds[-1]:.1f} s")
        for name, worker in workers.items():
            runs[name].memory = worker.ask(do="memory")
            runs[name].extra_time = worker.ask(do="plan")["extra_time"]
            runs[name].digest = worker.ask(do="digest")
    return _about(net, args) + markdown(HEAD, [_row(name, run, runs) for name, run in runs.items()])


HEAD = ("budget", "planned", "measured", "process", "s a step", "/ first", "predicted", "loss", "same bits")


def _about(net: Net, args: argparse.Namespace) -> str:
    sgd = mx.optimizer.SGD(momentum=0.9)
    free = net.symbol().memory_plan(mx.cpu(), optimizer=sgd, **net.shapes)
    whole = net.symbol().memory_plan(mx.cpu(), optimizer=sgd, memory_budget=2**50, **net.shapes)
    return ABOUT.format(
        name=net.name,
        shape=" x ".join(map(str, net.data)),
        threads=args.threads,
        rounds=args.rounds,
        free=free.peak_bytes / GIB,
        light=100 * free.extra_time,
        all=whole.peak_bytes / GIB,
    )


def _row(name: str, run: Run, runs: dict[str, Run]) -> list[str]:
    first = next(iter(runs.values()))
    if run.note or first.note:
        return [name, run.note or "the first is missing", *[""] * (len(HEAD) - 2)]
    seconds = Spread(tuple(run.seconds))
    return [
        name,
        *(f"{run.memory.get(what, 0):,}" for what in ("planned", "measured", "growth")),
        str(seconds),
        f"{(seconds / Spread(tuple(first.seconds))).median:.3f}",
        f"{(1 + run.extra_time) / (1 + first.extra_time):.3f}",
        f"{run.loss:.6f}",
        "yes" if run.digest == first.digest else "NO",
    ]


if __name__ == "__main__":
    main()
