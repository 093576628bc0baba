"""Reuse distances, and what of them a cache holds, against counting byte by byte."""

from __future__ import annotations

import random
from itertools import accumulate, pairwise
from math import inf

import pytest

from mxlite.memplan.reuse import Reuse, Touched

MEMORY = 60  # bytes
OTHERS = (7, 0, 30, 4)  # bytes that others touch while a step runs, over and over


def random_steps(seed):
    """Spans of each step that do not meet."""
    rng = random.Random(seed)
    for _ in range(12):
        bounds = sorted(rng.sample(range(MEMORY + 1), 2 * rng.randint(1, 3)))
        spans = list(zip(bounds[::2], bounds[1::2]))
        rng.shuffle(spans)
        yield spans


def counted(steps, others):
    """What `touch` shall say of each step, from a table of bytes; of equal distances all bytes together.

    `others` touch so many bytes while a step runs, which nobody touches again.
    """
    last = {}
    for now, spans in enumerate(steps):
        own = [b for low, high in spans for b in range(low, high)]
        found = {}
        for b in own:
            if (step := last.get(b)) is None:
                key = inf, inf
            else:
                with_it = sum(s >= step for s in last.values()) + sum(others[step:now])
                behind = sum(s > step for s in last.values()) + sum(others[step + 1 : now])
                key = with_it, behind + sum(last.get(x, -1) <= step for x in own)
            found[key] = found.get(key, 0) + 1
        yield found
        last |= dict.fromkeys(own, now)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("alone", (True, False))
def test_distances_are_those_counted_byte_by_byte(seed, alone):
    steps = list(random_steps(seed))
    others = [0 if alone else OTHERS[s % len(OTHERS)] for s in range(len(steps))]
    reuse = Reuse(len(steps))
    for spans, theirs, expected in zip(steps, others, counted(steps, others), strict=True):
        found = {}
        for x in reuse.touch(spans):
            found[x.first, x.last] = found.get((x.first, x.last), 0) + x.nbytes
        assert found == expected
        reuse.others(theirs)


def lru_misses(steps, cache):
    """Bytes that a cache of `cache` bytes has to load in each step; it drops what was touched longest ago.

    A step touches the first byte of each span, then all second ones, each span at the pace that it is done
    with the step.
    """
    held = {}
    for spans in steps:
        order = sorted(((b - low + 0.5) / (high - low), b) for low, high in spans for b in range(low, high))
        missed = 0
        for _, b in order:
            missed += not held.pop(b, False)
            held[b] = True
            if len(held) > cache:
                del held[next(iter(held))]
        yield missed


def whole_buffers(seed):
    """Steps that touch some of ten buffers."""
    rng = random.Random(seed)
    bounds = [0, *accumulate(rng.choice((4, 8, 12, 24)) for _ in range(10))]
    return [rng.sample([*pairwise(bounds)], rng.randint(1, 4)) for _ in range(60)]


@pytest.mark.parametrize("cache", [4, 16, 31, 48, 80])
def test_bytes_beyond_the_cache_are_those_that_it_drops(cache):
    missed = modelled = touched = 0
    for steps in map(whole_buffers, range(8)):
        reuse = Reuse(len(steps))
        modelled += sum(x.beyond(cache) for spans in steps for x in reuse.touch(spans))
        missed += sum(lru_misses(steps, cache))
        touched += sum(high - low for spans in steps for low, high in spans)
    assert modelled == pytest.approx(missed, abs=0.02 * touched)


def test_what_fits_is_never_beyond_and_what_does_not_fit_in_a_loop_always_is():
    for cache, share in ((60, 0.0), (61, 0.0), (40, 1.0)):
        reuse = Reuse(20)
        loop = [[(0, 20)], [(20, 50)], [(50, 60)]]
        for spans in loop:
            assert reuse.touch(spans) == [Touched(spans[0][1] - spans[0][0], inf, inf)]
        for spans in loop * 2:
            (found,) = reuse.touch(spans)
            assert found.first == found.last == 60
            assert found.beyond(cache + 1) == share * found.nbytes


def test_distances_that_reach_over_the_cache_count_in_part():
    assert Touched(100, 10, 30).beyond(20) == 50 == Touched(100, 30, 10).beyond(20)
    assert Touched(100, 10, 30).beyond(25) == 25 and Touched(100, 10, 30).beyond(31) == 0
    assert Touched(100, 20, 20).beyond(20) == 100 and Touched(100, 20, 20).beyond(21) == 0
    assert Touched(100, 10, 30).beyond(10) == 100 == Touched(100, inf, inf).beyond(10**18)
