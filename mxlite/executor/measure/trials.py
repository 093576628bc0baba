"""Trials of plans: their programs on scratch arrays, in turns.

Other processes take the cores or the cache for a second or an hour. Plans that take turns are affected alike:
so the seconds of plans tried together may be compared, while those of plans tried at different times may
differ by what others did. Of many rounds the median counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import fsum
from statistics import median
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar

from ...core import OutOfMemoryError
from ...memplan import MemoryPlan
from ...memplan.cost.locality import walk
from ..plan.lower import Lowered
from .timings import Seconds, Timings
from .trial import Trial

ROUNDS = 24  # in which each plan takes its turn
ROUNDS_S = 20.0  # for them, and
LEAST_ROUNDS = 3  # if they take longer
MOST_OVER = 1.2  # multiple of the kernels' times, and
CALL_S = 20e-6  # per call for the engine, above which a trial was disturbed

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Takes(Protocol[T_co]):
    """Plans of a step, ready to be run."""

    def turn(self, p: int) -> T_co:
        """Run plan `p`; returns the measurement."""

    def left_out(self, p: int) -> list[int]:
        """Steps of plan `p` that are not run."""


class Tried(NamedTuple, Generic[T]):
    """Measurements of a plan by round, and the steps of its schedule that cannot be run."""

    turns: list[T]
    left_out: list[int]


def tried(lowered: Lowered, plan: MemoryPlan) -> MemoryPlan:
    """`plan` with its step's time on scratch arrays; unchanged if there is no room for these.

    It is tried once: the time is stored like those of calls. Calls that cannot be run count with modelled
    times.
    """
    if not _can_be_tried(lowered, plan):
        return plan
    known = Timings.of(lowered.backend).get(_key(plan))
    if known is None:
        return tried_in_turns([(lowered, plan)])[0]
    return replace(plan, rehearsed_seconds=known.usual)


def tried_in_turns(pairs: Sequence[tuple[Lowered, MemoryPlan]]) -> list[MemoryPlan]:
    """Plans of steps, each with its time when all take turns, whether that was known or not.

    If all take longer than their isolated kernels suggest, others disturbed them: their measured ratios are
    kept, but their sum is that of the kernels' times. Equal plans have one
    turn. As many bytes are taken as the largest plan of each step has; plans are unchanged if there is
    no room for these.
    """
    plans = [plan for _, plan in pairs]
    of_step: dict[int, list[int]] = {}  # plans of one step share its arrays
    same: dict[str, list[int]] = {}
    for i, (lowered, plan) in enumerate(pairs):
        if _can_be_tried(lowered, plan):
            same.setdefault(_key(plan), []).append(i)
    for i, *_ in same.values():
        of_step.setdefault(id(pairs[i][0]), []).append(i)
    can = list(chain.from_iterable(of_step.values()))
    steps = [(pairs[own[0]][0], [plans[i] for i in own]) for own in of_step.values()]
    rounds = in_turns(Trial, steps, ROUNDS)
    if not can or not rounds[0].turns:
        return plans
    modelled = [[call.seconds for call in walk(plans[i])] for i in can]
    missing = [sum(of[s] for s in rows.left_out) for rows, of in zip(rounds, modelled)]
    took = _seconds([[s + more for s in rows.turns] for rows, more in zip(rounds, missing)])
    total, calls = fsum(chain.from_iterable(modelled)), sum(map(len, modelled))
    if sum(took) > MOST_OVER * total + CALL_S * calls:  # others took cores all the time, from all plans alike
        took = [total * (s / sum(took)) for s in took]
    timings = Timings.of(pairs[can[0]][0].backend)
    seconds = dict(zip(can, took))
    known = {key: seconds[own[0]] for key, own in same.items()}
    timings.update({key: Seconds(s, s, s) for key, s in known.items()}, timings.cache or (0, 0.0))
    for key, own in same.items():
        for i in own:
            plans[i] = replace(plans[i], rehearsed_seconds=known[key])
    return plans


def in_turns(
    make: Callable[[Lowered, Sequence[MemoryPlan]], Takes[T]],
    steps: Sequence[tuple[Lowered, Sequence[MemoryPlan]]],
    rounds: int,
) -> list[Tried[T]]:
    """Run the plans of each step in turns, `rounds` times, on the objects that `make` creates; returns the
    result of each turn: fewer if they take long, and none if there is no room.
    """
    found: list[Tried[T]] = [Tried([], []) for _, plans in steps for _ in plans]
    turns: list[Callable[[], T]] = []
    for lowered, plans in steps:
        try:
            made = make(lowered, plans)
        except OutOfMemoryError:
            return found
        for p in range(len(plans)):
            found[len(turns)].left_out.extend(made.left_out(p))
            turns.append(partial(made.turn, p))
    end = perf_counter() + ROUNDS_S
    while found and len(found[-1].turns) < (rounds if perf_counter() < end else LEAST_ROUNDS):
        for of, turn in zip(found, turns):
            of.turns.append(turn())
    return found


def _can_be_tried(lowered: Lowered, plan: MemoryPlan) -> bool:
    return not lowered.backend.is_remote and bool(plan.schedule.task) and not plan.host_bytes


def _key(plan: MemoryPlan) -> str:
    """The digest of a plan as it is run."""
    text = repr((plan.problem.digest, plan.schedule.task, plan.offsets))
    return hashlib.sha256(text.encode()).hexdigest()


def _seconds(steps: Sequence[Sequence[float]]) -> list[float]:
    """Seconds of plans that took turns, from the step of each in each round.

    For the first it is the median; for the others the median of their ratios to the first in the same round.
    Separate medians may be of rounds in which others left more of the machine to one plan than to another.
    """
    first = median(steps[0])
    return [first * median(s / f for s, f in zip(of, steps[0], strict=True)) for of in steps]
