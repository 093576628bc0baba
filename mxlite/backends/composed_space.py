"""The space of a kernel that is composed of parts: nests of a computation, products of a gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import prod
from typing import Protocol

from ..core.cached import cached_property
from .base import ChosenKernel, Knobs

MOST = 4096
"""Schedules of a kernel at most: where its parts would have more together, one part is varied at a time."""
DESCRIBED = 2
"""Parts that features describe, those of the most work."""


class KernelPart(Protocol):
    """A part of a kernel that has knobs. `legal()` has the default ones, too; `work` compares parts."""

    @property
    def default(self) -> Knobs: ...

    @property
    def work(self) -> float: ...

    def legal(self) -> Iterable[Knobs]: ...

    def allows(self, knobs: Knobs) -> bool: ...

    def features(self, knobs: Knobs) -> Sequence[float]: ...


@dataclass(eq=False)
class ComposedSpace:
    """A `Space` with the knobs of all parts, one part after the other; `made` makes the kernel of some."""

    parts: Sequence[KernelPart]
    made: Callable[[Sequence[Knobs]], ChosenKernel | None]

    @cached_property
    def _defaults(self) -> list[Knobs]:
        return [part.default for part in self.parts]

    @property
    def default(self) -> Knobs:
        return _joined(self._defaults)

    def legal(self) -> Sequence[Knobs]:
        each = [list(dict.fromkeys(part.legal())) for part in self.parts]
        if prod(map(len, each)) <= MOST:
            return [_joined(some) for some in product(*each)]
        alone = (
            _joined([*self._defaults[:k], knobs, *self._defaults[k + 1 :]])
            for k, some in enumerate(each)
            for knobs in some
        )
        return list(dict.fromkeys(alone))

    def kernel(self, knobs: Knobs) -> ChosenKernel | None:
        own = self._split(knobs)
        if own is None or not all(part.allows(some) for part, some in zip(self.parts, own)):
            return None
        found = self.made(own)
        return None if found is None else replace(found, space=self)

    def features(self, knobs: Knobs) -> list[float]:
        own = self._split(knobs)
        assert own is not None
        pairs = sorted(zip(self.parts, own), key=lambda pair: -pair[0].work)
        return [x for part, some in pairs[:DESCRIBED] for x in part.features(some)]

    def _split(self, knobs: Knobs) -> list[Knobs] | None:
        """The knobs of each part; None if these are too many or too few."""
        found, start = [], 0
        for some in self._defaults:
            found.append(knobs[start : start + len(some)])
            start += len(some)
        return found if start == len(knobs) else None


def _joined(knobs: Iterable[Knobs]) -> Knobs:
    return tuple(chain.from_iterable(knobs))
