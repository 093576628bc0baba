"""Milliseconds of chains of operators with reductions on the CPU, beside PyTorch eager and torch.compile.

    python benchmarks/chains.py            about eight minutes; writes results/<date>-chains.md
    python benchmarks/chains.py --quick    one short round; prints only
    python benchmarks/chains.py --peers eager --only softmax    some columns, chains whose names have a word

Each framework has its own process; they take turns. All get equal inputs, and a chain whose results differ is
reported, not timed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import Any

from harness import heading, markdown, RESULTS, Spread, Worker
from harness.machine import usable_cores, write_page
from kernels import KEPT, note
from peers.chains import CHAINS, COMPILED, ROWS, WIDTH
from peers.column import Column
from peers.contest import SETTLE_S
from peers.tables import mean
from peers.targets import at_least, Target

OURS = Column("mxlite", "mxlite", "ours", "mxlite_chains.py")
PEERS = {
    "eager": Column("eager", "PyTorch eager", "torch", "torch_chains.py", env=KEPT),
    "compile": Column("compile", "torch.compile", "torch", "torch_chains.py", env={**KEPT, COMPILED: "1"}),
}
WANTED = {1: 1.5, 2: 1.3}
"""Least geometric mean of torch.compile's time divided by mxlite's, by the number of threads."""

ABOUT = f"""\
Milliseconds of a call from Python: median (least-most) of rounds; a round's figure is the lower quartile of
some blocks of calls. Ratios are the peer's time divided by mxlite's, round by round. Arrays are of
{ROWS} x {WIDTH} float32 numbers. "forward" is a call for inference, "step" a forward call and the gradients
of all inputs. "calls" are those of kernels in mxlite's program.
"""


@dataclass
class Measured:
    """A call of all frameworks. `wrong`: the peers whose results are others."""

    title: str
    way: str
    calls: str
    times: dict[str, Spread] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def ratio(self, peer: str) -> Spread | None:
        return self.times[peer] / self.times[OURS.name] if peer in self.times else None


def measure(place: int, workers: dict[str, Worker], rounds: int, seconds: float) -> list[Measured]:
    """The calls of `CHAINS[place]`, in rounds in which the workers take turns."""
    loaded = {name: w.ask(do="load", row=place) for name, w in workers.items()}
    mine = loaded[OURS.name]
    found = []
    for way in mine:
        m = Measured(CHAINS[place].title, way, mine[way]["kernel"])
        m.wrong = [n for n, theirs in loaded.items() if n != OURS.name and note(mine[way], theirs[way])]
        found.append(m)
        if m.wrong:
            continue
        times: dict[str, list[float]] = {n: [] for n in workers}
        for r in range(rounds):
            for n in list(workers) if r % 2 else reversed(list(workers)):
                sleep(SETTLE_S)
                times[n].append(workers[n].ask(do="time", way=way, seconds=seconds) / 1000)
        m.times = {n: Spread(tuple(t)) for n, t in times.items()}
    return found


def report(found: Sequence[Measured], peers: Sequence[str], threads: int) -> str:
    """The tables as Markdown."""
    head = ["chain", "what", "calls", "mxlite", *peers, *(f"{p} / mxlite" for p in peers)]
    timed = [m for m in found if not m.wrong]
    rows: list[list[Any]] = [
        [m.title, m.way, m.calls, m.times[OURS.name], *(m.times[p] for p in peers), *map(m.ratio, peers)]
        for m in timed
    ]
    text = ABOUT + "\n" + markdown(head, rows)
    targets = []
    for p in peers:
        for way in ("forward", "step"):
            ratios = [x.median for m in timed if m.way == way and (x := m.ratio(p)) is not None]
            limit = WANTED.get(threads, WANTED[2]) if p == "compile" else 1.0
            targets.append(at_least(f"{PEERS[p].title}, {way}, geometric mean", limit, mean(ratios)))
            targets.append(at_least(f"{PEERS[p].title}, {way}, slowest", 1.0, min(ratios, default=None)))
    apart = sum(m.way == "forward" and m.calls != "1 call" for m in found)
    targets.append(Target("chains of several calls, forward", "0", apart, not apart))
    wrong = sum(bool(m.wrong) for m in found)
    targets.append(Target("wrong results", "0", wrong, not wrong))
    text += "\n## Targets\n\n" + markdown(["target", "limit", "reached", "met"], [t.row() for t in targets])
    if wrong:
        text += "\nOther results: " + "; ".join(f"{m.title}, {m.way}" for m in found if m.wrong) + ".\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, no result file")
    parser.add_argument("--only", metavar="WORD", help="chains whose names have this word; no result file")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"some of {', '.join(PEERS)}, with commas")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one call in one round")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of each (default: cores)")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    peers = args.peers.split(",")
    if unknown := set(peers) - set(PEERS):
        raise SystemExit(f"There is no column {sorted(unknown)[0]!r}; there are {', '.join(PEERS)}.")
    if missing := PEERS["eager"].missing():
        raise SystemExit(f"{missing}.")
    rounds = args.rounds or (1 if args.quick else 7)
    seconds = args.seconds or (0.02 if args.quick else 0.2)
    output = args.output or (None if args.quick or args.only else RESULTS)
    with ExitStack() as stack:
        columns = {OURS.name: OURS, **{p: PEERS[p] for p in peers}}
        workers = {n: stack.enter_context(c.start(args.threads)) for n, c in columns.items()}
        text = heading("Chains with reductions on the CPU", workers[peers[0]].ask(do="versions"))
        text += f"- threads: {args.threads}; rounds: {rounds} of {seconds:g} s for each call, alternated\n\n"
        found = []
        for i, chain in enumerate(CHAINS):
            if (args.only or "") in chain.title:
                print(chain.title, file=sys.stderr, flush=True)
                found += measure(i, workers, rounds, seconds)
    write_page(text + report(found, peers, args.threads), output, "chains")


if __name__ == "__main__":
    main()
