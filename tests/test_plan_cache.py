"""Plans on disk: found again by whoever asks the same, and never trusted."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from problems import chain

from mxlite.core import kept
from mxlite.memplan import cache, check, plan_memory, search


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where plans are kept; small ones too."""
    monkeypatch.setenv("MXLITE_PLAN_CACHE", "1")
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "LEAST_TASKS", 10)
    return tmp_path / "plans"


@pytest.fixture
def searches(monkeypatch):
    """How often a plan was made, by budget; nothing is remembered in memory."""
    made = []
    real = search._search

    def counted(problem, budget, strategy):
        made.append(budget)
        return real(problem, budget, strategy)

    monkeypatch.setattr(search, "_search", counted)
    monkeypatch.setattr(search, "_plans", {})
    return made


PROBLEM = chain(12)
FULL = plan_memory(PROBLEM)
BUDGET = FULL.problem.fixed_total + FULL.arena_bytes * 3 // 4


def ask(problem=PROBLEM, budget=BUDGET, **options):
    """As another process would."""
    search._plans.clear()
    plan = plan_memory(problem, budget, **options)
    check(plan, plan.predecessors)
    return plan


def only(folder) -> Path:
    (path,) = folder.iterdir()
    return path


def longest(folder) -> int:
    return max(p.stat().st_size for p in folder.iterdir())


def reseal(path, change):
    """The file with another text in it, as its writer would have written it."""
    size = kept.head_bytes(cache._MAGIC)
    text = zlib.decompress(path.read_bytes()[size:])
    blob = zlib.compress(change(text))
    path.write_bytes(kept.head(cache._MAGIC, path.name, blob) + blob)


def all_at_0(text):
    data = json.loads(text)
    for buffer in data["buffers"]:
        buffer[0] = 0
    return json.dumps(data).encode()


def test_the_same_question_is_answered_from_disk(folder, searches):
    first = ask()
    again = ask(replace(PROBLEM))
    assert searches == [BUDGET]
    assert again == first and again.recomputed
    assert again.predecessors == first.predecessors


def test_another_question_is_not(folder, searches):
    ask()
    ask(budget=BUDGET + 64)
    ask(chain(13))
    ask(strategy="inplace", budget=9 * FULL.peak_bytes)
    ask(strategy="none", budget=9 * FULL.peak_bytes)
    assert len(searches) == len([*folder.iterdir()]) == 5


def test_a_planner_that_was_changed_makes_its_own(folder, searches, monkeypatch):
    ask()
    monkeypatch.setattr(cache, "_planner", lambda: "another")
    ask()
    assert searches == [BUDGET] * 2 and len([*folder.iterdir()]) == 2


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"y" + data[1:],
        lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    ],
)
def test_a_broken_file_is_planned_again_and_replaced(folder, searches, spoil):
    first = ask()
    path = only(folder)
    good = path.read_bytes()
    path.write_bytes(spoil(good))
    assert ask() == first
    assert searches == [BUDGET] * 2
    assert only(folder).read_bytes() == good
    ask()
    assert searches == [BUDGET] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"{}",
        lambda text: b"[" * 200_000,
        lambda text: b"\xff",
        lambda text: text.replace(b'"copy": [0', b'"copy": [1'),
        lambda text: text.replace(b'"copy": [0', b'"copy": [1e999'),
        lambda text: text.replace(b'"task": [0', b'"task": ["a"'),
        lambda text: text.replace(b'"task": [0', b'"task": [999999'),
        lambda text: all_at_0(text),
        lambda text: text.replace(b'"budget_bytes": ', b'"budget_bytes": 1'),
        lambda text: text.replace(b'"placed_bytes": ', b'"placed_bytes": 9'),
    ],
)
def test_a_plan_that_does_not_pass_is_planned_again(folder, searches, change):
    first = ask()
    path = only(folder)
    reseal(path, lambda text: text)
    ask()
    assert searches == [BUDGET]
    before = path.read_bytes()
    reseal(path, change)
    assert path.read_bytes() != before
    assert ask() == first
    assert searches == [BUDGET] * 2


def test_what_cannot_be_unpacked_is_planned_again(folder, searches):
    ask()
    path = only(folder)
    path.write_bytes(kept.head(cache._MAGIC, path.name, b"junk") + b"junk")
    ask()
    assert searches == [BUDGET] * 2


def test_a_plan_of_another_question_under_this_name_is_foreign(folder, searches):
    ask(budget=BUDGET + 64)
    other = only(folder).read_bytes()
    ask()
    for path in folder.iterdir():
        path.write_bytes(other)
    ask()
    assert searches == [BUDGET + 64, BUDGET, BUDGET]


def test_a_file_that_is_too_long_when_unpacked_is_not_read(folder, searches, monkeypatch):
    ask()
    monkeypatch.setattr(cache, "MOST_TEXT_BYTES", 1000)
    ask()
    assert len(searches) == 2


def test_a_plan_that_is_too_long_is_not_kept_or_read(folder, searches, monkeypatch):
    ask()
    monkeypatch.setattr(cache, "MOST_FILE_BYTES", 100)
    ask()
    only(folder).unlink()
    ask()
    assert len(searches) == 3 and not [*folder.iterdir()]


def test_small_problems_and_no_budget_are_not_kept(folder, searches, monkeypatch):
    ask(budget=None)
    monkeypatch.setattr(cache, "LEAST_TASKS", len(PROBLEM.tasks) + 1)
    ask()
    assert not folder.exists()


@pytest.mark.parametrize("name, value", [("MXLITE_PLAN_CACHE", "0"), ("MXLITE_CACHE_DIR", "off")])
def test_it_can_be_switched_off(folder, searches, monkeypatch, name, value):
    ask()
    monkeypatch.setenv(name, value)
    ask()
    assert searches == [BUDGET] * 2


def test_a_directory_that_others_may_write_is_no_cache(folder, searches):
    ask()
    folder.chmod(0o777)
    ask()
    folder.chmod(0o700)
    ask()
    assert searches == [BUDGET] * 2


def test_the_plans_used_longest_ago_make_room(folder, searches, monkeypatch):
    budgets = [BUDGET + 64 * i for i in range(6)]
    named = {}
    for at, budget in enumerate(budgets):
        ask(budget=budget)
        (path,) = set(folder.iterdir()) - set(named.values())
        named[budget] = path
        os.utime(path, (1000 + at, 1000 + at))
    ask(budget=budgets[0])  # read again: the newest
    monkeypatch.setattr(cache, "MOST_BYTES", int(3.5 * longest(folder)))
    ask(budget=BUDGET + 64 * 6)
    left = {b for b, p in named.items() if p.exists()}
    assert left == {budgets[0], budgets[5]} or left == {budgets[0], budgets[4], budgets[5]}
    assert len([*folder.iterdir()]) == 1 + len(left)
    assert len(searches) == 7
