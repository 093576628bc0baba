"""Samples in a second of training by mx.dynamic, beside DyNet's autobatch and PyTorch batched by hand.

    MXLITE_DYNET_PYTHON=~/dynet/bin/python python benchmarks/dynamic.py      writes results/<date>-dynamic.md
    python benchmarks/dynamic.py --quick                                     one short round; prints only

DyNet (dynet38) needs an environment of its own, whose Python MXLITE_DYNET_PYTHON names. Each library has its
own process and one thread; they take turns. All have equal weights, and losses that differ end the run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from harness import heading, markdown, RESULTS, Spread, Worker
from harness.machine import keep_cores, write_page
from peers.targets import at_least

HERE = Path(__file__).resolve().parent
PEER_VARIABLE = "MXLITE_DYNET_PYTHON"
ONE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "MXLITE_NUM_THREADS"), "1")
NETS = {"tree": "Tree-LSTM, H=256", "tagger": "BiLSTM with letters, H=256", "rvnn": "RvNN, H=256"}
LIMITS = {  # (network, peer, batch): least ratio
    ("tree", "DyNet", 1): 2.0,
    ("tree", "DyNet", 16): 2.0,
    ("tree", "PyTorch", 64): 1.0,
    ("tagger", "DyNet", 16): 1.5,
    ("rvnn", "DyNet", 16): 1.5,
}
AGREE = 1e-4  # of the sum of losses

ABOUT = """\
Samples in a second of training steps (forward, backward and plain SGD): median (least-most) of rounds. Ratios
are those of rounds in which all took turns, each in its own process, on one core and one thread (mxlite: the
naive engine). A step takes the next samples of a pool of 256, so that its shapes are new ones mostly. `bytes`
are planned and measured; `record` is the share of a step in which Python records and schedules; `reads` is
how often a weight is read in a pass, beside once for each level in which its cell has nodes.

- Tree-LSTM: a binary one over random trees of 5 to 33 words, 2,000 different ones, a class for the root.
  PyTorch is batched by hand, level by level.
- BiLSTM with letters: a tag for each of 10 to 28 words, a fifth of which are spelt by a BiLSTM over letters.
- RvNN: h = tanh(W [left, right] + b) over the same trees.
"""


@dataclass
class Measured:
    """Speeds by the names of libraries, and facts of mxlite's network."""

    net: str
    batch: int
    speeds: dict[str, Spread]
    facts: Mapping[str, float]


def measure(
    net: str, batch: int, workers: Mapping[str, Worker], rounds: int, seconds: float, busy: bool
) -> Measured:
    """One network in rounds in which the workers take turns."""
    losses = {name: w.ask(do="load", net=net, batch=batch) for name, w in workers.items()}
    for name, found in losses.items():
        if any(abs(a - b) > AGREE * abs(b) for a, b in zip(found, losses["mxlite"], strict=True)):
            raise SystemExit(
                f"{net} of {batch}: the losses of {name} are {found}, mxlite's {losses['mxlite']}."
            )
    times: dict[str, list[float]] = {name: [] for name in workers}
    for r in range(rounds):
        for name in workers if r % 2 else reversed(workers):
            times[name].append(workers[name].ask(do="time", seconds=seconds, busy=busy))
    speeds = {name: Spread(tuple(t)) for name, t in times.items()}
    return Measured(net, batch, speeds, workers["mxlite"].ask(do="facts"))


def report(found: Sequence[Measured]) -> str:
    """The tables as Markdown."""
    rows, targets = [], []
    for m in found:
        ratios = {name: m.speeds["mxlite"] / s for name, s in m.speeds.items() if name != "mxlite"}
        rows.append(
            [
                NETS[m.net],
                m.batch,
                *(m.speeds.get(name, "-") for name in ("mxlite", "DyNet", "PyTorch")),
                *(ratios.get(name, "-") for name in ("DyNet", "PyTorch")),
                f"{m.facts['planned']:,.0f} / {m.facts['measured']:,.0f}",
                f"{100 * m.facts['record']:.0f} %",
                f"{m.facts['reads']:.2f}",
            ]
        )
        for name, ratio in ratios.items():
            if limit := LIMITS.get((m.net, name, m.batch)):
                targets.append(at_least(f"{NETS[m.net]}, {m.batch}, / {name}", limit, ratio.median))
    names = ["mxlite", "DyNet", "PyTorch", "/ DyNet", "/ PyTorch", "bytes", "record", "reads"]
    text = ABOUT + "\n## Speeds\n\n" + markdown(["network", "batch", *names], rows)
    return (
        text
        + "\n## Targets\n\n"
        + markdown(["target", "limit", "reached", "met"], [t.row() for t in targets])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, no result file")
    parser.add_argument("--busy", action="store_true", help="seconds are those of CPU time")
    parser.add_argument("--nets", default=",".join(NETS), help="with commas between")
    parser.add_argument("--batches", default="1,16,64", help="samples in a step, with commas between")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of each library in one round")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 7)
    seconds = args.seconds or (0.1 if args.quick else 2.0)
    output = args.output or (None if args.quick else RESULTS)
    dynet = os.environ.get(PEER_VARIABLE)
    keep_cores(1)
    found, versions = [], {}
    for net in args.nets.split(","):
        with ExitStack() as stack:
            scripts = {"mxlite": (sys.executable, "mxlite_recursive.py")}
            if dynet:
                options = ("--dynet-autobatch", "1", "--dynet-mem", "1024", "--dynet-seed", "1")
                scripts["DyNet"] = (dynet, "dynet_recursive.py", *options)
            if net == "tree" and find_spec("torch"):
                scripts["PyTorch"] = (sys.executable, "torch_recursive.py")
            workers = {
                name: stack.enter_context(Worker(python, str(HERE / "peers" / script), *more, env=ONE))
                for name, (python, script, *more) in scripts.items()
            }
            for name, w in workers.items():
                versions |= w.ask(do="versions") if name != "mxlite" else {}
            for batch in map(int, args.batches.split(",")):
                print(f"{net}, {batch}", file=sys.stderr, flush=True)
                found.append(measure(net, batch, workers, rounds, seconds, args.busy))
    text = heading("Networks that differ in every sample, on one thread", versions)
    if not dynet:
        text += f"- DyNet was not measured: {PEER_VARIABLE} does not name a Python that has it\n"
    unit = "s of CPU time" if args.busy else "s"
    text += f"- rounds: {rounds} of {seconds:g} {unit} for each library, alternated\n\n"
    write_page(text + report(found), output, "dynamic")


if __name__ == "__main__":
    main()
