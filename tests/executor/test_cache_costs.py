"""What the cache holds between calls, and what that makes of the times of a step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from mxlite.executor.measure.cache_probe import cache_bytes, LOOKS, others_bytes_per_s, PART, WAITS
from mxlite.memplan import HostLink, MemoryPlan, plan_memory
from mxlite.memplan.cost import locality
from mxlite.memplan.plan import make_plan
from mxlite.memplan.problem import Problem, Task, Value
from mxlite.memplan.remat.schedule import OFFLOADED
from tests.executor.timed import chain, own_cache  # noqa: F401


@pytest.mark.parametrize("holds, found", ((1, 1), (8, 8), (64, 0)))
def test_the_size_of_the_cache_is_where_bytes_begin_to_cost_more(holds, found):
    assert cache_bytes((1, 2, 4, 8, 16, 64), lambda size: size * (1.0 if size <= holds else 3.0)) == found


def test_the_cache_of_this_machine_is_one_of_the_sizes_tried():
    assert cache_bytes((2**16, 2**20)) in (0, 2**16, 2**20)


def emptied_after(seconds, looks=LOOKS):
    """A pass takes 3 s where `seconds` have gone by since the one before, else 1 s; in but the first `looks`
    nobody else is there.
    """
    seen = []

    def seconds_after(wait):
        seen.append(wait)
        return 3.0 if wait == inf or (wait >= seconds and seen.count(wait) <= looks) else 1.0

    return seconds_after


@pytest.mark.parametrize("rate", (1e9, 4e9, 16e9))
def test_what_others_touch_is_the_rest_of_the_cache_in_the_time_that_a_part_of_it_stays(rate):
    cache = 32 * 2**20
    found = others_bytes_per_s(cache, seconds_after=emptied_after((cache - cache // PART) / rate))
    assert rate / 2**0.5 <= found <= rate * 2**0.5  # waits grow by a factor of 2


def test_others_who_come_and_go_count_in_part():
    often, seldom = (
        others_bytes_per_s(2**25, seconds_after=emptied_after(WAITS[2], looks)) for looks in (LOOKS, 3)
    )
    assert 0 < others_bytes_per_s(2**25, seconds_after=emptied_after(WAITS[-1])) < seldom < often


def test_where_nobody_else_or_no_cache_is_to_be_seen_others_touch_nothing():
    assert others_bytes_per_s(2**25, seconds_after=emptied_after(1.0)) == 0
    assert others_bytes_per_s(2**25, seconds_after=lambda wait: 1.0) == 0 == others_bytes_per_s(0)


def test_others_on_this_machine_touch_some_number_of_bytes(monkeypatch):
    monkeypatch.setattr("mxlite.executor.measure.cache_probe.WAITS", (1e-5, 2e-5))
    monkeypatch.setattr("mxlite.executor.measure.cache_probe.LOOKS", 2)
    assert 0 <= others_bytes_per_s(2**20) < inf


def two_maps(cache, warm=1.0, cold=4.0, others=0.0):
    """Two tasks that pass a map of 1 MiB on, two that read them backwards; 4 s each, `warm` s if cached."""
    size = 2**20
    values = tuple(Value(f"v{i}", size) for i in range(4)) + (Value("data", 64, fixed=True),)
    tasks = (
        Task("a", "op", (4,), (0,), seconds=4.0, warm=warm, cold=cold),
        Task("b", "op", (0,), (1,), seconds=4.0, warm=warm, cold=cold),
        Task("b'", "op", (1, 0), (2,), seconds=4.0, warm=warm, cold=cold),
        Task("a'", "op", (2, 0), (3,), seconds=4.0, warm=warm, cold=cold),
    )
    return Problem(tasks, values, 2, {"inputs": 64}, cache_bytes=cache, others_bytes_per_s=others)


def test_a_step_in_the_cache_takes_its_warm_time():
    assert plan_memory(two_maps(2**40)).predicted_seconds == pytest.approx(4.0, rel=1e-4)
    assert plan_memory(two_maps(2**40)).predicted_extra_time == 0.0


def test_a_step_that_no_cache_holds_takes_its_cold_time():
    assert plan_memory(two_maps(1)).predicted_seconds == 16.0
    assert plan_memory(two_maps(0)).predicted_seconds == 16.0


def test_a_call_takes_longer_by_the_share_of_its_bytes_that_the_cache_has_lost():
    crowded, large = (locality.walk(plan_memory(two_maps(size * 2**20))) for size in (1, 16))
    assert all(0 < b.lost < a.lost < 1 for a, b in zip(crowded, large))
    assert all(c.seconds == 1.0 + 3.0 * c.lost for c in (*crowded, *large))


def test_what_others_touch_pushes_out_what_a_step_touched_long_ago():
    alone, few, crowded = (
        plan_memory(two_maps(2**28, others=r * 2**20)).predicted_seconds for r in (0.0, 100.0, 10_000.0)
    )
    assert alone == pytest.approx(4.0, rel=0.05)
    assert alone < few < crowded
    assert crowded > 15.5  # only of what the call before has just touched some is left


def test_a_slow_call_pushes_out_more_than_a_quick_one():
    values = tuple(Value(n, 2**20) for n in "abc") + (Value("data", 64, fixed=True),)

    def last_call(seconds):
        tasks = (
            Task("first", "op", (3,), (0,), seconds=1e-3),
            Task("between", "op", (3,), (1,), seconds=seconds),
            Task("last", "op", (0, 1), (2,), seconds=2e-3, warm=1e-3, cold=2e-3),
        )
        problem = Problem(tasks, values, 3, {"inputs": 64}, cache_bytes=2**23, others_bytes_per_s=2**30)
        return locality.walk(make_plan(problem))[-1].seconds

    assert 1e-3 < last_call(1e-4) < last_call(6e-3) < last_call(1.0) < 2e-3


def test_problems_with_other_caches_have_other_digests():
    problems = (
        two_maps(0),
        two_maps(2**20),
        two_maps(2**21),
        two_maps(2**20, others=1.0),
        two_maps(2**20, others=2.0),
    )
    assert len({p.digest for p in problems}) == len(problems)


def test_calls_and_step_take_the_same():
    plan = plan_memory(two_maps(3 * 2**19, others=1e5))
    assert sum(c.seconds for c in locality.walk(plan)) == plan.predicted_seconds


def test_running_again_within_the_cache_costs_its_warm_time():
    problem = two_maps(2**40)
    again = make_plan(problem, [1, 0])
    assert again.recomputed == 1 and again.extra_time == pytest.approx(0.25)
    assert again.predicted_extra_time == pytest.approx(0.25, rel=1e-4)
    assert again.predicted_seconds == pytest.approx(5.0, rel=1e-4)


def test_a_step_touches_its_arrays_wherever_they_lie_and_its_workspace():
    values = (Value("x", 100), Value("y", 100), Value("weight", 30, True), Value("mean", 7, True))
    tasks = (
        Task("a", "op", (2,), (0,), workspace=50, seconds=1.0),
        Task("b", "op", (0, 2), (1,), in_place=((1, 0),), mutates=(3,), seconds=1.0),
    )
    plan = make_plan(Problem(tasks, values, 2, {"arguments": 37}))
    first, second = map(sorted, locality.touched(plan))
    assert [high - low for low, high in first[-1:]] == [30] and first[-1][0] >= plan.arena_bytes
    assert sorted(high - low for low, high in first) == [30, 50, 100]
    assert [high - low for low, high in second] == [100, 30, 7] and second[1] == first[-1]
    assert all(a[1] <= b[0] for row in (first, second) for a, b in pairwise(row))


def test_copies_to_host_memory_are_no_calls():
    plan = make_plan(replace(two_maps(2**40), host=HostLink()), [OFFLOADED, 0])
    assert plan.offloaded == 1
    assert plan.predicted_seconds == pytest.approx(4.0 + plan.schedule.waiting_seconds, rel=1e-4)


def test_a_call_of_which_one_time_is_known_takes_that():
    assert plan_memory(two_maps(2**40, warm=0.0, cold=0.0)).predicted_seconds == pytest.approx(16.0)


def test_measured_plans_know_all_times_and_keep_them_in_files():
    plan = chain().memory_plan(data=(64, 64), device="measured")
    assert all(0 < t.warm <= t.cold and t.warm <= t.seconds for t in plan.problem.tasks)
    assert MemoryPlan.from_json(plan.to_json()) == plan
