"""The interface between programs and a device that has memory of its own and works on by itself.

`Backend.remote` is one of these where there is such a device: the executor's programs there are graphs of
calls (executor/run/graph_program.py), batches wait in staging (executor/run/feed.py), and whatever else it
takes is asked for here. The CPU has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from ..engine import Var
from ..graph.ir import Shape
from .checks.guard import Fence

Run = Callable[[], None]

MESSAGE = 3
"""The kind of a step that exchanges messages with other ranks, beside the kinds of a plan's schedule."""


class GraphError(Exception):
    """A call failed: the one at `place` of its list. The cause says why."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


class Order(Protocol):
    """The streams that steps go to, and the events between them."""

    def realised(self, start: int = 0, stop: int | None = None) -> list[tuple[int, ...]]:
        """For each step in [start, stop) the steps that surely end before it starts; those before `start`
        are over.
        """


class Graph(Protocol):
    """A list of calls that the device replays at once. `why_not` says of those that stay outside of its
    graphs why, by place; it is complete when `is_complete`. A call that fails raises GraphError.
    """

    device: Any
    why_not: dict[int, str]

    @property
    def graphs(self) -> int:
        """How many graphs there are by now."""

    @property
    def is_complete(self) -> bool:
        """True if all of it that can be captured has been."""

    def __call__(self) -> None:
        """Issue all of it."""

    def one_by_one(self, after: Run | None = None) -> None:
        """The same without a graph; `after` is called behind each call."""


class Staging(Protocol):
    """The way of batches to `inputs`, by name."""

    inputs: dict[str, Any]

    def send(self, values: Sequence[tuple[str, np.ndarray]]) -> None:
        """Bring arrays of the host near. Returns when `values` may be changed."""

    def receive(self, names: Sequence[str]) -> None:
        """Let the kernels that come from now on find in these inputs what was sent last."""


class Dial(Protocol):
    """An array on the device to which the host writes small values between kernels."""

    def set(self, values: np.ndarray, *, known: bool = True) -> None:
        """Let the kernels that come from now on read `values`; `known`: only the host ever writes there."""


class RandomState(Protocol):
    """(seed, step) where kernels read them: `array`. `advance` is the call that a program begins with."""

    array: Any
    advance: Run

    def expect(self, seed: int, step: int) -> None:
        """The next program is to find (seed, step) once it has advanced."""

    def forget(self) -> None:
        """A program has failed, and may not have advanced."""


class Stopwatch(Protocol):
    """Notes when the device comes to certain places between calls."""

    def start(self, most: int) -> None:
        """Forget what was noted; so many notes at most are to come."""

    def __call__(self) -> None:
        """Note the time when the device is here."""

    def seconds(self) -> list[float]:
        """From the first note to each. Waits for the device."""


class Remote(ABC):
    """The device, as programs see it. Sizes of arrays that share a block are multiples of `unit` bytes;
    memory comes from the driver in pieces of `chunk` bytes.
    """

    unit: int
    chunk: int

    # -- memory ------------------------------------------------------------------------------------------

    @abstractmethod
    def memory(self) -> tuple[int, int]:
        """Bytes that are free and that there are."""

    @abstractmethod
    def room(self, arrays: Sequence[int], arena: int) -> Any:
        """The free memory for blocks of so many bytes, and an arena, that are still to be taken: a `Room`."""

    # -- what a step takes besides its kernels -----------------------------------------------------------

    @abstractmethod
    def staging_bytes(self, kinds: Mapping[str, tuple[Shape, np.dtype[Any]]]) -> int:
        """Bytes of the block in which a batch of arrays of (shape, dtype) waits."""

    @abstractmethod
    def staging(self, block: Any, var: Var, inputs: Mapping[str, Any]) -> Staging:
        """The way to `inputs` through such a block, whose Var is `var`."""

    @abstractmethod
    def dial(self, array: Any) -> Dial:
        """The one dial of an array, for all programs that read it."""

    @abstractmethod
    def random_state(self, array: Any) -> RandomState:
        """The random state in `array`, uint64 (2,)."""

    # -- calls -------------------------------------------------------------------------------------------

    @abstractmethod
    def order(
        self, before: Sequence[Sequence[int]], kinds: Sequence[int], seconds: Sequence[float], streams: int
    ) -> Order:
        """An order in which every step comes after those in `before`, its kernels on so many `streams`.

        `seconds` is what steps take, `kinds` are those of a plan's schedule, or MESSAGE. Messages come in the
        order of the steps.
        """

    @abstractmethod
    def graph(self, calls: Sequence[Run], order: Order, start: int, prologue: Run | None = None) -> Graph:
        """Calls [start, start + len(calls)) of a program as a graph; `order` is that of all its steps.

        `prologue` comes before all of them, in the same graph.
        """

    @abstractmethod
    def copy_call(self, target: Any, source: Any) -> Run:
        """A call that copies bytes between the device and host memory of its own, either way."""

    @abstractmethod
    def name_checks(self, call: Run, name: str) -> None:
        """Let what is found wrong by the kernels of `call` be told under the name of its node."""

    @abstractmethod
    def active(self) -> AbstractContextManager[None]:
        """Inside, this thread's calls go to the device."""

    @abstractmethod
    def mark(self) -> int:
        """The ticket of everything that has been issued."""

    @abstractmethod
    def stopwatch(self) -> Stopwatch:
        """One that tells the device's own times."""

    # -- guard bytes, see guard.py -------------------------------------------------------------------------

    @abstractmethod
    def fence(self, block: Any, start: int, stop: int, name: str) -> Fence:
        """The pattern around bytes [start, stop) of a block."""

    @abstractmethod
    def forget(self, memory: Any) -> None:
        """Fill with NaN, whatever the type."""

    @abstractmethod
    def watched(self, call: Run, watched: Run) -> Run:
        """`watched` in the place of `call`, around which it looks: a call of which no graph is made."""
