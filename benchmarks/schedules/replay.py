"""Searches replayed on tables: how many trials until one schedule is within 3 % of the best one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from mxlite.backends.tune.model import SETTINGS, TreeModel
from mxlite.backends.tune.search import ModelSearch, RandomSearch
from mxlite.backends.tune.space import Schedule
from mxlite.backends.tune.tuner import BATCH

from .tables import Table

NEAR = 0.97
DIVERSITY = 0.1  # of the spread of predictions, for each value of a knob that a batch does not have yet
REGRESSION = {**SETTINGS, "objective": "reg:squarederror"}

Begin = Callable[[Table, Sequence[Table], int], tuple[RandomSearch, TreeModel | None]]
"""A search of a table, beside others of its family, and the model that is to learn from it."""


class DiverseSearch(ModelSearch):
    """Batches that are chosen greedily for their predictions and for values of knobs that they lack."""

    def chosen(self, ranked: Sequence[Schedule], scores: dict[Schedule, float], count: int) -> list[Schedule]:
        found: list[Schedule] = []
        seen: set[tuple[int, int]] = set()
        spread = max(scores.values()) - min(scores.values()) or 1.0
        left = list(ranked)
        while left and len(found) < count:
            best = max(
                left,
                key=lambda s: scores[s] + DIVERSITY * spread * len(set(enumerate(s.knobs)) - seen),
            )
            left.remove(best)
            found.append(best)
            seen |= set(enumerate(best.knobs))
        return found


def at_random(table: Table, others: Sequence[Table], seed: int) -> tuple[RandomSearch, None]:
    return RandomSearch(table.schedules[1:], seed), None


def by_model(
    settings: dict[str, object] = SETTINGS, transfer: bool = False, kind: type[ModelSearch] = ModelSearch
) -> Begin:
    """A search by a model, which has learned from other tables if `transfer`."""

    def begin(table: Table, others: Sequence[Table], seed: int) -> tuple[RandomSearch, TreeModel]:
        model = TreeModel(settings)
        for other in others if transfer else ():
            rows = [other.features[s] for s in other.schedules]
            model.learn(rows, [other.seconds[s] for s in other.schedules], other.name)
        return kind(table.schedules[1:], table.features, model, seed), model

    return begin


def trials(begin: Begin, table: Table, others: Sequence[Table], seed: int) -> int:
    """Measured schedules until one is near the best; the default one is known before."""
    search, model = begin(table, others, seed)
    goal, count = min(table.seconds[s] for s in table.schedules[1:]) / NEAR, 0
    batch = search.next(BATCH)
    while batch:
        for schedule in batch:
            count += 1
            if table.seconds[schedule] <= goal:
                return count
        if model is not None:
            rows = [table.features[s] for s in batch]
            model.learn(rows, [table.seconds[s] for s in batch], table.name)
        batch = search.next(BATCH)
    return count


def mean_trials(begin: Begin, some: Sequence[Table], found: Sequence[Table], seeds: int) -> list[float]:
    """For each of some tables of a family that was found, the mean over some seeds."""
    return [
        mean(trials(begin, table, [t for t in found if t is not table], seed) for seed in range(seeds))
        for table in some
    ]
