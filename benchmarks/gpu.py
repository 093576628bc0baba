"""Milliseconds, bytes and host time of a training step on a GPU, compared with PyTorch and JAX.

        python benchmarks/gpu.py                       everything; writes results/<date>-gpu.md
        python benchmarks/gpu.py --quick               without compiled columns and budgets
        python benchmarks/gpu.py --emulated            on the tests' emulated GPU: a test of this file

Each column has its own process and the GPU to itself; all start from the same weights, and a column whose
first losses differ is reported, not timed. The exit code is 1 if one of mxlite's columns failed. mxlite need
not be installed: that of the checkout containing this file is used.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from importable import bring, reach, ROOT


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", help="some of the networks, in this order; also deep and batch")
    parser.add_argument("--columns", help="some of the columns, in this order; as mxlite-bf16,eager-*")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), help="of deep and batch")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of steps in one round")
    parser.add_argument("--limit", type=float, default=600, help="seconds until a column must be ready")
    parser.add_argument("--time", type=float, help="seconds for everything; what is left then is left out")
    parser.add_argument("--tuning", type=int, help="seconds that a process of ours may measure kernels")
    parser.add_argument("--wheels", type=Path, help="folder of wheels to use beside what is installed")
    parser.add_argument("--quick", action="store_true", help="some networks and columns")
    parser.add_argument("--emulated", action="store_true", help="small, on the tests' emulated GPU")
    parser.add_argument("--output", type=Path, help="folder of the result file (default: benchmarks/results)")
    args = parser.parse_args()
    start = time.monotonic()
    reach(ROOT)
    with tempfile.TemporaryDirectory(prefix="gpu-benchmark-", ignore_cleanup_errors=True) as own:
        if args.wheels is not None:
            bring(args.wheels, Path(own) / "site")
        return measured(parser, args, start)


def measured(parser: argparse.ArgumentParser, args: argparse.Namespace, start: float) -> int:
    """Run the benchmark; returns the exit code. Imports work from here on. start: clock at the start."""
    from gpu_columns import choice, contest, measure, page
    from harness import RESULTS
    from peers.contest import Terms

    clock = contest.Clock(float("inf") if args.time is None else start + args.time)
    try:
        wanted = choice.wanted(args)
    except choice.Unknown as error:
        parser.error(str(error))
    if args.tuning is not None:
        os.environ[page.TUNING] = str(args.tuning)  # for the columns' processes
    short = args.quick or args.emulated
    terms = Terms(
        rounds=args.rounds or (2 if short else 5),
        seconds=args.seconds or (0.05 if args.emulated else 0.3 if short else 1.0),
        threads=8 if not args.emulated else 1,
        limit=args.limit,
        profiled=0,
    )
    output = args.output or (None if short or args.nets or args.columns else RESULTS)
    return int(measure.run(wanted, terms, clock, output))


if __name__ == "__main__":
    sys.exit(main())
