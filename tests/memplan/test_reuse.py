"""Reuse distances against counting byte by byte, and what a cache is expected to have lost of them."""

from __future__ import annotations

import random
from math import inf

import numpy as np
import pytest

from mxlite.memplan.cost.reuse import Reuse, Touched

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


def lost(distance, cache, rng, tries=400):
    """How often a byte is gone behind `distance` others, each of which takes the place of any of `cache`."""
    return sum(any(rng.randrange(cache) == 0 for _ in range(distance)) for _ in range(tries)) / tries


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0, 2.5])
def test_bytes_are_missing_as_often_as_a_cache_that_drops_at_random_has_lost_them(share):
    cache, rng = 200, random.Random(1)
    distance = int(share * cache)
    missing = Touched(1000, distance, distance).missing(cache) / 1000
    assert missing == pytest.approx(lost(distance, cache, rng), abs=0.08)


def test_of_distances_that_run_from_one_to_another_the_mean_counts():
    cache = 100
    for first, last in ((0, 50), (50, 0), (20, 400), (0, 1), (99.9999999, 100)):
        points = [Touched(1, d, d).missing(cache) for d in np.linspace(first, last, 2001)]
        assert Touched(7, first, last).missing(cache) == pytest.approx(7 * np.mean(points), rel=1e-3)


def test_what_was_just_touched_is_there_and_what_never_was_is_not():
    assert Touched(100, 0, 0).missing(1000) == 0.0
    assert Touched(100, inf, inf).missing(10**18) == 100
    assert Touched(100, 1e9, 2e9).missing(1) == 100
    values = [Touched(100, d, 2 * d).missing(1000) for d in (1, 10, 100, 1000, 10000)]
    assert values == sorted(values) and 0 < values[0] < 1 and 99 < values[-1] < 100
