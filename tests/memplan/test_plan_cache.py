"""Frontiers on disk: found again by whoever plans the same problem, and never trusted."""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from mxlite import memplan
from mxlite.core.cached import Remembered
from mxlite.core.disk import kept
from mxlite.memplan import check, plan_memory, reorder
from mxlite.memplan.files import cache, findings
from mxlite.memplan.placement import arena
from mxlite.memplan.placement.liveness import LiveRange
from mxlite.memplan.remat import search
from tests.memplan.problems import chain


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where frontiers are kept; small ones too."""
    monkeypatch.setenv("MXLITE_PLAN_CACHE", "1")
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "LEAST_TASKS", 10)
    return tmp_path / "plans"


@pytest.fixture
def searches(monkeypatch):
    """The problems that were searched."""
    made = []
    real = search.frontier

    def counted(problem, strategy):
        made.append(problem)
        return real(problem, strategy)

    monkeypatch.setattr(search, "frontier", counted)
    monkeypatch.setattr(search, "_plans", Remembered(8))
    monkeypatch.setattr(search, "_frontiers", Remembered(4))
    return made


reordering = import_module("mxlite.memplan.order.reorder")
PROBLEM = chain(4)
FULL = plan_memory(PROBLEM)
BUDGET = FULL.problem.fixed_total + FULL.arena_bytes * 9 // 10


def ask(problem=PROBLEM, budget=BUDGET):
    """As another process would."""
    search._plans.clear()
    search._frontiers.clear()
    plan = plan_memory(problem, budget)
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


def edited(change):
    """A change of the rows (method, counts, bytes, seconds) of a text."""

    def edit(text):
        rows = json.loads(text)
        return json.dumps(change(rows)).encode()

    return edit


def column(n, change):
    return edited(lambda rows: [[*row[:n], change(row[n]), *row[n + 1 :]] for row in rows])


def test_the_same_question_is_answered_from_disk_and_every_budget_with_it(folder, searches, monkeypatch):
    first = ask()
    again = ask(replace(PROBLEM))
    assert again == first and again.recomputed
    assert again.predecessors == first.predecessors
    more = ask(budget=BUDGET + 200)
    assert len(searches) == 1
    monkeypatch.setenv("MXLITE_PLAN_CACHE", "0")
    assert ask(budget=BUDGET + 200) == more
    assert len(searches) == 2


def test_another_question_is_not(folder, searches):
    ask()
    ask(chain(5), FULL.peak_bytes)
    ask(chain(5), FULL.peak_bytes + 64)
    search.frontier_of(PROBLEM, "inplace")
    ask()
    assert len(searches) == len([*folder.iterdir()]) == 3


def test_a_planner_that_was_changed_makes_its_own(folder, searches, monkeypatch):
    ask()
    monkeypatch.setattr(findings, "planner", lambda: "another")
    ask()
    assert len(searches) == 2 == len([*folder.iterdir()])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: b"y" + data[1:],
        lambda data: data[:80] + bytes([data[80] ^ 1]) + data[81:],
    ],
)
def test_a_broken_file_is_planned_again_and_replaced(folder, searches, spoil):
    first = ask()
    path = only(folder)
    good = path.read_bytes()
    path.write_bytes(spoil(good))
    assert ask() == first
    assert len(searches) == 2
    assert only(folder).read_bytes() == good
    ask()
    assert len(searches) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"{}",
        lambda text: b"[" * 200_000,
        lambda text: b"\xff",
        lambda text: b"[]",
        lambda text: b"[0]",
        lambda text: b"[[]]",
        column(0, lambda method: 5),
        column(1, lambda counts: 5),
        column(1, lambda counts: "*"),
        column(1, lambda counts: "AAAA" + counts),
        column(1, lambda counts: "f" * len(counts)),
        column(1, lambda counts: "AAAA" + counts[4:]),
        column(2, lambda nbytes: nbytes + 64),
        column(2, lambda nbytes: 64),
        column(2, float),
        column(3, lambda seconds: seconds + 1e-9),
        column(3, int),
        column(3, lambda seconds: float("nan")),
        edited(lambda rows: rows[::-1]),
        edited(lambda rows: [*rows, rows[-1]]),
    ],
)
def test_a_frontier_that_is_not_one_is_searched_again(folder, searches, change):
    first = ask()
    path = only(folder)
    reseal(path, lambda text: text)
    ask()
    assert len(searches) == 1
    before = path.read_bytes()
    reseal(path, change)
    assert path.read_bytes() != before
    assert ask() == first
    assert len(searches) == 2


def test_what_cannot_be_unpacked_is_planned_again(folder, searches):
    ask()
    path = only(folder)
    path.write_bytes(kept.head(cache._MAGIC, path.name, b"junk") + b"junk")
    ask()
    assert len(searches) == 2


def test_a_frontier_of_another_problem_under_this_name_is_foreign(folder, searches):
    ask(chain(5), FULL.peak_bytes)
    other = only(folder).read_bytes()
    ask()
    for path in folder.iterdir():
        path.write_bytes(other)
    ask()
    assert len(searches) == 3


def test_a_file_that_is_too_long_when_unpacked_is_not_read(folder, searches, monkeypatch):
    ask()
    monkeypatch.setattr(cache, "MOST_TEXT_BYTES", 10)
    ask()
    assert len(searches) == 2


def test_a_frontier_that_is_too_long_is_not_kept_or_read(folder, searches, monkeypatch):
    ask()
    monkeypatch.setattr(cache, "MOST_FILE_BYTES", 100)
    ask()
    only(folder).unlink()
    ask()
    assert len(searches) == 3 and not [*folder.iterdir()]


def test_small_problems_are_not_kept_and_no_budget_needs_no_frontier(folder, searches, monkeypatch):
    ask(budget=None)
    assert not folder.exists()
    monkeypatch.setattr(cache, "LEAST_TASKS", len(PROBLEM.tasks) + 1)
    ask()
    assert not folder.exists() and len(searches) == 1


@pytest.mark.parametrize("name, value", [("MXLITE_PLAN_CACHE", "0"), ("MXLITE_CACHE_DIR", "off")])
def test_it_can_be_switched_off(folder, searches, monkeypatch, name, value):
    ask()
    monkeypatch.setenv(name, value)
    ask()
    assert len(searches) == 2


def test_a_directory_that_others_may_write_is_no_cache(folder, searches):
    ask()
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="other users may write there"):
        ask()
    folder.chmod(0o700)
    ask()
    assert len(searches) == 2


def test_the_frontiers_used_longest_ago_make_room(folder, searches, monkeypatch):
    problems = [chain(3, size=1000 + 64 * i) for i in range(7)]
    named = []
    for at, problem in enumerate(problems[:6]):
        search.frontier_of(problem)
        (path,) = set(folder.iterdir()) - set(named)
        named.append(path)
        os.utime(path, (1000 + at, 1000 + at))
    search._frontiers.clear()
    search.frontier_of(problems[0])  # read again: the newest
    assert len(searches) == 6
    monkeypatch.setattr(cache, "MOST_BYTES", sum(named[i].stat().st_size for i in (0, 5)) + longest(folder))
    search.frontier_of(problems[6])
    assert [p.exists() for p in named] == [True, False, False, False, False, True]
    assert len([*folder.iterdir()]) == 3


@pytest.fixture
def findings_folder(tmp_path, monkeypatch):
    """Where orders and offsets are kept; small ones too."""
    monkeypatch.setenv("MXLITE_PLAN_CACHE", "1")
    monkeypatch.setenv("MXLITE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(findings, "LEAST", 4)
    return tmp_path / "plans"


def orders(monkeypatch):
    """The problems whose order was searched for."""
    made = []
    real = reordering._reordered
    monkeypatch.setattr(reordering, "_reordered", lambda p, n: made.append(p) or real(p, n))
    return made


def test_an_order_is_found_once(findings_folder, monkeypatch):
    made = orders(monkeypatch)
    first = reorder(PROBLEM)
    assert reorder(PROBLEM) == first and len(made) == 1
    assert reorder(chain(5)) != first and len(made) == 2
    monkeypatch.setenv("MXLITE_PLAN_CACHE", "0")
    assert reorder(PROBLEM) == first and len(made) == 3


def resealed(path, numbers):
    """A file as its writer would have left it, with other numbers."""
    blob = np.array(numbers, np.int64).tobytes()
    path.write_bytes(kept.head(findings._MAGIC, path.name, blob) + blob)


@pytest.mark.parametrize("harm", ["twice", "backwards", "short", "text", "bit"])
def test_an_order_that_is_none_is_searched_again(findings_folder, monkeypatch, harm):
    first = reorder(PROBLEM)
    path, made = only(findings_folder), orders(monkeypatch)
    if harm == "text":
        path.write_bytes(b"no finding")
    elif harm == "bit":
        path.write_bytes(path.read_bytes()[:-1] + b"\1")
    else:
        resealed(path, {"twice": [0, *first[1:-1], 0], "backwards": first[::-1], "short": first[:-1]}[harm])
    assert reorder(PROBLEM) == first and len(made) == 1
    assert reorder(PROBLEM) == first and len(made) == 1  # it was written over


RANGES = [LiveRange((i,), i // 3, i // 3 + 2 + i % 4, 64 * (1 + (7 * i) % 11)) for i in range(40)]


def test_offsets_are_found_once_and_judged(findings_folder, monkeypatch):
    made = []
    real = arena._searched
    monkeypatch.setattr(arena, "_searched", lambda *given: made.append(given) or real(*given))
    first = arena.place(RANGES, 64)  # an arena that small does not exist: all is tried
    assert arena.place(RANGES, 64) == first and len(made) == 1
    path = only(findings_folder)
    for wrong in ([0] * len(RANGES), [o - 64 for o in first.offsets], [o + 1 for o in first.offsets]):
        resealed(path, wrong)
        assert arena.place(RANGES, 64) == first
    assert len(made) == 4


def test_what_another_planner_has_found_is_not_read(monkeypatch):
    """The key of what is kept has the source of every file that plans."""
    read = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or real(path))
    before = findings.planner.__wrapped__()
    assert set(read) == set(Path(memplan.__file__).parent.rglob("*.py"))
    monkeypatch.setattr(Path, "read_bytes", lambda path: real(path) + b"#" * (path.name == "beam.py"))
    assert findings.planner.__wrapped__() != before
