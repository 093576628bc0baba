"""Predicted against measured extra time of plans within a budget, with costs timed by `device="measured"`.

    python benchmarks/calibration.py            a few minutes; writes results/<date>-calibration.md
    python benchmarks/calibration.py --quick    smaller networks, fewer rounds; prints only
        MXLITE_NUM_THREADS=1 python benchmarks/calibration.py --cpu    where cores are shared
        python benchmarks/calibration.py --only unet --kernels         and times by kernel

Each network is bound once without a budget and once for each budget; then all its executors take turns, so
that other load on the machine affects all alike. A turn is two steps, of which the second is timed: the first
finds the caches filled by another executor. Extra time is the median over rounds of the ratio to the step
that keeps everything, in the same round.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

from harness import heading, RESULTS
from harness.machine import today
from planning.calibrated import study

import mxlite as mx

ABOUT = """\
Extra time is what recomputation adds, as a share of the step that keeps all: predicted by the plan from its
step on scratch arrays (`device="measured"`), and measured. Kernels are timed before the networks are bound,
then all plans are tried in turns. Points are the difference of predicted and measured per cents; the aim is
5. `sum` is what the kernels' mean times in steps say, by which plans are chosen, `modelled` what the default
costs (10 TFLOP/s, 600 GB/s) say of the same plan. With --kernels follow the milliseconds of a step of each
plan by kernel: as predicted from its time in steps and what it finds in the cache, and as `mx.profiler` finds
them by the clock, medians of steps of their own.

"""


@dataclass(frozen=True)
class Case:
    """A network: `name` in the zoo, batch, and the options it is built with."""

    name: str
    batch: int
    options: dict[str, Any]

    def symbol(self) -> tuple[Any, dict[str, Any]]:
        return mx.models.get(self.name, **self.options), mx.models.shapes_of(
            self.name, self.batch, **self.options
        )


CASES = (
    Case("resnet20_cifar", 32, {}),
    Case("resnet56_cifar", 32, {}),
    Case("lstm_unrolled", 16, {}),
    Case("unet", 1, {}),
    Case("mlp", 256, {"hidden": (512,) * 16, "features": 512}),
)
QUICK = (Case("resnet20_cifar", 8, {}), Case("mlp", 64, {"hidden": (128,) * 8, "features": 128}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--cpu", action="store_true", help="processor time, where others use the cores too")
    parser.add_argument("--only", help="one network, by name")
    parser.add_argument("--kernels", action="store_true", help="predicted and measured time by kernel, too")
    args = parser.parse_args()
    clock = process_time if args.cpu else perf_counter
    rounds = args.rounds or (5 if args.quick else 15)
    text, worst = heading("Predicted and measured extra time", None) + "\n" + ABOUT, 0.0
    print(text)
    for case in QUICK if args.quick else CASES:
        if args.only not in (None, case.name):
            continue
        found = study(*case.symbol(), rounds, clock, args.kernels)
        part = f"## {case.name}, batch {case.batch}\n\n{found.done[:1].upper()}{found.done[1:]}; it took "
        part += (
            f"{1e3 * found.measured_s:.2f} ms, {100 * (found.measured_s / found.predicted_s - 1):+.0f} %.\n\n"
        )
        part += found.table() + "\n"
        for name, kernels in zip(
            ("keep all", *(mx.format_bytes(r.budget) for r in found.rows)), found.kernels
        ):
            part += f"### {name}\n\n{kernels}\n"
        worst = max(worst, found.worst)
        print(part, flush=True)
        text += part + "\n"
    last = f"Largest difference: {worst:.1f} points.\n"
    print(last)
    if not args.quick and args.only is None:
        (RESULTS / f"{today()}-calibration.md").write_text(text + last)


if __name__ == "__main__":
    main()
