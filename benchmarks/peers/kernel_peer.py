"""Base of the worker processes that run single operators or chains of them; see operators.py, chains.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter
from typing import Any

import numpy as np

from .operators import ROWS

BLOCKS = 12  # of calls in a measurement


@dataclass(frozen=True)
class Call:
    """A call that can be repeated. `kernel` names what runs, `results` are its arrays once it has run;
    `is_view`: a result shares its memory with an input, or its elements share theirs.
    """

    run: Callable[[], Any]
    kernel: str
    results: Callable[[], Iterable[np.ndarray]]
    is_view: bool = False


class KernelPeer:
    """Holds the calls of one of `rows` at a time; a subclass has `versions` and `calls`."""

    rows: Sequence[Any] = ROWS

    def __init__(self) -> None:
        self.held: dict[str, Call] = {}

    def versions(self) -> dict[str, str]:
        raise NotImplementedError

    def calls(self, row: Any, arrays: list[np.ndarray]) -> dict[str, Call]:
        """Its calls on these inputs, by what they compute, such as "forward" and "gradient"."""
        raise NotImplementedError

    def load(self, row: int) -> dict[str, dict[str, Any]]:
        """Make the calls of `rows[row]` and run each once; replies with what they are and what they found."""
        self.held.clear()
        rng = np.random.default_rng(0)  # so all peers have equal inputs
        self.held = self.calls(self.rows[row], [i.draw(rng) for i in self.rows[row].inputs])
        found = {}
        for way, call in self.held.items():
            call.run()
            digests = [digest(x) for x in call.results()]
            found[way] = {"kernel": call.kernel, "digests": digests, "is_view": call.is_view}
        return found

    def time(self, way: str, seconds: float) -> float:
        """Microseconds of a call, in a loop of about `seconds`: the lower quartile of some blocks."""
        run = self.held[way].run
        run()
        start = perf_counter()
        run()
        count = max(1, int(seconds / BLOCKS / (perf_counter() - start)))
        times = []
        for _ in range(BLOCKS):
            start = perf_counter()
            for _ in repeat(None, count):
                run()
            times.append(perf_counter() - start)
        return 1e6 * sorted(times)[BLOCKS // 4] / count

    def answer(self, do: str, **arguments: Any) -> Any:
        return {"versions": self.versions, "load": self.load, "time": self.time}[do](**arguments)


def head(shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of an output: drawn, or 1 for a loss."""
    if int(np.prod(shape)) == 1:
        return np.ones(shape, np.float32)
    return np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)


def digest(x: np.ndarray) -> tuple[float, float]:
    """The norm of an array, and its product with a fixed vector, which depends on the places of elements."""
    flat = x.reshape(-1).astype(np.float64)
    fixed = np.random.default_rng(2).uniform(-1, 1, flat.size)
    return float(np.linalg.norm(flat)), float(flat @ fixed)
