"""The state behind every random number: a seed, and a count of draws.

An operation takes a step number when it is *pushed*, on the caller's thread, and its numbers depend on
(seed, step) alone. So results do not depend on which worker draws first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ..core import Context, cpu, StateError
from ..core.process import forks
from ..core.wanted import wanted
from ..ops.random.philox import RandomStream


class Generator:
    """A seed and a counter; each `next_step` is unique. May be used from any thread."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = forks.lock()
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Restart from `seed` (taken modulo 2**64), at step 0."""
        with self._lock:
            self._seed = int(seed) % 2**64
            self._step = 0

    def next_step(self) -> tuple[int, int]:
        """(seed, step) for one operation, or for one run of a bound program."""
        with self._lock:
            step = self._step
            self._step += 1
            return self._seed, step

    def get_state(self) -> tuple[int, int]:
        """(seed, next step), for a checkpoint."""
        with self._lock:
            return self._seed, self._step

    def set_state(self, state: tuple[int, int]) -> None:
        """Continue from a state of `get_state`."""
        seed, step = state
        with self._lock:
            self._seed, self._step = int(seed) % 2**64, int(step)


_FIRST = cpu(0)
_STEP = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: seeds of neighbouring devices lie far apart


class Generators:
    """A generator for each device, created at its first use."""

    def __init__(self) -> None:
        self._lock = forks.lock()
        self._seed = 0
        self._of: dict[Context, Generator] = {}

    def of(self, ctx: Context | None) -> Generator:
        """The generator of a device; None is cpu(0)."""
        ctx = ctx or _FIRST
        generator = self._of.get(ctx)
        if generator is None:
            with self._lock:
                generator = self._of.setdefault(ctx, Generator(self._seed_of(ctx)))
        return generator

    def seed(self, seed: int) -> None:
        """Restart all devices: cpu(0) from `seed` itself, each other from its own seed derived from it."""
        with self._lock:
            self._seed = int(wanted("seed", seed, "a number", has=("__int__",)))
            for ctx, generator in self._of.items():
                generator.seed(self._seed_of(ctx))

    def _seed_of(self, ctx: Context) -> int:
        number = ((ctx.device_typeid - _FIRST.device_typeid) << 16) + ctx.device_id
        return self._seed + number * _STEP


GENERATORS = Generators()
"""The generators that `mx.random.seed` seeds."""


class _Draws(threading.local):
    """This thread's list for noting draws, and the steps to replay instead of the generator's."""

    noted: list[tuple[int, int]] | None = None
    replayed: Iterator[tuple[int, int]] | None = None


_DRAWS = _Draws()


def next_step(ctx: Context | None = None) -> tuple[int, int]:
    """(seed, step) for one operation, or for one run of a bound program, of this thread."""
    if _DRAWS.replayed is None:
        step = GENERATORS.of(ctx).next_step()
    else:
        try:
            step = next(_DRAWS.replayed)
        except StopIteration:
            raise StateError(
                "a checkpointed function drew more random numbers when it ran again for its gradient."
            ) from None
    if _DRAWS.noted is not None:
        _DRAWS.noted.append(step)
    return step


@contextmanager
def noting_draws() -> Iterator[list[tuple[int, int]]]:
    """A context that gives a list of the steps that this thread takes inside."""
    outer, mine = _DRAWS.noted, []  # type: ignore[var-annotated]
    _DRAWS.noted = mine
    try:
        yield mine
    finally:
        _DRAWS.noted = outer
        if outer is not None:
            outer += mine


@contextmanager
def replaying_draws(steps: Sequence[tuple[int, int]]) -> Iterator[None]:
    """A context in which this thread takes `steps` again, in their order."""
    outer, _DRAWS.replayed = _DRAWS.replayed, iter(steps)
    noted, _DRAWS.noted = _DRAWS.noted, None
    try:
        yield
    finally:
        _DRAWS.replayed, _DRAWS.noted = outer, noted


def next_stream(ctx: Context | None = None) -> RandomStream:
    """The numbers of a device's next step, for an operation that is called by itself."""
    return RandomStream(np.array(next_step(ctx), "uint64"), 0)
