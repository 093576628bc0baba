"""Estimate of a run's duration, printed before it starts.

Computed from a network's approximate seconds per step of PyTorch eager, measured on two cores of a Xeon (Ice
Lake) at 2.8 GHz; other machines will differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from networks.suite import Net

from .column import Column
from .contest import FEW, PATIENCE_S, STEPS, Terms


@dataclass(frozen=True)
class Pace:
    """Pace of a column: seconds until the first step, and a step's time as a multiple of PyTorch eager's."""

    load_s: float
    step: float


PACES = {
    "mxlite": Pace(4, 0.5),
    "eager": Pace(4, 1.0),
    "channels_last": Pace(4, 0.9),
    "compile": Pace(60, 0.8),
    "mxnet": Pace(4, 1.7),
    "within": Pace(15, 0.6),
    "mxlite-bf16": Pace(5, 0.7),
    "autocast": Pace(4, 1.6),
    "within-bf16": Pace(15, 0.8),
    "mxlite-narrow": Pace(5, 0.7),
    "narrow": Pace(4, 1.6),
    "numpy": Pace(4, 25.0),
}
PROFILED = 4  # profiled calls, including the profiler's slowdown, in steps of a round
COPIES = 5  # slowdown of steps traced by the allocator


def seconds_for(net: Net, columns: Sequence[Column], terms: Terms) -> float:
    """Estimated seconds for one network."""
    total = 2.0
    for c in columns:
        if c.missing() or not c.fits(net):
            continue
        pace = PACES.get(c.name, Pace(5, 1.0))
        step = net.step_s * pace.step
        if c.alone:
            total += pace.load_s + 2 * step
            continue
        racers = 3 if c.share else 1  # two other columns run in its rounds
        rounds = min(terms.rounds, FEW) if step > PATIENCE_S else terms.rounds
        total += pace.load_s + (STEPS + 1) * step + racers * rounds * max(terms.seconds, step)
        if c.side == "torch":
            total += COPIES * step
        if c.side == "ours" and terms.profiled:
            total += max(PROFILED * step, terms.seconds)
    return total
