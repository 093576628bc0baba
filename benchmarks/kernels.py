"""Microseconds of single operators on the CPU, forward and gradient, beside PyTorch eager.

    python benchmarks/kernels.py            about six minutes; writes results/<date>-kernels.md
    python benchmarks/kernels.py --quick    one minute, one short round; prints only
    python benchmarks/kernels.py --only softmax,norm    some operators; prints only

Each framework has its own process; they take turns. Both get equal inputs, and a call whose results differ
is reported, not timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

from harness import heading, markdown, RESULTS, Spread, Worker
from harness.machine import usable_cores, write_page
from harness.table import number
from peers.column import Column
from peers.contest import SETTLE_S
from peers.operators import Row, ROWS, SIZES
from peers.tables import mean
from peers.targets import at_least, Target

OURS = Column("mxlite", "mxlite", "ours", "mxlite_kernels.py")
KEPT = {
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # the largest that glibc takes
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**28),
}
"""Settings by which glibc keeps what is freed. It would return large results to the system, and each call
would pay for new pages, which is a matter of the allocator and not of kernels."""
TORCH = Column("eager", "PyTorch eager", "torch", "torch_kernels.py", env=KEPT)
MEAN, SLOWEST = 1.2, 0.9
TOLERANCE = 1e-3  # of a product with a fixed vector, relative to the norm of the result

ABOUT = """\
Microseconds of a call in a loop, each from Python: median (least-most) of rounds; a round's figure is the
lower quartile of some blocks of calls. The ratio is PyTorch's time divided by mxlite's, round by round.

- Inputs exist beforehand, in float32; those of the small sizes stay in a core's cache. Indices, labels and
  conditions are float32 for mxlite, int64 or bool for PyTorch.
- mxlite: the kernel that a program would choose, bound to its arrays; its outputs and its workspace exist
  beforehand, too. In a program, most kernels are called without Python in between.
- PyTorch: the function called in inference mode, and `autograd.grad` with `retain_graph=True` of a graph
  that exists. It allocates its results, as always in eager mode, from memory that its process keeps. Python,
  dispatch and autograd's engine are a large part of a small call.
- Gradients are those of all float inputs. SoftmaxOutput's is that of PyTorch's cross-entropy.
"""


@dataclass(frozen=True)
class Measured:
    """A call of both frameworks. `note`: why it was not timed."""

    row: Row
    way: str
    kernel: str
    ours: Spread | None = None
    torch: Spread | None = None
    note: str = ""

    @property
    def ratio(self) -> Spread | None:
        return None if self.ours is None or self.torch is None else self.torch / self.ours

    def cells(self) -> list[Any]:
        assert self.ours is not None and self.torch is not None
        what = [self.row.title, self.row.shape, self.way]
        return [*what, self.ours, self.torch, self.ratio, self.kernel]


def note(mine: dict[str, Any], theirs: dict[str, Any]) -> str:
    """Why a call is not timed, from what both workers found; empty if it is."""
    if theirs["is_view"]:
        return "view"
    if len(mine["digests"]) != len(theirs["digests"]):
        return f"wrong: {len(mine['digests'])} results, PyTorch has {len(theirs['digests'])}"
    for (norm, product), (_, wanted) in zip(mine["digests"], theirs["digests"]):
        if not abs(product - wanted) <= TOLERANCE * norm:  # a nan is wrong, too
            return f"wrong: product {product:.6g}, PyTorch's {wanted:.6g}, of norm {norm:.6g}"
    return ""


def measure(place: int, workers: Sequence[Worker], rounds: int, seconds: float) -> list[Measured]:
    """The calls of `ROWS[place]`, in rounds in which the workers take turns. Workers: ours, PyTorch's."""
    row = ROWS[place]
    mine, theirs = (w.ask(do="load", row=place) for w in workers)
    found = []
    for way in mine | theirs:
        kernel = mine[way]["kernel"]
        if reason := note(mine[way], theirs[way]):
            found.append(Measured(row, way, kernel, note=reason))
            continue
        times: dict[Worker, list[float]] = {w: [] for w in workers}
        for r in range(rounds):
            for worker in workers if r % 2 else reversed(workers):
                sleep(SETTLE_S)
                times[worker].append(worker.ask(do="time", way=way, seconds=seconds))
        ours, torch = (Spread(tuple(times[w])) for w in workers)
        found.append(Measured(row, way, kernel, ours, torch))
    return found


def report(found: Sequence[Measured]) -> str:
    """The tables as Markdown."""
    timed = [m for m in found if not m.note]
    head = ["operator", "largest input", "call", "mxlite", "PyTorch", "ratio", "kernel"]
    text = ABOUT + "\n## Calls\n\n" + markdown(head, [m.cells() for m in timed])
    for title, begins, about in (
        ("Not compared", "view", "PyTorch's result is a view of another array, and nothing is computed.\n\n"),
        ("Wrong", "wrong", "Results differ, and times say nothing.\n\n"),
    ):
        if those := [m for m in found if m.note.startswith(begins)]:
            names = [f"{m.row.title}, {m.row.shape}, {m.way}{m.note.removeprefix(begins)}" for m in those]
            text += f"\n## {title}\n\n{about}" + "".join(f"- {name}\n" for name in names)
    ratios = [m.ratio.median for m in timed if m.ratio is not None]
    means: list[list[str]] = []
    for size in SIZES:
        for way in ("forward", "gradient"):
            some = [r for r, m in zip(ratios, timed, strict=True) if (m.row.size, m.way) == (size, way)]
            if some:
                means.append([f"{size}, {way}", str(len(some)), number(mean(some) or 0), number(min(some))])
    text += "\n## Ratios\n\n" + markdown(["size, call", "number", "geometric mean", "least"], means)
    least = min(ratios, default=None)
    wrong = sum(m.note.startswith("wrong") for m in found)
    targets = [
        at_least("geometric mean", MEAN, mean(ratios)),
        at_least("slowest", SLOWEST, least),
        Target("wrong results", "0", wrong, not wrong),
    ]
    text += "\n## Targets\n\n" + markdown(["target", "limit", "reached", "met"], [t.row() for t in targets])
    if least is not None:
        worst, below = timed[ratios.index(least)], sum(r < SLOWEST for r in ratios)
        text += f"\nOf {len(ratios)} calls {below} are below {SLOWEST:g}; the slowest is {worst.row.title}, "
        text += f"{worst.row.shape}, {worst.way}: {number(least)}.\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, no result file")
    parser.add_argument("--only", metavar="NAME", help="some operators, with commas between")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one call in one round")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of each (default: cores)")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 7)
    seconds = args.seconds or (0.005 if args.quick else 0.05)
    output = args.output or (None if args.quick or args.only else RESULTS)
    operators = list(dict.fromkeys(row.op for row in ROWS))
    only = args.only.split(",") if args.only else operators
    if unknown := set(only) - set(operators):
        raise SystemExit(f"There is no row for {sorted(unknown)[0]!r}; there are {', '.join(operators)}.")
    if missing := TORCH.missing():
        raise SystemExit(f"{missing}.")
    with ExitStack() as stack:
        workers = [stack.enter_context(c.start(args.threads)) for c in (OURS, TORCH)]
        mine, theirs = (w.ask(do="versions") for w in workers)
        text = heading("Single operators on the CPU", theirs)
        text += f"- mxlite's kernels: oneDNN {mine['oneDNN']}; LLVM {mine['LLVM']}\n"
        text += f"- threads: {args.threads}; rounds: {rounds} of {seconds:g} s for each call, alternated\n\n"
        found = []
        for i, row in enumerate(ROWS):
            if row.op in only:
                print(f"{row.title}, {row.shape}", file=sys.stderr, flush=True)
                found += measure(i, workers, rounds, seconds)
    write_page(text + report(found), output, "kernels")


if __name__ == "__main__":
    main()
