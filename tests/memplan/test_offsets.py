"""Offsets within a capacity: found or proved impossible, compared with brute force."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from mxlite.core import SearchLimitError
from mxlite.memplan import find_cuts, LiveRange, make_plan, partial, place
from mxlite.memplan.compiled import compiled, interpreted as run_as_python, Ints
from mxlite.memplan.placement import arena, exact, fullest, gaps, packing, stacking
from tests.memplan.problems import residual

HARD = Path(__file__).parents[2] / "benchmarks" / "data" / "minimalloc"
CAPACITY = 1_048_576


def judge(ranges, offsets, capacity):
    """Shares nothing with the search: every pair is looked at."""
    assert len(offsets) == len(ranges)
    for r, at in zip(ranges, offsets):
        assert 0 <= at <= capacity - r.nbytes and at % 64 == 0
    for (a, p), (b, q) in combinations(zip(ranges, offsets), 2):
        if a.start < b.stop and b.start < a.stop:
            assert p + a.nbytes <= q or q + b.nbytes <= p


def brute_force(ranges, capacity):
    """Whether any offsets, in steps of 64 bytes, do."""

    def fits(placed):
        i = len(placed)
        if i == len(ranges):
            return True
        r = ranges[i]
        for at in range(0, capacity - r.nbytes + 1, 64):
            for other, low in zip(ranges, placed):
                meet = other.start < r.stop and r.start < other.stop
                if meet and low < at + r.nbytes and at < low + other.nbytes:
                    break
            else:
                if fits([*placed, at]):
                    return True
        return False

    return fits([])


def random_ranges(rng, most, steps, units):
    ranges = []
    for _ in range(int(rng.integers(1, most + 1))):
        start = int(rng.integers(0, steps))
        stop = start + int(rng.integers(1, 1 + steps // 2))
        ranges.append(LiveRange((), start, stop, 64 * int(rng.integers(1, units + 1))))
    return ranges


def without_a_gap(rng, steps, units, pieces):
    """Rectangles that fill `steps` by `units` completely, cut at random, in random order."""
    whole = [(0, steps, 0, units)]
    while len(whole) < pieces:
        at = max(range(len(whole)), key=lambda i: (rng.random(), i))
        a, b, low, high = whole.pop(at)
        if b - a > 1 and (rng.random() < 0.5 or high - low == 1):
            cut = int(rng.integers(a + 1, b))
            whole += [(a, cut, low, high), (cut, b, low, high)]
        elif high - low > 1:
            cut = int(rng.integers(low + 1, high))
            whole += [(a, b, low, cut), (a, b, cut, high)]
        else:
            whole.append((a, b, low, high))
    order = rng.permutation(len(whole))
    return [LiveRange((), whole[i][0], whole[i][1], 64 * (whole[i][3] - whole[i][2])) for i in order]


def hard(name):
    with (HARD / f"{name}.{CAPACITY}.csv").open() as file:
        return [LiveRange((), int(r["lower"]), int(r["upper"]), int(r["size"])) for r in csv.DictReader(file)]


def bound_of(ranges):
    return arena.most_live(*zip(*((r.start, r.stop, r.nbytes) for r in ranges)))


@pytest.fixture
def interpreted(monkeypatch):
    """Without machine code, also where llvmlite is installed."""
    monkeypatch.setattr(exact, "machine_code", lambda: None)
    monkeypatch.setattr(gaps, "machine_code", lambda: run_as_python(stacking.stack))


# -- the exact search ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_answer_is_that_of_brute_force(seed, interpreted):
    rng = np.random.default_rng(seed)
    for _ in range(40):
        ranges = random_ranges(rng, most=6, steps=7, units=3)
        bound = bound_of(ranges)
        for capacity in (bound - 64, bound, bound + 64):
            offsets = exact.solve(ranges, capacity)
            if offsets is None:
                assert not brute_force(ranges, capacity)
            else:
                judge(ranges, offsets, capacity)


# (start, stop, size) of problems that need more than the most that is live at a step; found by chance.
NEED_A_GAP = {
    9: "151 015 373 782 451 464 024 671 674 134 231 784 783 242 241 562 342 671",
    8: "675 231 015 464 362 145 572 123 671 011 351 011 011 231 231 451",
    "8 too": "575 142 451 673 041 262 353 015 232 031 123 461 451 011 121",
}


@pytest.mark.parametrize("units", NEED_A_GAP)
def test_a_problem_that_needs_more_than_its_bound_is_proved_so(units, interpreted):
    ranges = [LiveRange((), int(a), int(b), 64 * int(c)) for a, b, c in NEED_A_GAP[units].split()]
    bound = 64 * int(str(units)[0])
    assert bound_of(ranges) == bound
    assert not brute_force(sorted(ranges, key=lambda r: r.start), bound)
    assert exact.solve(ranges, bound) is None
    judge(ranges, exact.solve(ranges, bound + 64), bound + 64)


@pytest.mark.parametrize("seed", range(12))
def test_pieces_of_a_full_rectangle_are_put_together_again(seed, interpreted):
    """No inference may refuse what has a solution; the many small ones have hardly a second one."""
    rng = np.random.default_rng(seed)
    for _ in range(25):
        ranges = without_a_gap(rng, steps=7, units=9, pieces=10 + seed)
        judge(ranges, exact.solve(ranges, 64 * 9), 64 * 9)
    ranges = without_a_gap(rng, steps=20, units=30, pieces=16 + 2 * seed)
    judge(ranges, exact.solve(ranges, 64 * 30), 64 * 30)


@pytest.mark.parametrize("name", ["B", "F", "G"])
def test_problems_of_minimalloc_are_solved_at_their_bound(name, interpreted):
    ranges = hard(name)
    judge(ranges, exact.solve(ranges, CAPACITY), CAPACITY)


def test_all_problems_of_minimalloc_but_one_are_solved():
    """The other one, I, takes half a minute: benchmarks/offsets.py."""
    pytest.importorskip("llvmlite")
    for name in "ABCDEFGHJK":
        ranges = hard(name)
        judge(ranges, exact.solve(ranges, CAPACITY), CAPACITY)


def test_below_the_bound_nothing_is_searched():
    assert exact.solve(hard("I"), CAPACITY - 1, limit=0) is None


def test_a_limit_is_an_error_and_not_an_answer():
    with pytest.raises(SearchLimitError, match=r"374 buffers within 1048576 bytes.*`limit`"):
        exact.solve(hard("I"), CAPACITY, limit=2000)


def test_nothing_to_place():
    assert exact.solve([], 0) == ()
    assert exact.solve([LiveRange((), 0, 3, 0)], 0) == (0,)
    assert exact.solve([LiveRange((), 0, 3, 0)], -1) is None
    assert exact.solve([LiveRange((), 0, 3, 1)], 63) is None
    assert exact.solve([LiveRange((), 0, 3, 1)], 64) == (0,)


def test_a_trail_that_is_too_short_grows(monkeypatch):
    ranges = hard("F")
    wanted = exact.solve(ranges, CAPACITY)
    monkeypatch.setattr(exact, "TRAIL", 0)
    assert exact.solve(ranges, CAPACITY) == wanted


# -- machine code --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["B", "G"])
def test_machine_code_and_python_take_the_same_way(name, monkeypatch):
    pytest.importorskip("llvmlite")
    ranges = hard(name)
    fast = exact.solve(ranges, CAPACITY)
    monkeypatch.setattr(exact, "machine_code", lambda: None)
    assert exact.solve(ranges, CAPACITY) == fast


def triangle(n: int) -> int:
    total = 0
    while n > 0:
        total += n
        n -= 1
    return total


def count_until(values: Ints, n: int, stop: int) -> int:
    """How many are even smaller than 3 * 2 or not positive, before the first `stop`."""
    i = 0
    found = 0
    while True:
        if i == n or values[i] == stop:
            break
        i += 1
        if not (values[i - 1] > 0 and values[i - 1] >= 3 * 2):
            found += 1
        elif values[i - 1] != 9:
            continue
        else:
            values[i - 1] = -triangle(4)
    return found


def test_compiled_functions_compute_what_python_does():
    pytest.importorskip("llvmlite")
    machine = compiled((triangle, count_until))
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = rng.integers(-5, 12, size=12)
        fast, slow = values.copy(), [int(v) for v in values]
        assert machine(fast, 12, 11) == count_until(slow, 12, 11)
        assert list(fast) == slow


def test_the_search_uses_only_what_can_be_compiled():
    pytest.importorskip("llvmlite")
    assert compiled(packing.PARTS) is not None


# -- the default path ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["C", "F", "K"])
def test_place_reaches_the_bound_of_hard_problems(name, request):
    """The same offsets with and without machine code."""
    ranges = hard(name)
    fast = place(ranges)
    request.getfixturevalue("interpreted")
    placed = place(ranges)
    judge(ranges, placed.offsets, placed.nbytes)
    assert placed.nbytes == bound_of(ranges)
    assert placed == fast


@pytest.mark.parametrize("name", ["B", "G", "H"])
def test_place_reaches_the_bound_of_harder_problems(name):
    pytest.importorskip("llvmlite")
    ranges = hard(name)
    assert place(ranges).nbytes == bound_of(ranges)


def branched_sizes(seed):
    """Residual blocks of six sizes, with a workspace of its own size at each task, often larger than there
    is room left.
    """
    rng = np.random.default_rng(seed)
    problem = residual(6, 2, 64_000, update=True)
    share = rng.uniform(0.3, 1.5, 6).tolist()
    values = []
    for v in problem.values:
        block = [int(c) for c in v.name if c.isdigit()][:1]
        values.append(replace(v, nbytes=int(v.nbytes * (share[block[0]] if block else 1))))
    tasks = [replace(t, workspace=int(rng.integers(0, 150_000))) for t in problem.tasks]
    return replace(problem, values=tuple(values), tasks=tuple(tasks))


@pytest.mark.parametrize("seed", [60, 107, 109, 111, 288])
def test_no_byte_of_a_training_schedule_is_lost_to_a_gap(seed):
    problem = branched_sizes(seed)
    for stride in (0, 1, 2, 3):
        plan = make_plan(problem, partial(find_cuts(problem), stride, 1.0) if stride else None)
        assert plan.placed_bytes == plan.max_live_bytes


def test_the_fullest_ranges_lie_within_the_bound_and_each_part_has_more_of_them():
    parts = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        ranges = random_ranges(rng, most=150, steps=60, units=30)
        ranges += [LiveRange((), 0, 60, 64), LiveRange((), 0, 60, 0)]
        columns = arena._columns(ranges)
        size = columns[2]
        full, bound = arena._fullest(*columns), bound_of(ranges)
        search = fullest.PartSearch(*columns, bound, fullest.PART_WORK)
        before = set()
        for part in fullest.fullest_parts(*columns, full):
            chosen = set(part.tolist())
            assert len(chosen) == len(part) and before < chosen
            rest = [i for i in range(len(ranges)) if size[i] and i not in chosen]
            assert all(full[i] < full[part].min() for i in rest)
            before = chosen
            stacked = search.stacked(part)
            if stacked is not None:
                assert sorted(stacked) == sorted(part)
                placed = arena._first_gap([ranges[i] for i in stacked], range(len(part)))
                assert placed.nbytes <= bound
                parts += 1
        assert before == set(np.flatnonzero(size).tolist())
    assert parts > 60


@pytest.mark.parametrize("units", NEED_A_GAP)
def test_the_proof_that_the_bound_is_out_of_reach_ends_the_search_of_parts(units):
    ranges = [LiveRange((), int(a), int(b), 64 * int(c)) for a, b, c in NEED_A_GAP[units].split()]
    columns = arena._columns(ranges)
    search = fullest.PartSearch(*columns, bound_of(ranges), fullest.PART_WORK)
    assert search.stacked(np.arange(len(ranges))) is None and search.is_over
    assert place(ranges).nbytes == bound_of(ranges) + 64


# What is left of a step of ResNet-20 within its least bytes, once every buffer is gone without which the
# fullest ones by themselves have offsets behind which all others fit: start-stop:size.
JOINED = """
    0-20:4 0-19:4 0-19:4 1-18:1024 2-17:4 2-17:4 2-18:4 2-18:4 3-16:4 3-16:4 4-33:1024 5-6:861 7-10:2304
    7-8:14017 8-13:1024 8-9:11777 11-14:2304 11-12:14017 12-15:1024 21-36:1024 21-22:11777 23-61:4096
    24-53:2048 24-25:853 25-63:2 26-56:2048 27-28:4353 28-53:2 28-53:2 29-47:2048 30-44:2048 31-34:128
    32-79:2048 34-37:1152 35-38:2048 35-36:1984 38-40:2 38-41:2 38-39:853 41-43:2 41-43:2 41-42:853
    42-45:576 42-43:7041 43-50:2048 43-44:4353 45-47:2 46-48:2 46-47:853 48-51:576 48-49:7041 49-52:2048
    54-64:2048 54-55:4353 57-81:4096 58-80:1 58-80:1 58-79:1 58-79:1 59-70:2048 59-60:416 60-67:2048
    60-61:160 61-69:2048 61-62:4353 62-65:576 63-66:2048 63-64:4353 68-78:2048 71-82:4096 72-74:4096
    72-73:1729 73-76:4096 73-74:1729 74-75:849 75-76:849 76-77:1729
"""


@pytest.fixture
def joined():
    rows = (row.replace("-", ":").split(":") for row in JOINED.split())
    return [LiveRange((), int(start), int(stop), 64 * int(size)) for start, stop, size in rows]


def test_what_does_not_fit_behind_the_fullest_is_searched_with_them(joined, monkeypatch, request):
    """The same offsets with and without machine code."""
    placed = place(joined)
    judge(joined, placed.offsets, placed.nbytes)
    assert placed.nbytes == bound_of(joined)
    with monkeypatch.context() as patch:
        patch.setattr(arena, "GROWN", 1)
        assert place(joined).nbytes > bound_of(joined)
    grown = joined, bound_of(joined), arena.greedy_by_size(joined)
    assert arena._fullest_exactly(*grown) == placed
    request.getfixturevalue("interpreted")
    assert arena._fullest_exactly(*grown) == placed


def test_the_search_of_parts_ends_with_its_work(joined, monkeypatch):
    columns = arena._columns(joined)
    search = fullest.PartSearch(*columns, bound_of(joined), fullest.PART_WORK)
    part = next(fullest.fullest_parts(*columns, arena._fullest(*columns)))
    asked, left = 0, [search.left]
    while search.stacked(part) is not None:
        left.append(search.left)
        asked += 1
        search.left = min(search.left, 20_000)
    assert search.is_over and 1 < asked < 20
    assert all(a > b for a, b in pairwise(left))
    monkeypatch.setattr(arena, "PART_WORK", 0)
    assert place(joined).nbytes > bound_of(joined)


def test_all_offsets_are_searched_where_orders_would_take_too_long(joined, monkeypatch):
    """The quadratic orders are for few ranges; the search of all offsets has a limit of its own."""
    monkeypatch.setattr(arena, "MANY", 0)
    monkeypatch.setattr(arena, "_fullest_exactly", lambda ranges, bound, best: best)
    monkeypatch.setattr(arena, "lowest_offset_first", None)
    placed = place(joined)
    judge(joined, placed.offsets, placed.nbytes)
    assert placed.nbytes < min(arena.greedy_by_fullness(joined).nbytes, arena.greedy_by_size(joined).nbytes)


def test_sections_are_the_steps_at_which_the_most_live_together():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        ranges = random_ranges(rng, most=30, steps=12, units=1)
        start, stop, _ = arena._columns(ranges)
        first, last, through = fullest._cut(start, stop)
        live = [frozenset(i for i, r in enumerate(ranges) if r.start <= t < r.stop) for t in range(30)]
        maximal = {s for s in live if s and not any(s < other for other in live)}
        sections = [
            frozenset(np.flatnonzero((first <= s) & (last >= s)).tolist()) for s in range(last.max() + 1)
        ]
        assert maximal <= set(sections) <= set(live)
        assert through.tolist() == [all(i in s for s in sections) for i in range(len(ranges))]


def test_place_is_deterministic_and_knows_the_bound_itself():
    for seed in range(30):
        ranges = random_ranges(np.random.default_rng(seed), most=40, steps=20, units=9)
        bound = bound_of(ranges)
        first = place(ranges, bound)
        judge(ranges, first.offsets, first.nbytes)
        assert first == place(ranges, bound) == place(ranges)


def lowest_by_trying(ranges, order):
    """First fit, every multiple of 64 in turn."""
    placed, offsets = [], [0] * len(ranges)
    for i in order:
        r, at = ranges[i], 0
        meets = [(low, low + o.nbytes) for o, low in placed if o.start < r.stop and r.start < o.stop]
        while any(low < at + r.nbytes and at < high for low, high in meets):
            at += 64
        placed.append((r, at))
        offsets[i] = at
    return tuple(offsets)


@pytest.mark.parametrize("way", ["machine code", "Python"])
def test_the_lowest_gap_is_found_whatever_lies_around_it(way, monkeypatch):
    if way == "Python":
        monkeypatch.setattr(gaps, "machine_code", lambda: run_as_python(stacking.stack))
    monkeypatch.setattr(gaps, "POOL", 1)  # a pool that has to grow
    for seed in range(60):
        rng = np.random.default_rng(seed)
        ranges = random_ranges(rng, most=50, steps=int(rng.integers(2, 40)), units=6)
        ranges += [LiveRange((), r.start, r.stop, 0) for r in ranges[::9]]
        ranges += [LiveRange((), min(r.start for r in ranges), 40, 64 * n) for n in (1, 2)]
        order = rng.permutation(len(ranges)).tolist()
        placed = arena._first_gap(ranges, order)
        assert placed.offsets == lowest_by_trying(ranges, order)
        assert placed.nbytes == max(o + r.nbytes for o, r in zip(placed.offsets, ranges))


def test_a_long_training_schedule_reaches_its_bound_at_the_first_try(monkeypatch):
    """Large outputs and many small gradients, more ranges than the slow heuristics are given."""
    problem = residual(110, 3, 64_000, update=True)
    rng = np.random.default_rng(0)
    share = rng.integers(1, 999, len(problem.values)).tolist()
    values = []
    for i, v in enumerate(problem.values):
        stage = 2 ** (4 * i // len(problem.values))
        values.append(replace(v, nbytes=v.nbytes // stage // (1 if v.nbytes == 64_000 else share[i])))
    problem = replace(problem, values=tuple(values))
    monkeypatch.setattr(arena, "greedy_by_size", None)
    for stride in (1, 9):
        plan = make_plan(problem, partial(find_cuts(problem), stride, 1.0))
        assert len(plan.liveness.ranges) > arena.MANY / 2
        assert plan.placed_bytes == plan.max_live_bytes


def test_place_takes_many_ranges_at_once():
    rng = np.random.default_rng(1)
    ranges = [
        LiveRange((), int(a), int(a + w), int(s))
        for a, w, s in zip(
            rng.integers(0, 4000, 6000), rng.integers(1, 30, 6000), 64 * rng.integers(1, 500, 6000)
        )
    ]
    placed = place(ranges)
    assert placed.nbytes == max(o + r.nbytes for o, r in zip(placed.offsets, ranges))


def test_offsets_out_of_a_file_are_apart_or_found_again():
    """Against every pair; shifted by chance, so that some overlap."""
    told = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        ranges = random_ranges(rng, most=12, steps=9, units=4)
        offsets = np.array(place(ranges).offsets, np.int64)
        offsets[rng.integers(len(offsets))] += 64 * rng.integers(-2, 3)
        columns = arena._columns(ranges)
        start, stop, nbytes = columns
        end = offsets + nbytes
        apart = bool((offsets >= 0).all()) and not any(
            start[i] < stop[j] and start[j] < stop[i] and offsets[i] < end[j] and offsets[j] < end[i]
            for i in range(len(ranges))
            for j in range(i)
        )
        assert arena._are_apart(*columns, offsets) == apart
        told.append(apart)
    assert 20 < sum(told) < 180
