"""What tuning costs and finds: searches and models of speed, replayed on measured tables of schedules.

    python benchmarks/tuning.py                        replays; writes results/<date>-tuning.md
    python benchmarks/tuning.py --quick                few seeds; prints only
    python benchmarks/tuning.py --measure products     measures tables anew, on an idle machine

The tables are kept in data/schedules. A replay measures nothing: its numbers are the same everywhere.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from statistics import mean

from harness import heading, markdown, RESULTS
from harness.machine import write_page
from peers.targets import Target
from schedules import replay
from schedules.predictor import by_network, Choice, nearest, TOP
from schedules.tables import build, drawn, keep, measured, Table, tables, tasks

FAMILIES = {"products": 280, "convolutions": 120}
"""Schedules of each task, about."""
LEAST = 60
"""Schedules of a table that is searched: in smaller ones all are soon measured."""

ABOUT = """\
The tables: calls on one thread, each timed by the CPU time of that thread, in the cache; the faster of two
medians counts. The kept ones were measured on 2026-11-28, on two cores that other programs used, too.
Products are (M, K) @ (K, N), all with the same generated schedules; convolutions are those of ResNet-18 with
two images, and their gradients, with schedules drawn evenly from all ways.

- trials: measured schedules until one is within 3 % of the table's best other than the default one, in
  batches of 4; means over seeds. "transfer": the model has learned the other tables of the family before.
- shape model: each table is predicted from the others. Parts of the best speed in the table: of the schedule
  that is predicted to be the fastest, and of the fastest of the first 16. "nearest shape": as in the table
  whose logarithms of M, N, K are nearest.
"""


def searches() -> dict[str, replay.Begin]:
    """Searches by name."""
    return {
        "random": replay.at_random,
        "rank": replay.by_model(),
        "regression": replay.by_model(replay.REGRESSION),
        "rank, diversity": replay.by_model(kind=replay.DiverseSearch),
        "rank, transfer": replay.by_model(transfer=True),
        "regression, transfer": replay.by_model(replay.REGRESSION, transfer=True),
        "rank, diversity, transfer": replay.by_model(transfer=True, kind=replay.DiverseSearch),
    }


def of_searches(family: str, seeds: int, step: int) -> tuple[str, list[Target]]:
    """Trials of each search on the tables of a family, as Markdown, and the targets."""
    every = [t for t in tables(family) if len(t.schedules) >= LEAST]
    found, trials = every[::step], {}
    for name, begin in searches().items():
        print(f"{family}: {name}", file=sys.stderr, flush=True)
        trials[name] = replay.mean_trials(begin, found, every, seeds)
    lines = [
        [
            t.name,
            len(t.schedules),
            f"{t.seconds[t.schedules[0]] / t.best:.2f}",
            *(f"{c[k]:.0f}" for c in trials.values()),
        ]
        for k, t in enumerate(found)
    ]
    sums = [mean(c) for c in trials.values()]
    lines.append(["mean", "", "", *(f"{s:.1f}" for s in sums)])
    lines.append(["of random", "", "", *(f"{s / sums[0]:.2f}" for s in sums)])
    text = f"\n## Trials, {family}\n\n" + markdown(["table", "schedules", "default / best", *trials], lines)
    cold, warm = (mean(trials[n]) / mean(trials["random"]) for n in ("rank", "rank, transfer"))
    worse = sum(b > a for a, b in zip(trials["rank"], trials["rank, transfer"]))
    return text, [
        Target(f"{family}: trials by the model, of random", "<= 0.5", f"{cold:.2f}", cold <= 0.5),
        Target(f"{family}: trials with transfer, of random", "<= 0.25", f"{warm:.2f}", warm <= 0.25),
        Target(f"{family}: tables where transfer is worse", "0", worse, not worse),
    ]


def of_shapes(step: int) -> tuple[str, list[Target]]:
    """The shape model beside the nearest shape, as Markdown, and the targets."""
    found = tables("products")
    some = found[::step]
    ways = {
        "nearest shape": nearest,
        "network, logarithms": by_network,
        "network, plain numbers": partial(by_network, logs=False),
    }
    choices: dict[str, list[Choice]] = {name: [] for name in ways}
    for table in some:
        print(f"shapes: {table.name}", file=sys.stderr, flush=True)
        for name, way in ways.items():
            choices[name].append(way(table, [t for t in found if t is not table]))
    head = ["table", *(f"{n}, {what}" for n in ways for what in ("first", f"top {TOP}"))]
    lines = [
        [t.name, *(f"{x:.3f}" for n in ways for x in (choices[n][k].first, choices[n][k].top))]
        for k, t in enumerate(some)
    ]
    means = {n: (mean(c.first for c in own), mean(c.top for c in own)) for n, own in choices.items()}
    lines.append(["mean", *(f"{x:.3f}" for n in ways for x in means[n])])
    text = "\n## A model of shapes, products\n\n" + markdown(head, lines) + "\n"
    for name, own in choices.items():
        if own[0].train_s:
            text += (
                f"- {name}: error {mean(c.error for c in own):.3f} (square of log2), trained in "
                f"{max(c.train_s for c in own):.0f} s at most, answers in "
                f"{1e3 * max(c.seconds for c in own):.1f} ms\n"
            )
    first, top = means["network, logarithms"]
    near = means["nearest shape"]
    return text, [
        Target("shape model: predicted choice of the best", ">= 0.90", f"{first:.3f}", first >= 0.9),
        Target(f"shape model: top {TOP} of the best", ">= 0.97", f"{top:.3f}", top >= 0.97),
        Target(
            "shape model beats the nearest shape, first", f"> {near[0]:.3f}", f"{first:.3f}", first > near[0]
        ),
        Target(
            f"shape model beats the nearest shape, top {TOP}", f"> {near[1]:.3f}", f"{top:.3f}", top > near[1]
        ),
    ]


def measure(family: str) -> list[Table]:
    """The tables of a family, measured here."""
    named = tasks(family)
    found = []
    for (name, task), schedules in zip(named, drawn([task for _, task in named], FAMILIES[family])):
        print(f"{name}: {len(schedules)} schedules", file=sys.stderr, flush=True)
        build(task, schedules)
        found.append(measured(name, family, task, schedules))
    return found


def page(seeds: int, step: int) -> str:
    """All replays as Markdown, of each table or of one in some."""
    text, targets = ABOUT, list[Target]()
    parts = [*(of_searches(f, seeds, step) for f in FAMILIES), of_shapes(step)]
    for told, own in parts:
        text += told
        targets += own
    return (
        text
        + "\n## Targets\n\n"
        + markdown(["target", "limit", "reached", "met"], [t.row() for t in targets])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few seeds and tables, no result file")
    parser.add_argument("--measure", choices=sorted(FAMILIES), help="measure these tables, and keep them")
    parser.add_argument("--seeds", type=int, default=8, help="of each search on each table (default 8)")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    if args.measure:
        keep(args.measure, measure(args.measure))
        return
    seeds = 1 if args.quick else args.seeds
    text = heading("Searches of schedules, replayed", {})
    output = args.output or (None if args.quick else RESULTS)
    write_page(text + f"- seeds: {seeds}\n\n" + page(seeds, 8 if args.quick else 1), output, "tuning")


if __name__ == "__main__":
    main()
