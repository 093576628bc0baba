"""The ranks of a job, as a step is planned for them: how many, what joins them, what they share."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import BindError, nearest
from .rank_link import RankLink

SHARDS = ("auto", "auto-optimizer", "none", "optimizer", "weights")
MOST_RANKS = 65536  # of a job


@dataclass(frozen=True, slots=True)
class Ranks:
    """`count` processes, each with a batch of its own, whose gradients an update inside the step sums.

    `link` is what carries them: text such as "10Gbit/s" or "20GB/s,5us" is read, None is the default.
    `shard`: "optimizer" if each rank keeps only a part of the optimizer's states, "weights" if of the weights
    and their gradients as well, "none", or "auto" for whichever is faster within the budget
    ("auto-optimizer": of the first and none).
    """

    count: int = 1
    link: RankLink | str | None = None
    shard: str = "auto"

    def __post_init__(self) -> None:
        """Raises BindError."""
        count = self.count
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_RANKS:
            raise BindError(f"ranks must be a number from 1 to {MOST_RANKS}, got {count!r}.")
        if self.shard not in SHARDS:
            raise BindError(
                f"shard must be one of {SHARDS}, got {self.shard!r}.{nearest(str(self.shard), SHARDS)}"
            )
        object.__setattr__(self, "link", RankLink.of(self.link))

    def __str__(self) -> str:
        return f"{self.count} ranks over {self.link}"

    @classmethod
    def of(cls, ranks: Ranks | int) -> Ranks:
        """So many ranks with everything else by default; `ranks` itself if it says all."""
        return ranks if isinstance(ranks, Ranks) else cls(ranks)

    def seconds(self, nbytes: int, phases: int = 2) -> float:
        """Modelled time of a message of `nbytes` with so many phases."""
        return RankLink.of(self.link).seconds(nbytes, self.count, phases)


ALONE = Ranks()
"""One process."""
