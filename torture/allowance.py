"""Limits of a part of the torture, and its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic


@dataclass
class Allowance:
    """Seeds for at most `cases` cases in about `seconds` seconds, whichever ends first.

    ``for seed in allowance`` yields one seed per case, the same ones for the same first `seed`: a failure
    that names its seed is reproduced by ``Allowance(seed=that, cases=1)``. The clock is read between cases
    only.
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
    """Outcome of a part of the torture.

    cases: number of cases run; failures: one line each, with the seed or file that reproduces it; note: what
    was covered, as shown in the table (rewrites, kills, mutations, the largest growth of memory …).
    """

    cases: int
    failures: list[str]
    note: str = ""
