"""Crews: a kernel for each call with its number of threads, and the forms of it that a plan may choose.

A kernel that has a part of its scratch for each thread would take the more bytes the more cores a machine
has, for the same work. So if scratch is a notable part of what a kernel touches, it has only as many
threads as there is work for. Kernels with fewer threads and less scratch are offered to the planner, if their
results are the same to the bit: a plan must not change results. If sums are split among threads, so that
bits depend on their number, it follows from the call alone: as many as take hardly more bytes than one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .base import Backend, ChosenKernel, plain_link
from .tune.choose import Chooser
from .tune.records import Records

NOTABLE = 8
"""A kernel's scratch matters if it is at least 1 / NOTABLE of its arrays."""
PART = 16
"""More threads may add up to 1 / PART of the arrays, if that cannot be undone later."""
LARGE = 1024 * 1024
"""Bytes of the arrays from which on that applies: a small network's least budget is that of one thread."""
PER_THREAD = 32 * 1024
"""Bytes to be moved that justify a third thread and each more; for two a kernel decides by itself."""
FLOPS_PER_BYTE = 16
"""Arithmetic operations that take as long as moving a byte."""


@dataclass(frozen=True)
class Crew:
    """A kernel with its threads. `fewer` are others for the same call, by their threads; `forms` are
    (threads, workspace) of all, its own first, and empty if there is only one.
    """

    kernel: ChosenKernel
    threads: int
    fewer: Mapping[int, ChosenKernel] = field(default_factory=dict)

    @property
    def forms(self) -> tuple[tuple[int, int], ...]:
        if not self.fewer:
            return ()
        others = ((n, kernel.workspace) for n, kernel in self.fewer.items())
        return ((self.threads, self.kernel.workspace), *others)


class Crews:
    """The crews for calls, by `records` where these know better; equal requests have one kernel.

    `most`: threads of a kernel that has all.
    """

    def __init__(self, backend: Backend, records: Records | None = None) -> None:
        self._backend = backend
        self.most = backend.threads()
        self._chooser = None if records is None else Chooser(backend, records, self.most)
        self._kernels: dict[Any, ChosenKernel] = {}

    def of(self, request: tuple[Any, ...], flops: float, nbytes: int) -> Crew:
        """The crew for a request of `Backend.choose`; the call does `flops` on arrays of `nbytes`."""
        if self._chooser is not None and (n := self._chooser.threads(request)) < self.most:
            return Crew(self._kernel(request, n), n)
        kernel = self._kernel(request, self.most)
        if self.most == 1 or kernel.link is plain_link or kernel.workspace * NOTABLE <= nbytes:
            return Crew(kernel, self.most)
        useful = max(2, int(max(nbytes, flops / FLOPS_PER_BYTE)) // PER_THREAD)
        counts = [1 << i for i in reversed(range((self.most - 1).bit_length()))]
        counts = [n for n in (self.most, *counts) if n <= useful]
        room = self._kernel(request, 1).workspace + (nbytes // PART if nbytes >= LARGE else 0)
        for i, n in enumerate(counts):
            kernel, fewer = self._kernel(request, n), self._fewer(request, counts[i:])
            if n == 1 or min([kernel, *fewer.values()], key=_workspace).workspace <= room:
                return Crew(kernel, n, fewer)
        raise AssertionError("one thread is always enough")

    def _fewer(self, request: tuple[Any, ...], counts: Sequence[int]) -> dict[int, ChosenKernel]:
        """Kernels with fewer threads than the first of `counts`, each with less scratch than those before."""
        first = least = self._kernel(request, counts[0])
        found: dict[int, ChosenKernel] = {}
        for n in counts[1:] if first.bits is not None else ():
            other = self._kernel(request, n)
            if _is_like(first, other) and other.workspace < least.workspace:
                found[n] = least = other
        return found

    def _kernel(self, request: tuple[Any, ...], threads: int) -> ChosenKernel:
        """The kernel with so many threads."""
        # Attributes of 0.0 and -0.0 are equal, but not as text.
        key = request, repr(request[1]), threads
        if key not in self._kernels:
            if threads == self.most:
                self._kernels[key] = self._choose(request, threads)
            else:
                with self._backend.running(threads):
                    kernel = self._choose(request, threads)
                self._kernels[key] = self._backend.with_threads(kernel, threads)
        return self._kernels[key]

    def _choose(self, request: tuple[Any, ...], threads: int) -> ChosenKernel:
        if self._chooser is None:
            return self._backend.choose(*request)
        return self._chooser.kernel(request, threads)


def _workspace(kernel: ChosenKernel) -> int:
    return kernel.workspace


def _is_like(one: ChosenKernel, other: ChosenKernel) -> bool:
    """True if one can replace the other in a plan, to the bit."""
    same = ("bits", "name", "always", "in_place", "precision", "twice", "signature")
    return all(getattr(one, name) == getattr(other, name) for name in same)
