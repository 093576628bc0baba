"""A cost model of gradient boosted trees that ranks schedules, by xgboost (the extra `tune`).

What it has learned of other shapes saves three in four trials of a random search; without, it saves two in
five of a convolution's, and hardly any of a product's (`benchmarks/tuning.py`). Tasks are groups: schedules
are compared within one, so that what was learned of one shape serves the next.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

LEAST = 4  # measured schedules before it predicts
ROUNDS = 60
GRADES = 31  # of speed within a group, the highest that the ranking objective takes
SETTINGS: Mapping[str, Any] = {
    "objective": "rank:pairwise",
    "max_depth": 4,
    "eta": 0.2,
    "min_child_weight": 1e-3,
    "seed": 0,
    "nthread": 1,
    "verbosity": 0,
    "lambdarank_pair_method": "mean",
    "lambdarank_num_pair_per_sample": 4,
}


def available() -> bool:
    """True if xgboost is installed."""
    return importlib.util.find_spec("xgboost") is not None


class TreeModel:
    """Learns from all tasks that it is given; equal samples give equal predictions."""

    def __init__(self, settings: Mapping[str, Any] = SETTINGS) -> None:
        self._settings = dict(settings)
        self._rows: dict[str, list[Sequence[float]]] = {}
        self._speeds: dict[str, list[float]] = {}
        self._made: Any = None
        self._is_new = False

    @property
    def is_ready(self) -> bool:
        return sum(map(len, self._rows.values())) >= LEAST

    def learn(self, rows: Sequence[Sequence[float]], seconds: Sequence[float], group: str) -> None:
        """Add measured schedules of a task; one that failed has infinite seconds, and is the slowest."""
        self._rows.setdefault(group, []).extend(rows)
        self._speeds.setdefault(group, []).extend(1 / s if isfinite(s) else 0.0 for s in seconds)
        self._is_new = True

    def scores(self, rows: Sequence[Sequence[float]]) -> list[float]:
        import xgboost

        if self._is_new or self._made is None:
            self._made, self._is_new = self._fitted(), False
        found = self._made.predict(xgboost.DMatrix(np.array(rows, np.float32)))
        return [float(x) for x in found]

    def _fitted(self) -> Any:
        import xgboost

        rows = [row for group in self._rows.values() for row in group]
        grades = [
            round(GRADES * speed / (max(speeds) or 1.0))
            for speeds in self._speeds.values()
            for speed in speeds
        ]
        data = xgboost.DMatrix(np.array(rows, np.float32), np.array(grades, np.float32))
        data.set_group([len(group) for group in self._rows.values()])
        return xgboost.train(self._settings, data, ROUNDS)
