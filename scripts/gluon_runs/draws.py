"""Random numbers that the wheel drew, drawn again by mxlite: both runs start from the same parameters.

The two generate random numbers by different algorithms. The wheel's run keeps what each initializer wrote
(by the parameter's name) and what each call of `mx.random` gave (by its place in the row of calls); mxlite's
run computes its own, checks that shapes agree, and replaces them by those.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import numpy as np

_FUNCTIONS = ("uniform", "normal", "randn", "randint", "exponential", "gamma", "poisson", "multinomial")


class Draws:
    """The random numbers of one run: kept in the wheel's run, given again in mxlite's."""

    def __init__(self, file: Path, keep: bool) -> None:
        self._file, self._keep = file, keep
        self._kept = {} if keep else dict(np.load(file))
        self._seen: Counter[str] = Counter()
        self._depth = 0  # draws inside an initializer are its affair

    def install(self, mx) -> None:
        """Let the initializers and random functions of `mx` go through this."""
        fill = mx.init.Initializer.__call__

        @functools.wraps(fill)
        def filled(initializer, desc, arr):
            self._depth += 1
            try:
                fill(initializer, desc, arr)
            finally:
                self._depth -= 1
            self._same(f"parameter {desc}", arr)

        mx.init.Initializer.__call__ = filled
        for module in (mx.random, mx.nd.random):
            for name in _FUNCTIONS:
                if hasattr(module, name):
                    setattr(module, name, self._drawn(name, getattr(module, name)))
        for name in ("normal", "uniform", "random_normal", "random_uniform"):
            setattr(mx.nd, name, self._drawn(name, getattr(mx.nd, name)))
        mx.nd.sample_multinomial = functools.partial(self._categories, mx)

    def write(self) -> None:
        """Keep what was drawn for the other run."""
        if self._keep:
            np.savez(self._file, **self._kept)

    def _drawn(self, name, function):
        @functools.wraps(function)
        def draw(*args, **kwargs):
            self._depth += 1
            try:
                out = function(*args, **kwargs)
            finally:
                self._depth -= 1
            if not self._depth:
                self._same("draw", out)
            return out

        return draw

    def _same(self, key: str, array) -> None:
        """Keep the array, or fill it with what was kept under that key."""
        key = f"{key} {self._seen[key]}"
        self._seen[key.rpartition(" ")[0]] += 1
        if self._keep:
            self._kept[key] = array.asnumpy()
            return
        if key not in self._kept:
            raise KeyError(f"The wheel's run has no {key!r}; it has {sorted(self._kept)[:20]}")
        if self._kept[key].shape != array.shape:
            raise ValueError(f"{key!r} has the shape {array.shape}, and {self._kept[key].shape} in the wheel")
        array[:] = self._kept[key]

    def _categories(self, mx, data, get_prob=False):
        """A category for each row of probabilities, with the logarithm of its probability if wanted."""
        chance = data.asnumpy().astype("float64").cumsum(-1)
        found = (np.random.random(chance.shape[:-1] + (1,)) * chance[..., -1:] > chance).sum(-1)  # noqa: NPY002
        index = mx.nd.array(found, dtype="int32")
        return (index, mx.nd.log(mx.nd.pick(data, index))) if get_prob else index
