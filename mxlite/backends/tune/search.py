"""Which schedules of a space are measured next.

`RandomSearch` needs nothing. `ModelSearch` walks on the predictions of a cost model, by simulated annealing
with chains that persist from batch to batch; a twentieth of each batch stays random. After Chen et al.,
"Learning to Optimize Tensor Programs" (NeurIPS 2018), whose diversity term brought nothing in our replays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from random import Random
from typing import Protocol

from .space import Schedule

EPSILON = 0.05  # of a batch
CHAINS = 32
STEPS = 60  # of each chain for a batch
HOT, COLD = 1.0, 0.05  # temperatures, in standard deviations of predictions


class Model(Protocol):
    """Predicts how schedules rank: higher is faster."""

    def learn(self, rows: Sequence[Sequence[float]], seconds: Sequence[float], group: str) -> None: ...

    def scores(self, rows: Sequence[Sequence[float]]) -> list[float]: ...

    @property
    def is_ready(self) -> bool: ...


class RandomSearch:
    """Schedules in a random order, each once; the default one is `legal[0]`, and comes first."""

    def __init__(self, legal: Sequence[Schedule], seed: int = 0) -> None:
        self._random = Random(seed)
        rest = list(legal[1:])
        self._random.shuffle(rest)
        self._left = dict.fromkeys([*legal[:1], *rest])

    def next(self, count: int) -> list[Schedule]:
        """At most so many that were not measured yet; none at the end."""
        return [self._take(s) for s in list(self._left)[:count]]

    def _take(self, schedule: Schedule) -> Schedule:
        self._left.pop(schedule)
        return schedule

    def learn(self, seconds: Mapping[Schedule, float]) -> None:
        """Take the seconds of a batch; infinity where a schedule failed."""


class ModelSearch(RandomSearch):
    """The schedules that a model predicts to be the fastest. `features` are those of each legal schedule."""

    def __init__(
        self,
        legal: Sequence[Schedule],
        features: Mapping[Schedule, Sequence[float]],
        model: Model,
        group: str,
        seed: int = 0,
    ) -> None:
        super().__init__(legal, seed)
        self._legal, self._features, self._model, self._group = list(legal), features, model, group
        self._near = _neighbours(self._legal)
        self._chains = [self._random.choice(self._legal) for _ in range(CHAINS)]

    def next(self, count: int) -> list[Schedule]:
        if not self._model.is_ready or self._legal[0] in self._left:
            return super().next(count)
        randoms = sum(self._random.random() < EPSILON for _ in range(count))
        found = [self._take(s) for s in self._annealed()[: count - randoms]]
        return found + super().next(count - len(found))

    def learn(self, seconds: Mapping[Schedule, float]) -> None:
        self._model.learn([self._features[s] for s in seconds], list(seconds.values()), self._group)

    def _annealed(self) -> list[Schedule]:
        """Schedules that the chains came across and nobody has measured, the best prediction first."""
        score = dict(zip(self._legal, self._model.scores([self._features[s] for s in self._legal])))
        values = list(score.values())
        mean = sum(values) / len(values)
        spread = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5 or 1.0
        seen: dict[Schedule, None] = {}
        for step in range(STEPS):
            heat = spread * HOT * (COLD / HOT) ** (step / STEPS)
            for k, at in enumerate(self._chains):
                to = self._random.choice(self._near[at])
                gain = score[to] - score[at]
                if gain >= 0 or self._random.random() < exp(gain / heat):
                    self._chains[k] = to
                seen[to] = None
        return sorted((s for s in seen if s in self._left), key=lambda s: (-score[s], s))


def _neighbours(legal: Sequence[Schedule]) -> dict[Schedule, list[Schedule]]:
    """For each schedule those that differ in one of kernel, threads and knobs; if there are none, all."""
    places: dict[tuple[object, ...], list[Schedule]] = {}
    spelled = {s: (s.kernel, s.threads, *s.knobs) for s in legal}
    for s, words in spelled.items():
        for k in range(len(words)):
            places.setdefault((k, len(words), *words[:k], *words[k + 1 :]), []).append(s)
    found: dict[Schedule, list[Schedule]] = {}
    for s, words in spelled.items():
        near = [
            other
            for k in range(len(words))
            for other in places[(k, len(words), *words[:k], *words[k + 1 :])]
            if other != s
        ]
        found[s] = near or [other for other in legal if other != s] or [s]
    return found
