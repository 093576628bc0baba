"""Training steps of several ranks on this machine, beside PyTorch's DistributedDataParallel over gloo.

    python benchmarks/ranks.py             2 ranks, six networks, about five minutes; prints only
    python benchmarks/ranks.py --write     the same; writes results/<date>-ranks.md
    python benchmarks/ranks.py --quick     small sizes, one round: checks that it runs

Each rank has one batch, and the threads that are its share of the cores. The two take turns, round by round,
each in jobs of their own that start from equal weights.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import heading, RESULTS
from harness.machine import today, usable_cores
from harness.ranks import measured
from harness.table import markdown
from networks import general
from networks.network import Case

NETS = ("mobilenet_v2", "resnext50", "vit", "gpt", "dlrm", "autoencoder")
WORKER = Path(__file__).parent / "peers" / "ranks_worker.py"
SIDES = ("mxlite", "ddp")
LIMIT_S = 300


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(NETS), help="modules of networks/general, commas between")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a round")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--write", action="store_true", help="write the table into a file")
    parser.add_argument("--output", type=Path, default=RESULTS, help="its folder")
    args = parser.parse_args()
    rounds, steps = (1, 5) if args.quick else (args.rounds, args.steps)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.nets.split(","):
            case = Case(name, general.network(name), True, args.quick)
            spec = case.prepare(Path(folder)) | {"threads": max(1, usable_cores() // args.ranks)}
            rows.append(row(case, compared(spec, args.ranks, rounds, steps, Path(folder))))
            print(" ".join(rows[-1]), file=sys.stderr)
    head = (
        "network",
        "mxlite, ms",
        "DDP, ms",
        "DDP / mxlite",
        "MiB a rank",
        "DDP",
        "ratio",
        "losses differ by",
    )
    told = heading("Ranks on one machine", {"torch": version("torch"), "mpi4py": version("mpi4py")})
    threads = max(1, usable_cores() // args.ranks)
    told += (
        f"- ranks: {args.ranks}, each with {threads} thread(s); rounds: {rounds} of {steps} steps\n\n"
        f"Milliseconds are medians of all timed steps, of rank 0; the ratio is the median of the rounds'\n"
        f"ratios. Bytes are mxlite's plan, which is what it measures, and PyTorch's by its\n"
        f"allocator, with the buckets that gradients are views of.\n\n"
    )
    page = told + markdown(head, rows)
    print(page)
    if args.write:
        (args.output / f"{today()}-ranks.md").write_text(page, encoding="utf-8")
    return 0


def compared(
    spec: dict[str, Any], ranks: int, rounds: int, steps: int, folder: Path
) -> Mapping[str, list[dict[str, Any]]]:
    """What each side found in each round."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for turn in range(rounds):
        for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
            path = folder / f"{side}.json"
            path.write_text(json.dumps(spec | {"port": free_port()}))
            found[side].append(job(side, path, ranks, steps, spec["threads"]))
    return found


def job(side: str, spec: Path, ranks: int, steps: int, threads: int) -> dict[str, Any]:
    """The answer of rank 0 of one job."""
    program = [sys.executable, str(WORKER), side, str(spec), str(steps)]
    return measured(["-n", str(ranks), *program], threads, LIMIT_S)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def row(case: Case, found: Mapping[str, list[dict[str, Any]]]) -> tuple[str, ...]:
    ours, theirs = (found[side] for side in SIDES)
    each = [statistics.median(b["seconds"]) / statistics.median(a["seconds"]) for a, b in zip(ours, theirs)]
    ms = [1e3 * statistics.median(s for r in found[side] for s in r["seconds"]) for side in SIDES]
    nbytes = [found[side][0]["bytes"] for side in SIDES]
    differ = abs(ours[0]["loss"] - theirs[0]["loss"]) / max(1e-12, abs(theirs[0]["loss"]))
    return (
        case.title,
        f"{ms[0]:.3g}",
        f"{ms[1]:.3g}",
        f"{statistics.median(each):.2f}",
        f"{nbytes[0] / 2**20:.1f}",
        f"{nbytes[1] / 2**20:.1f}",
        f"{nbytes[0] / nbytes[1]:.2f}",
        f"{differ:.1e}",
    )


if __name__ == "__main__":
    sys.exit(main())
