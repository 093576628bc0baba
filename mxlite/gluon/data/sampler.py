"""Samplers: orders in which samples are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ...core.errors import MissingMethodError, OpAttributeError
from ...core.wanted import whole


class Sampler:
    """Base of samplers: a subclass defines `__iter__` and `__len__`."""

    def __len__(self) -> int:
        raise MissingMethodError(f"{type(self).__name__} must define __len__().")

    def __iter__(self) -> Iterator[Any]:
        raise MissingMethodError(f"{type(self).__name__} must define __iter__().")


class SequentialSampler(Sampler):
    """start, start + 1, ..., `length` numbers."""

    def __init__(self, length: int, start: int = 0) -> None:
        self._length = whole("SequentialSampler: length", length, 0)
        self._start = start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """The numbers below `length` in random order, a new one each time; the order is numpy's global
    generator's.
    """

    def __init__(self, length: int) -> None:
        self._length = whole("RandomSampler: length", length, 0)

    def __iter__(self) -> Iterator[int]:
        order = np.arange(self._length)
        np.random.shuffle(order)  # noqa: NPY002
        return iter(order.tolist())

    def __len__(self) -> int:
        return self._length


class FilterSampler(Sampler):
    """The numbers of samples for which a function is true."""

    def __init__(self, fn: Callable[[Any], bool], dataset: Any) -> None:
        self._numbers = [i for i in range(len(dataset)) if fn(dataset[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of another sampler.

    last_batch: 'keep' gives the rest as a smaller batch, 'discard' drops it, 'rollover' puts it before the
    next pass.
    """

    def __init__(self, sampler: Any, batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in ("keep", "discard", "rollover"):
            raise OpAttributeError(f"last_batch must be 'keep', 'discard' or 'rollover', got {last_batch!r}.")
        self._sampler: Iterable[int] = sampler
        self._batch_size = whole("BatchSampler: batch_size", batch_size, 1)
        self._last_batch = last_batch
        self._rest: list[int] = []

    def __iter__(self) -> Iterator[list[int]]:
        batch, self._rest = self._rest, []
        for i in self._sampler:
            batch.append(i)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if batch and self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._rest = batch

    def __len__(self) -> int:
        count = len(self._sampler)  # type: ignore[arg-type]
        if self._last_batch == "keep":
            return (count + self._batch_size - 1) // self._batch_size
        return (count + len(self._rest)) // self._batch_size
