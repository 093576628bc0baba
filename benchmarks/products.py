"""GF/s of matrix products and convolutions on the CPU, beside oneDNN and PyTorch.

    python benchmarks/products.py            everything, about an hour; writes results/<date>-products.md
    python benchmarks/products.py --quick    one short round, few schedules; prints only
    python benchmarks/products.py --only 8x4096 --threads 1    rows whose names have a word

Each library has its own process; they take turns. All get equal inputs, and a row whose results differ is
reported, not timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep

from harness import heading, markdown, RESULTS, Spread, Worker
from harness.machine import usable_cores, write_page
from kernels import KEPT, note
from peers.column import Column
from peers.contest import SETTLE_S
from peers.products import Row, ROWS
from peers.tables import mean
from peers.targets import at_least, Target

OURS = Column("mxlite", "mxlite", "ours", "mxlite_products.py", env={"MXLITE_ENGINE": "naive"})
PEERS = (
    Column("onednn", "oneDNN", "ours", "onednn_products.py"),
    Column("torch", "PyTorch", "torch", "torch_products.py", env=KEPT),
)
FEW = 16  # rows

ABOUT = """\
GF/s of a call in a loop from Python: median (least-most) of rounds; a round's figure is the lower quartile of
some blocks of calls. Ratios are those of medians of rounds in which all took turns, each in its own process.

- products: (M, K) @ (K, N) of plain float32 matrices. "chosen": the kernel that binding takes. "default",
  "best": generated code by its default schedule, and by the best legal one of a search. "packed": oneDNN with
  its own layout of the right matrix, packed beforehand, as dense layers of mxlite have constant weights.
- convolutions: C1 to C12 are those of ResNet-18, D1 to D9 the depthwise ones of MobileNet, of one image.
  mxlite: a program for inference, with channels last and weights packed when it was bound; a call is one of
  `forward`.
  oneDNN: all arrays in the layouts it likes best. PyTorch: its default layout and channels last.
- flops are those of the definition, so Winograd's algorithm may pass what the machine can do.
"""


@dataclass
class Measured:
    """A row, its GF/s by the names of calls; `kernel` is chosen, `schedule` the best."""

    row: Row
    threads: int
    kernel: str
    schedule: str = ""
    speeds: dict[str, Spread] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def ratio(self, way: str, *peers: str) -> float:
        """Our speed divided by that of the best peer."""
        return min((self.speeds[way] / self.speeds[p]).median for p in peers if p in self.speeds)


def measure(
    place: int, workers: Sequence[Worker], threads: int, rounds: int, seconds: float, tries: int
) -> Measured:
    """`ROWS[place]` in rounds in which the workers take turns. Workers: ours, then the peers'."""
    row, loaded = ROWS[place], [w.ask(do="load", row=place) for w in workers]
    mine = loaded[0]["chosen"]
    m = Measured(row, threads, mine["kernel"])
    m.wrong = [way for found in loaded for way, theirs in found.items() if note(mine, theirs)]
    if m.wrong:
        return m
    calls = [(w, way) for w, found in zip(workers, loaded) for way in found]
    if not row.stride:
        m.schedule = workers[0].ask(do="search", number=tries)
        calls.append((workers[0], "best"))
    times: dict[str, list[float]] = {way: [] for _, way in calls}
    for r in range(rounds):
        for worker, way in calls if r % 2 else reversed(calls):
            sleep(SETTLE_S)
            times[way].append(row.flops / 1000 / worker.ask(do="time", way=way, seconds=seconds))
    m.speeds = {way: Spread(tuple(t)) for way, t in times.items()}
    return m


def table(found: Sequence[Measured], ratios: dict[str, Callable[[Measured], float]]) -> str:
    """Speeds and ratios as Markdown."""
    if not found:
        return "Nothing was timed.\n"
    ways = list(found[0].speeds)
    head = ["row", "threads", *ways, *ratios, "kernel"]
    lines = [
        [
            m.row.title,
            m.threads,
            *(m.speeds[w] for w in ways),
            *(f"{f(m):.2f}" for f in ratios.values()),
            m.kernel,
        ]
        for m in found
    ]
    return markdown(head, lines)


def report(found: Sequence[Measured]) -> str:
    """The tables as Markdown."""
    right = [m for m in found if not m.wrong]
    products = [m for m in right if not m.row.stride]
    others = [m for m in right if m.row.stride]
    plain, packed = ("plain", "torch"), ("packed",)
    libraries = ("onednn", "torch", "channels last")
    text = ABOUT + "\n## Products\n\n"
    text += table(products, {
        f"{way} / {name}": lambda m, way=way, peers=peers: m.ratio(way, *peers)  # type: ignore[misc]
        for way in ("chosen", "default", "best")
        for name, peers in (("plain", plain), ("packed", packed))
    })  # fmt: skip
    text += "\nThe best schedules:\n\n" + "".join(
        f"- {m.row.title}, {m.threads}: {m.schedule}\n" for m in products
    )
    text += "\n## Convolutions\n\n"
    text += table(others, {"chosen / best": lambda m: m.ratio("chosen", *libraries)})
    few = [m for m in products if m.row.inputs[0].shape[0] <= FEW]
    squares = [m for m in products if len({n for i in m.row.inputs for n in i.shape}) == 1]
    dense = [m for m in others if m.row.groups == 1]
    depthwise = [m for m in others if m.row.groups > 1]
    groups = [
        (f"M <= {FEW} / best with a plain matrix", 1.1, [m.ratio("chosen", *plain) for m in few]),
        ("squares / best with a plain matrix", 0.95, [m.ratio("chosen", *plain) for m in squares]),
        ("C1-C12 / best", 0.9, [m.ratio("chosen", *libraries) for m in dense]),
        ("D1-D9 / best", 1.0, [m.ratio("chosen", *libraries) for m in depthwise]),
    ]
    targets = [at_least(f"{title}, geometric mean", limit, mean(r)) for title, limit, r in groups]
    wrong = sum(bool(m.wrong) for m in found)
    targets.append(Target("wrong results", "0", wrong, not wrong))
    text += "\n## Targets\n\n" + markdown(["target", "limit", "reached", "met"], [t.row() for t in targets])
    if wrong:
        text += "\nOther results: " + "; ".join(f"{m.row.title}: {m.wrong}" for m in found if m.wrong) + ".\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, few schedules, no result file")
    parser.add_argument("--only", metavar="WORD", help="rows whose names have this word; no result file")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one call in one round")
    parser.add_argument("--schedules", type=int, help="drawn for a search, besides neighbours")
    parser.add_argument("--threads", help="of each, with commas between (default: 1 and the cores)")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 7)
    seconds = args.seconds or (0.02 if args.quick else 0.2)
    tries = args.schedules or (2 if args.quick else 32)
    threads = [int(n) for n in args.threads.split(",")] if args.threads else sorted({1, usable_cores()})
    output = args.output or (None if args.quick or args.only else RESULTS)
    if missing := PEERS[1].missing():
        raise SystemExit(f"{missing}.")
    found, versions = [], {}
    for number in threads:
        with ExitStack() as stack:
            workers = [stack.enter_context(c.start(number)) for c in (OURS, *PEERS)]
            versions = {k: v for w in workers[1:] for k, v in w.ask(do="versions").items()}
            for i, row in enumerate(ROWS):
                if (args.only or "") in row.title:
                    print(f"{row.title}, {number}", file=sys.stderr, flush=True)
                    found.append(measure(i, workers, number, rounds, seconds, tries))
    text = heading("Matrix products and convolutions on the CPU", versions)
    text += f"- rounds: {rounds} of {seconds:g} s for each call, alternated\n\n"
    write_page(text + report(found), output, "products")


if __name__ == "__main__":
    main()
