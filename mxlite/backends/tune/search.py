"""Which schedules of a space are measured next.

`RandomSearch` needs nothing. `ModelSearch` walks on the predictions of a cost model, by simulated annealing
with chains that persist from batch to batch; a twentieth of each batch stays random. After Chen et al.,
"Learning to Optimize Tensor Programs" (NeurIPS 2018), without the diversity term (see docs/tools.md).
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
    """Schedules in a random order, each once."""

    def __init__(self, legal: Sequence[Schedule], seed: int = 0) -> None:
        self._random = Random(seed)
        rest = list(legal)
        self._random.shuffle(rest)
        self._left = dict.fromkeys(rest)

    def next(self, count: int) -> list[Schedule]:
        """At most so many that were not measured yet; none at the end."""
        return [self._take(s) for s in list(self._left)[:count]]

    def _take(self, schedule: Schedule) -> Schedule:
        self._left.pop(schedule)
        return schedule


class ModelSearch(RandomSearch):
    """The schedules that a model predicts to be the fastest. `features` are those of each legal schedule."""

    def __init__(
        self,
        legal: Sequence[Schedule],
        features: Mapping[Schedule, Sequence[float]],
        model: Model,
        seed: int = 0,
    ) -> None:
        super().__init__(legal, seed)
        self._legal, self._features, self._model = list(legal), features, model
        self._near = Neighbours(self._legal)
        self._chains = self._random.choices(self._legal, k=CHAINS) if self._legal else []

    def next(self, count: int) -> list[Schedule]:
        if not self._model.is_ready or not self._left:
            return super().next(count)
        score = dict(zip(self._legal, self._model.scores([self._features[s] for s in self._legal])))
        randoms = sum(self._random.random() < EPSILON for _ in range(count))
        found = [self._take(s) for s in self.chosen(self._annealed(score), score, count - randoms)]
        return found + super().next(count - len(found))

    def chosen(
        self, ranked: Sequence[Schedule], score: Mapping[Schedule, float], count: int
    ) -> list[Schedule]:
        """What a batch takes of schedules that are ranked by their predicted score."""
        return list(ranked[:count])

    def _annealed(self, score: Mapping[Schedule, float]) -> list[Schedule]:
        """Schedules that the chains came across and nobody has measured, the best prediction first."""
        values = list(score.values())
        mean = sum(values) / len(values)
        spread = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5 or 1.0
        seen: dict[Schedule, None] = {}
        for step in range(STEPS):
            heat = spread * HOT * (COLD / HOT) ** (step / STEPS)
            for k, at in enumerate(self._chains):
                to = self._random.choice(self._near.of(at))
                gain = score[to] - score[at]
                if gain >= 0 or self._random.random() < exp(gain / heat):
                    self._chains[k] = to
                seen[to] = None
        return sorted((s for s in seen if s in self._left), key=lambda s: (-score[s], s))


class Neighbours:
    """Schedules that differ in one of kernel, threads and knobs; where there are none, all are neighbours."""

    def __init__(self, legal: Sequence[Schedule]) -> None:
        self._legal = legal
        self._places: dict[tuple[object, ...], list[Schedule]] = {}
        self._found: dict[Schedule, Sequence[Schedule]] = {}
        for s in legal:
            for place in _places(s):
                self._places.setdefault(place, []).append(s)

    def of(self, schedule: Schedule) -> Sequence[Schedule]:
        """Those of a schedule, without itself where there are others."""
        if schedule not in self._found:
            near = [s for place in _places(schedule) for s in self._places[place] if s != schedule]
            self._found[schedule] = near or self._legal
        return self._found[schedule]


def _places(s: Schedule) -> list[tuple[object, ...]]:
    """What a schedule has in common with its neighbours: all but one of its words, and which one that is."""
    words = (s.kernel, s.threads, *s.knobs)
    return [(k, len(words), *words[:k], *words[k + 1 :]) for k in range(len(words))]
