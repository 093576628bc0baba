"""How much a part of the torture may do, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic


@dataclass
class Allowance:
    """Seeds for at most `cases` cases in about `seconds` seconds, whichever ends first.

    ``for seed in allowance`` gives a seed a case, the same ones for the same first `seed`: a failure that
    names its seed is run again by ``Allowance(seed=that, cases=1)``. The clock is read between cases only.
    """

    seed: int = 0
    cases: int = 1
    seconds: float = float("inf")
    done: int = 0
    started: float = field(default_factory=monotonic)

    def __iter__(self) -> Iterator[int]:
        while self.done < self.cases and self.left() > 0:
            yield self.seed + self.done
            self.done += 1

    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (monotonic() - self.started)


@dataclass(frozen=True)
class Outcome:
    """What a part of the torture saw.

    cases: how many cases ran; failures: a line each, with the seed or file that brings it back; note: what
    was covered, as it shall stand in the table (rewrites, kills, mutations, the largest growth of memory …).
    """

    cases: int
    failures: list[str]
    note: str = ""
