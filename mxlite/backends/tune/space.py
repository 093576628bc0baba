"""The space of schedules of one kernel call: plain values that a file can hold.

    task        operator, attributes, shapes, types, threads: a request for a kernel
    candidate   a kernel that answers it: generated, a library's, or numpy's reference
    knobs       small integers on which a candidate's code depends besides the request (its `Space`)
    schedule    candidate, threads and knobs: what a record says of a task

Every schedule of a `TaskSpace` is legal by construction: there is nothing to be rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ...core.cached import cached_property
from ...core.config import KERNELS, only_kinds
from ..base import Backend, ChosenKernel, Knobs, MOST_ELEMENTS, Request

MOST_KNOBS = 64
LARGEST_KNOB = 1 << 20
FEATURES = 40  # numbers that describe a schedule to a cost model


@dataclass(frozen=True, order=True)
class Schedule:
    """A kernel by its name, its threads, and the knobs of its space: () where it has none."""

    kernel: str
    threads: int
    knobs: Knobs = ()

    def row(self) -> list[Any]:
        """As JSON has it."""
        return [self.kernel, self.threads, list(self.knobs)]

    @classmethod
    def of(cls, row: Any) -> Schedule | None:
        """From `row()`, which may come out of a foreign file; None if it is not exactly of that form."""
        if not isinstance(row, list) or len(row) != 3:
            return None
        kernel, threads, knobs = row
        if not isinstance(kernel, str) or len(kernel) > 200 or not _is_small(threads) or threads < 1:
            return None
        if not isinstance(knobs, list) or len(knobs) > MOST_KNOBS or not all(map(_is_small, knobs)):
            return None
        return cls(kernel, threads, tuple(knobs))

    def __str__(self) -> str:
        knobs = f" ({', '.join(map(str, self.knobs))})" if self.knobs else ""
        return f"{self.kernel}{knobs}, {self.threads} thread{'s' * (self.threads > 1)}"


def _is_small(x: object) -> bool:
    return type(x) is int and 0 <= x < LARGEST_KNOB


class TaskSpace:
    """The schedules of a request on a backend with at most `threads` threads."""

    def __init__(self, backend: Backend, request: Request, threads: int) -> None:
        self.backend, self.request, self.threads = backend, request, threads

    @cached_property
    def candidates(self) -> dict[str, ChosenKernel]:
        """Kernels that answer, by name; the default one first. Of those of one name the first one counts."""
        found: dict[str, ChosenKernel] = {}
        for kernel in self._answers(self.threads):
            found.setdefault(kernel.name, kernel)
        return found

    def _answers(self, threads: int) -> Iterator[ChosenKernel]:
        """The answers of all rows of the table, with all kinds of kernels allowed and with each alone."""
        r = self.request
        with self.backend.running(threads):
            default = self.backend.kernel(r)
        yield default
        if not self.has_choice:
            return
        for kinds in (KERNELS, *((kind,) for kind in KERNELS)):
            for row in self.backend.kernels.get(r.op, ()):
                with self.backend.running(threads), only_kinds(frozenset(kinds)):
                    other = row(r)
                if other is not None:
                    yield other
        yield self.backend.reference(r.op, r.attrs, r.inputs, r.outputs, r.dtype)

    @property
    def has_choice(self) -> bool:
        """True if rows of the backend's table answer, and not one kernel composed of others."""
        r, op = self.request, self.request.op
        few = all(prod(s) <= MOST_ELEMENTS for s in (*r.inputs, *r.outputs))
        return (
            few
            and not r.tile.is_special
            and not (op.forward_op or op).subgraphs
            and not hasattr(op, "compose")
        )

    @cached_property
    def default(self) -> Schedule:
        """The schedule that runs without records."""
        name, kernel = next(iter(self.candidates.items()))
        return Schedule(name, self.threads, kernel.space.default if kernel.space else ())

    @cached_property
    def legal(self) -> tuple[Schedule, ...]:
        """All schedules in a fixed order, the default first."""
        counts = (self.threads, 1) if self.threads > 1 else (self.threads,)
        found = [self.default]
        for name, kernel in self.candidates.items():
            knobs: Sequence[Knobs] = kernel.space.legal() if kernel.space else ((),)
            found += [
                Schedule(name, n, k) for n in (counts[:1] if kernel.is_reference else counts) for k in knobs
            ]
        return tuple(dict.fromkeys(found))

    def kernel(self, schedule: Schedule) -> ChosenKernel | None:
        """The kernel of a schedule; None if it is not one of this space. Its name has the knobs that are not
        the default ones.

        With fewer threads than the task's it sets their number in each of its calls.
        """
        if schedule.threads not in (1, self.threads):
            return None
        whole = schedule.threads == self.threads
        answers = self._answers(schedule.threads)
        made = next((kernel for kernel in answers if kernel.name == schedule.kernel), None)
        if made is not None and schedule.knobs != (made.space.default if made.space else ()):
            with self.backend.running(schedule.threads):
                made = made.space.kernel(schedule.knobs) if made.space else None
            if made is not None:
                made = replace(made, name=f"{made.name} {'-'.join(map(str, schedule.knobs))}")
        if made is None:
            return None
        return made if whole else self.backend.with_threads(made, 1)

    def named(self, schedule: Schedule) -> str:
        """What a schedule runs, in words: the kernel's name, and the threads."""
        kernel, threads = self.kernel(schedule), schedule.threads
        return f"{schedule.kernel if kernel is None else kernel.name}, {threads} thread{'s' * (threads > 1)}"

    def features(self, schedule: Schedule) -> list[float]:
        """FEATURES numbers: which candidate, how many threads, and those of its space."""
        names = list(self.candidates)
        space = self.candidates[schedule.kernel].space
        own = list(space.features(schedule.knobs)) if space else []
        return ([float(names.index(schedule.kernel)), float(schedule.threads), *own] + [0.0] * FEATURES)[
            :FEATURES
        ]
