"""Searches replayed on a table that the tuner has measured: all schedules of the gradient of a layer norm."""

import json
from math import inf, log2
from pathlib import Path
from statistics import mean

import pytest

from mxlite.backends.tune.search import ModelSearch, RandomSearch
from mxlite.backends.tune.space import Schedule
from mxlite.backends.tune.tuner import BATCH

TABLE = json.loads((Path(__file__).parent / "layer_norm_gradient.json").read_text())["knobs and us"]
SECONDS = {Schedule("nests", 1, tuple(knobs)): us for *knobs, us in TABLE}
LEGAL = sorted(SECONDS)
FEATURES = {s: [log2(1 + x) for x in s.knobs] for s in LEGAL}
SEEDS = 24


class Oracle:
    """A model that knows."""

    is_ready = True

    def learn(self, rows, seconds, group):
        pass

    def scores(self, rows):
        known = {tuple(FEATURES[s]): -us for s, us in SECONDS.items()}
        return [known[tuple(row)] for row in rows]


def trials(search, model=None):
    """Measured schedules until one is within 3 % of the best; the model, if there is one, learns of them."""
    goal, count = min(SECONDS.values()) / 0.97, 0
    while batch := search.next(BATCH):
        for schedule in batch:
            count += 1
            if SECONDS[schedule] <= goal:
                return count
        if model is not None:
            model.learn([FEATURES[s] for s in batch], [SECONDS[s] for s in batch], "g")
    return inf


def order(search):
    found = []
    while batch := search.next(BATCH):
        found += batch
    return found


@pytest.mark.parametrize("kind", [RandomSearch, lambda *a: ModelSearch(LEGAL, FEATURES, Oracle(), *a[1:])])
def test_each_schedule_comes_once_and_in_the_same_order_for_a_seed(kind):
    found = order(kind(LEGAL, 3))
    assert sorted(found) == sorted(LEGAL)
    assert found == order(kind(LEGAL, 3)) != order(kind(LEGAL, 4))


def test_annealing_finds_what_a_model_knows():
    own = [trials(ModelSearch(LEGAL, FEATURES, Oracle(), seed)) for seed in range(SEEDS)]
    assert mean(own) <= 3


def test_the_cost_model_needs_fewer_trials_than_chance():
    pytest.importorskip("xgboost", reason="xgboost-cpu (extra 'tune') is the cost model")
    from mxlite.backends.tune.model import TreeModel

    models = [TreeModel() for _ in range(SEEDS)]
    by_model = mean(trials(ModelSearch(LEGAL, FEATURES, m, seed), m) for seed, m in enumerate(models))
    at_random = mean(trials(RandomSearch(LEGAL, seed)) for seed in range(SEEDS))
    assert by_model <= 0.75 * at_random, (by_model, at_random)


def test_failures_are_the_slowest_and_equal_samples_give_equal_models():
    pytest.importorskip("xgboost", reason="xgboost-cpu (extra 'tune') is the cost model")
    from mxlite.backends.tune.model import TreeModel

    rows, models = [FEATURES[s] for s in LEGAL], [TreeModel(), TreeModel()]
    for model in models:
        model.learn(rows[:40], [inf if k % 2 else 1.0 for k in range(40)], "g")
    first, again = (m.scores(rows[:40]) for m in models)
    assert first == again
    assert mean(first[::2]) > mean(first[1::2])
