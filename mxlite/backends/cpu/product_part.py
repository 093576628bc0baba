"""A matrix product as a part of a kernel's space: by rule, by one of oneDNN's kernels, or generated.

    knobs   (way, the fields of a MatricesSchedule if it is generated, else zeros)

A generated product packs its factors at each call or never; products of weights that stay are packed when
these are set, by a pass (`pack.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from math import log2, prod

from ...core.cached import cached_property
from ...graph.opdef import DType
from ..base import Knobs
from .compiled.matrix import product as generated
from .compiled.matrix.schedule import legal, MatricesSchedule, MatricesTask
from .onednn.product import Layout, Product, product

RULE, BLOCKED, PLAIN, GENERATED = range(4)
"""Ways: what sizes suggest, oneDNN's blocked kernel, its plain one, generated code."""

_NO_SCHEDULE = (0,) * len(fields(MatricesSchedule))
LENGTH = 1 + len(_NO_SCHEDULE)
"""Numbers of the knobs of a product."""


@dataclass(eq=False)
class ProductPart:
    """out = alpha * x @ y (+ bias) (+ adds * out); `rule` makes what sizes suggest.

    `only_rule`: nothing else computes it, such as an epilogue.
    """

    x: Layout
    y: Layout
    out: Layout
    bias: DType | None
    rule: Callable[[], Product | None]
    alpha: float | None = 1.0
    adds: float = 0.0
    any_width: bool = False
    only_rule: bool = False

    @cached_property
    def task(self) -> MatricesTask | None:
        """The product as generated code has it; None if there is none."""
        if self.alpha != 1 or self.adds not in (0, 1):
            return None
        return generated.task_of(self.x, self.y, self.out, self.bias, bool(self.adds))

    @property
    def default(self) -> Knobs:
        return RULE, *_NO_SCHEDULE

    @property
    def work(self) -> float:
        return prod(self.x.shape) * self.y.shape[-1]

    def legal(self) -> Iterator[Knobs]:
        yield self.default
        if self.only_rule:
            return
        usual = self.rule()
        for way in (BLOCKED, PLAIN):
            other = self._library(way)
            if other is not None and usual is not None and other.name != usual.name:
                yield way, *_NO_SCHEDULE
        if self.task is not None:
            for schedule in legal(self.task, generated.team_of(self.task)):
                yield GENERATED, *astuple(schedule)

    def allows(self, knobs: Knobs) -> bool:
        way, *rest = knobs
        if way == GENERATED and self.task is not None and not self.only_rule:
            return MatricesSchedule(*rest).allows(self.task)
        return (way == RULE or (way in (BLOCKED, PLAIN) and not self.only_rule)) and not any(rest)

    def product(self, knobs: Knobs) -> Product | None:
        """The product of some knobs, None if there is none."""
        way, *rest = knobs
        if way == RULE:
            return self.rule()
        if way == GENERATED:
            schedule = MatricesSchedule(*rest)
            return generated.product(self.x, self.y, self.out, self.bias, bool(self.adds), schedule=schedule)
        return self._library(way)

    def features(self, knobs: Knobs) -> list[float]:
        """19 numbers: the way, the sizes, the schedule, and what follows from both: loads and rows in vain,
        bytes of a panel and of a block."""
        way, *rest = knobs
        (m, k), n = self.x.shape[-2:], self.y.shape[-1]
        found = [float(way), *(log2(1 + x) for x in (m, n, k, *rest))]
        if way != GENERATED:
            return found + [0.0] * 3
        s = MatricesSchedule(*rest)
        vain = -(-m // s.rows) * s.rows * -(-n // s.panel) * s.panel / (m * n)
        depth = min(k, s.depth)
        return [
            *found,
            log2(vain),
            log2(4 * depth * (s.panel + s.rows)),
            log2(4 * depth * (min(m, s.block_rows) + min(n, s.block_columns))),
        ]

    def _library(self, way: int) -> Product | None:
        x, y, out = self.x, self.y, self.out
        has_bias, by_plain = self.bias is not None, way == PLAIN
        return product(x, y, out, has_bias, self.alpha, self.adds, self.any_width, by_plain)
