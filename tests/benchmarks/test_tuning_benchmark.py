"""The benchmark of searches: its tables are whole, and what it replays saves trials.

Its modules live in benchmarks/ and are run in another process, as a user runs them.
"""

from __future__ import annotations

import json

import pytest

from tests.benchmarks.test_benchmarks import run

TABLES = """
import json
from schedules.predictor import nearest
from schedules.tables import Table, tables

print(json.dumps({family: [
    [t.name, len(t.schedules), len(set(t.schedules)), len({len(f) for f in t.features.values()}),
     t.seconds[t.schedules[0]] / t.best, Table.of(t.row()) == t]
    for t in tables(family)
] for family in ("products", "convolutions")}))
"""

REPLAYS = """
import json
from schedules import replay
from schedules.predictor import nearest
from schedules.tables import tables

found = tables("products")
some, others = found[2], [t for t in found if t is not found[2]]
ways = {
    "random": replay.at_random, "cold": replay.by_model(), "transfer": replay.by_model(transfer=True),
    "diverse": replay.by_model(kind=replay.DiverseSearch),
}
trials = {n: replay.mean_trials(begin, [some], found, 2)[0] for n, begin in ways.items()}
choice = nearest(some, others)
print(json.dumps([trials, choice.first, choice.top]))
"""


def test_tables_are_whole_and_small(tmp_path):
    found = json.loads(run("-c", TABLES, folder=tmp_path))
    for family, least in (("products", 200), ("convolutions", 3)):
        assert len(found[family]) == 16
        for name, count, distinct, lengths, default, is_same in found[family]:
            assert least <= count == distinct and lengths == 1 and default >= 1 and is_same, name


def test_what_was_learned_of_other_shapes_saves_trials(tmp_path):
    pytest.importorskip("xgboost", reason="xgboost-cpu (extra 'tune') is the cost model")
    trials, first, top = json.loads(run("-c", REPLAYS, folder=tmp_path))
    assert trials["transfer"] <= 0.5 * min(trials["random"], trials["cold"], trials["diverse"])
    assert 0.9 < first <= top <= 1
