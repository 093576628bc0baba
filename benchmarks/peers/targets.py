"""Targets for training steps on the CPU, and what a run has reached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from harness import Spread
from harness.table import number

from .column import SHARE
from .contest import Entries
from .memory_tables import fits, lightness, process, speed_within
from .tables import mean, Results, speed

RATES = {"fp32": 1.5, "bf16": 1.2}
LEAST = {"fp32": 1.1, "bf16": 1.0}
INFERENCE, MEMORY, MXNET, BUDGET = 1.2, 0.6, 2.0, 1.3


@dataclass(frozen=True)
class Target:
    """A row of the table of targets. `value` is None if it could not be measured."""

    what: str
    limit: str
    value: float | None
    met: bool
    spread: str = ""

    def row(self) -> tuple[str, str, str, str]:
        if self.value is None:
            return self.what, self.limit, "not measured", "-"
        value = number(self.value) if isinstance(self.value, float) else str(self.value)
        return self.what, self.limit, value + self.spread, "yes" if self.met else "NO"


def targets(results: Results, budget: Entries | None, deep: Entries | None) -> list[Target]:
    training = [entries for net, entries in results if net.train]
    found = []
    for precision, limit in RATES.items():
        speeds = [s.median for e in training if (s := speed(e, "torch", precision))]
        found.append(at_least(f"{precision} training, geometric mean", limit, mean(speeds)))
        found.append(at_least(f"{precision} training, slowest", LEAST[precision], min(speeds, default=None)))
    inference = next((e for net, e in results if not net.train), None)
    found.append(of_spread("inference B1, fp32", INFERENCE, inference and speed(inference, "torch", "fp32")))
    for precision in RATES:
        for what, measure in (
            ("peak memory", lightness),
            ("growth of the process", partial(process, what="growth")),
            ("all of the process", partial(process, what="resident")),
        ):
            shares = [x for e in training if (x := measure(e, precision)) is not None]
            value = mean(shares)
            found.append(
                Target(
                    f"{what}, {precision}, geometric mean",
                    f"<= {MEMORY:g}",
                    value,
                    value is not None and value <= MEMORY,
                    f" ({number(min(shares))}-{number(max(shares))})" if shares else "",
                )
            )
        found += within_share(training, precision)
    speeds = [s.median for e in training if (s := speed(e, "mxnet", "fp32"))]
    found.append(at_least("against MXNet 1.9.1, geometric mean", MXNET, mean(speeds)))
    third = of_spread("ResNet-50 in 1/3 of eager's peak", BUDGET, budget and speed(budget, "torch", "fp32"))
    if budget is not None and "no plan" in budget["mxlite"].column.title:
        third = replace(third, met=False, spread=third.spread + ", in more bytes")
    found.append(third)
    found.append(of_spread("1001 layers, budgeted", BUDGET, deep and speed(deep, "torch", "fp32")))
    return found


def within_share(training: list[Entries], precision: str) -> list[Target]:
    """Targets within that fraction of PyTorch's peak: number of networks that fit, and their speeds."""
    said = [x for e in training if (x := fits(e, precision)) is not None]
    count = sum(said) if said else None
    speeds = [s.median for e in training if fits(e, precision) and (s := speed_within(e, precision))]
    what = f"{precision} within {SHARE:g} of PyTorch's peak"
    return [
        Target(f"{what}: networks that fit", f"{len(said)}", count, all(said)),
        at_least(f"{what}, geometric mean", RATES[precision], mean(speeds)),
        at_least(f"{what}, slowest", LEAST[precision], min(speeds, default=None)),
    ]


def at_least(what: str, limit: float, value: float | None) -> Target:
    return Target(what, f">= {limit:g}", value, value is not None and value >= limit)


def of_spread(what: str, limit: float, ratio: Spread | None) -> Target:
    if ratio is None:
        return at_least(what, limit, None)
    text = f" ({number(min(ratio.values))}-{number(max(ratio.values))})"
    return Target(what, f">= {limit:g}", ratio.median, ratio.median >= limit, text)
