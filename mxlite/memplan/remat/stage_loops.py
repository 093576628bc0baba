"""Loops over many sets of tasks: recomputed tasks, live bytes, and the partial schedules that go on.

With llvmlite they are machine code, otherwise `stages.py` and `beam.py` compute the same with numpy.
All numbers are integers, so both give the same results. A set is the bits of one number, see `stages.py`; the
last task of a set is processed first, since its inputs come before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ..compiled import all_compiled, Ints


class Own(NamedTuple):
    """A stage's own task: values it asks for, those it may overwrite and what that saves, and the bytes that
    it needs, and that every recomputation before it needs, besides values.
    """

    asked: int
    donors: int
    saved: int
    during: int
    before: int


class Partial(NamedTuple):
    """Partial schedules: the number of their budget, what they hold after the stage, their seconds."""

    budget: Ints
    after: Ints
    now: Ints


def missing_in(there: int, wanted: int, reads: Ints) -> int:
    """The tasks that must run for `wanted`: those of it in `there` whose results are not held, and inputs."""
    found = wanted & there
    rest = found
    while rest != 0:
        u = rest.bit_length() - 1
        more = reads[u] & there
        rest = (rest ^ (1 << u)) | (more ^ (more & found))
        found = found | more
    return found


def sum_over(tasks: int, weights: Ints, at: int) -> int:
    """The sum of weights[at + u] over the set `tasks`."""
    total = 0
    while tasks != 0:
        u = tasks.bit_length() - 1
        total += weights[at + u]
        tasks = tasks ^ (1 << u)
    return total


def missing(count: int, held: Ints, wanted: Ints, reads: Ints, found: Ints) -> int:
    """Fill found[count]: the tasks that must run with held[i] live, so that wanted[i] is live too."""
    i = 0
    while i < count:
        found[i] = missing_in(held[i] ^ -1, wanted[i], reads)
        i += 1
    return 0


def most_bytes(
    count: int, held: Ints, after: Ints, own: Own, reads: Ints, donors: Ints, saved: Ints, scratch: Ints,
    size: Ints, most: Ints,
) -> int:  # fmt: skip
    """Fill most[count]: live bytes at the peak step of a stage, as `Stages.most_bytes` describes them."""
    i = 0
    while i < count:
        there = held[i] ^ -1
        seen = after[i] | own.asked
        live = sum_over(seen, size, 0)
        fullest = live + own.during
        if (seen & own.donors & (after[i] ^ -1)) != 0:
            fullest -= own.saved
        rest = seen & there
        while rest != 0:
            u = rest.bit_length() - 1
            read = reads[u] & (seen ^ -1)
            rest = (rest ^ (1 << u)) | (read & there)
            live += sum_over(read, size, 0)
            total = live + own.before + scratch[u]
            if (read & donors[u]) != 0:
                total -= saved[u]
            if total > fullest:
                fullest = total
            live -= size[u]
            seen = seen | read
        most[i] = fullest
        i += 1
    return 0


def hopeful(
    count: int, number: int, partial: Partial, later: int, pinned: int, reads: Ints, seconds: Ints,
    upper: Ints, price: Ints, which: Ints, total: Ints,
) -> int:  # fmt: skip
    """Fill which[found] with the partial schedules that go on, total[found] with their priced seconds."""
    found = 0
    i = 0
    while i < count:
        again = missing_in(partial.after[i] ^ -1, later, reads)
        spent = partial.now[i] + sum_over(again, seconds, 0)
        if (again & pinned) == 0 and spent < upper[partial.budget[i]]:
            needed = later
            while again != 0:
                u = again.bit_length() - 1
                needed = needed | reads[u]
                again = again ^ (1 << u)
            which[found] = i
            total[found] = spent + sum_over(partial.after[i] & needed, price, partial.budget[i] * number)
            found += 1
        i += 1
    return found


PARTS: tuple[Callable[..., int], ...] = (missing_in, sum_over, missing, most_bytes, hopeful)


@cache
def machine_code() -> dict[str, Callable[..., int]] | None:
    """The loops by name as machine code, compiled once; None without llvmlite."""
    made = all_compiled(PARTS)
    return None if made is None else {f.__name__: run for f, run in zip(PARTS, made)}
