"""Milliseconds of training steps written with Gluon, in its three ways to run, beside PyTorch eager.

    python benchmarks/gluon_steps.py            about two minutes; writes results/<date>-gluon-steps.md
    python benchmarks/gluon_steps.py --quick    one short round; prints only

Each column has its own process; they take turns. All train from equal parameters on equal batches, and a
network whose first losses differ is reported, not timed.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from time import sleep

from harness import heading, markdown, RESULTS, Spread, Worker
from harness.machine import usable_cores, write_page
from kernels import KEPT, note
from peers.column import Column
from peers.contest import SETTLE_S
from peers.gluon_nets import CALLS, COLUMN, NETS, PROGRAM, STEP
from peers.tables import mean

COLUMNS = {
    STEP: Column(STEP, "one program", "ours", "mxlite_gluon.py", env={COLUMN: STEP}),
    PROGRAM: Column(PROGRAM, "hybridized", "ours", "mxlite_gluon.py", env={COLUMN: PROGRAM}),
    CALLS: Column(CALLS, "call by call", "ours", "mxlite_gluon.py", env={COLUMN: CALLS}),
    "eager": Column("eager", "PyTorch eager", "torch", "torch_gluon.py", env=KEPT),
}
PEERS = (PROGRAM, CALLS, "eager")

ABOUT = """\
Milliseconds of a step, from forward to the update by SGD with momentum: median (least-most) of rounds; a
round's figure is the lower quartile of some blocks of steps. "one program": network and loss are hybridized,
so the trainer's step is part of the program; "hybridized": the network alone. Ratios are a column's time
divided by that of "one program", round by round. "gradients": KiB that the program keeps from backward to
the update.
"""


def measure(place: int, workers: dict[str, Worker], rounds: int, seconds: float) -> list[object]:
    """The row of `NETS[place]`; with the columns whose first losses are others, it is not timed."""
    loaded = {name: w.ask(do="load", row=place)["step"] for name, w in workers.items()}
    wrong = [COLUMNS[n].title for n in PEERS if n in loaded and note(loaded[STEP], loaded[n])]
    title = NETS[place].title
    if wrong:
        return [title, f"other losses: {', '.join(wrong)}"]
    times: dict[str, list[float]] = {n: [] for n in workers}
    for r in range(rounds):
        for n in list(workers) if r % 2 else reversed(list(workers)):
            sleep(SETTLE_S)
            times[n].append(workers[n].ask(do="time", way="step", seconds=seconds) / 1000)
    spreads = {n: Spread(tuple(t)) for n, t in times.items()}
    kept = [loaded[n]["kernel"] for n in (STEP, PROGRAM)]
    ratios = [spreads[n] / spreads[STEP] for n in workers if n != STEP]
    return [title, *spreads.values(), *ratios, " and ".join(kept)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, no result file")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one network in one column and round")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of each (default: cores)")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    columns = {n: c for n, c in COLUMNS.items() if not c.missing()}
    rounds = args.rounds or (1 if args.quick else 9)
    seconds = args.seconds or (0.02 if args.quick else 0.3)
    with ExitStack() as stack:
        workers = {n: stack.enter_context(c.start(args.threads)) for n, c in columns.items()}
        text = heading("Training steps of Gluon on the CPU", workers[list(columns)[-1]].ask(do="versions"))
        text += f"- threads: {args.threads}; rounds: {rounds} of {seconds:g} s, alternated\n\n" + ABOUT
        rows = []
        for i, net in enumerate(NETS):
            print(net.title, file=sys.stderr, flush=True)
            rows.append(measure(i, workers, rounds, seconds))
    others = [c.title for n, c in columns.items() if n != STEP]
    head = ["network", COLUMNS[STEP].title, *others, *(f"{t} / one program" for t in others), "gradients"]
    text += "\n" + markdown(head, [[*row, *[""] * (len(head) - len(row))] for row in rows])
    timed = [row for row in rows if len(row) == len(head)]
    for k, other in enumerate(others):
        ratios = [row[1 + len(columns) + k].median for row in timed]
        text += f"\n{other} / one program, geometric mean: {mean(ratios):.2f}"
    write_page(text + "\n", args.output or (None if args.quick else RESULTS), "gluon-steps")


if __name__ == "__main__":
    main()
