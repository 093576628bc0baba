"""Prepacked weights of an inference program, in place: in its kernels' layout, in the user's array.

A kernel may need its weights in a layout of its own, and reordering them takes as long as a convolution of
one image. Kept beside the user's arrays such weights would double a program's bytes. So they replace
the user's: the array is **away** (see `ndarray.memory`) until its elements are read. Then it is
put back in order, bit for bit, and the next forward pass packs it once more.

The layout must not change while the elements are visible elsewhere. Every reader of the elements has a numpy
array, or a view of it: a pending operation, another program, another library. All of these keep an
object alive, the **loan**, to which only a weak reference is kept here. While the loan lives the array stays
plain, and the program has a copy in its kernels' layout besides, made at its next forward pass. For so long
`Executor.memory_plan` counts the copy among the arguments. (No budget is exceeded: within one no weight
goes away.)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np

from ...core.errors import MXLiteError
from ...core.process import forks
from ...engine import get_engine
from ...memplan import MemoryPlan
from ...ndarray import NDArray

LOCK = forks.rlock()
"""Held while arrays go away or come back, and by a program from checking its weights until their readers
are pushed. Nothing waits for the engine inside."""


class StoredForm(Protocol):
    """A layout that takes `nbytes`: 1-D arrays of so many bytes are converted to it and back. Two
    are equal if they are the same layout.
    """

    nbytes: int

    def pack(self, source: Any, target: Any) -> None: ...

    def unpack(self, source: Any, target: Any) -> None: ...


class _Loan:
    """Object that every reader of the bytes holds: numpy keeps it as the base of all views."""

    __slots__ = ("__array_interface__", "__weakref__", "memory")

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory
        self.__array_interface__ = memory.__array_interface__


class Resident:
    """An array that can go away: its memory, in bytes, and the form that the elements have now.

    array: zeros, just created by ourselves: nothing else has its memory. nbytes: those of its other form.
    """

    is_computed = False

    def __init__(self, array: NDArray, nbytes: int = 0) -> None:
        plain = array.storage
        self.shape, self.dtype = plain.shape, plain.dtype
        self.memory: np.ndarray[Any, Any] = plain.reshape(-1).view(np.uint8)
        if nbytes > plain.nbytes:
            self.memory = array.backend.empty(nbytes)
            self.memory.fill(0)
        del plain
        self.var = array.var
        self.form: StoredForm | None = None
        self._around: Callable[[], AbstractContextManager[None]] | None = None
        self._array = weakref.ref(array)
        self._loan: Callable[[], _Loan | None] = lambda: None
        del array.storage
        array.away = self

    @property
    def plain(self) -> np.ndarray[Any, Any]:
        """The memory as the array, for callers who know its form."""
        size = prod(self.shape) * self.dtype.itemsize
        return self.memory[:size].view(self.dtype).reshape(self.shape)

    def back(self) -> np.ndarray[Any, Any]:
        """Push the conversion to the plain form, and lend the array."""
        with LOCK:
            loan = self._loan()
            if loan is None:
                loan = _Loan(self.plain)
                self._loan = weakref.ref(loan)
                if self.form is not None:
                    self._push(self.form.unpack, "weight in order again")
                    self.form = None
            lent = np.asarray(loan).view(self.dtype)  # the interface describes bfloat16 only as 2 bytes
            if (array := self._array()) is not None:
                array.storage = lent
            return lent

    def take(self, form: StoredForm, around: Callable[[], AbstractContextManager[None]]) -> bool:
        """Push the conversion of the elements into `form`, if the array is not lent. Under LOCK."""
        if self.form is not None and self.form == form:
            return True
        if self.memory.nbytes < form.nbytes or not self.is_free():
            return False
        # The form is noted with the push: an interrupt may come while a push waits for room.
        if self.form is not None:
            self._push(self.form.unpack, "weight in order again")
            self.form = None
        self._around = around
        self._push(form.pack, "weight in its kernel's order")
        self.form = form
        return True

    def is_free(self) -> bool:
        """True if only the array itself has the bytes; then it goes away. Under LOCK."""
        array = self._array()
        if array is not None:
            with suppress(AttributeError):
                del array.storage
        return self._loan() is None

    def _push(self, change: Callable[[Any, Any], None], name: str) -> None:
        memory, around = self.memory, self._around
        assert around is not None

        def run() -> None:
            with around():
                change(memory, memory)

        get_engine().push(run, (self.var,), (self.var,), name=name, kind="team")


class Kept:
    """A weight of one program: before a forward pass it makes sure that the weight is in `form`.

    point(array): makes the program's kernels read the weight in `array`.
    """

    def __init__(
        self,
        resident: Resident,
        form: StoredForm,
        around: Callable[[], AbstractContextManager[None]],
        point: Callable[[np.ndarray[Any, Any]], None],
    ) -> None:
        self.resident, self.form = resident, form
        self._around, self._point = around, point
        self._copy: np.ndarray[Any, Any] | None = None
        self._seen = -1

    @property
    def nbytes(self) -> int:
        """Bytes of a copy, while one exists."""
        return 0 if self._copy is None else self._copy.nbytes

    def ready(self) -> None:
        """Push the necessary conversion. Under LOCK."""
        resident = self.resident
        if resident.form is self.form and self._copy is None:
            return
        if resident.take(self.form, self._around):
            if self._copy is not None:
                self._push(lambda: self._point(resident.memory))
                self._copy = None  # calls that were pushed before use it until then
            return
        if self._copy is None:
            self._copy, self._seen = np.empty(self.form.nbytes, np.uint8), -1
        if self._seen != resident.var.pushes:
            self._push(partial(self._refresh, self._copy))
            self._seen = resident.var.pushes

    def _refresh(self, copy: np.ndarray[Any, Any]) -> None:
        """Runs in the engine's order: by then the weight may be away, and this copy dropped."""
        with self._around():
            self.form.pack(self.resident.memory, copy)
        self._point(copy)

    def _push(self, run: Callable[[], None]) -> None:
        var = self.resident.var
        get_engine().push(run, (var,), (var,), name="weight in its kernel's order", kind="team")


def settle(kept: Sequence[Kept]) -> None:
    """Wait for operations that hold these arrays, if any: they release them at their end."""
    with LOCK:
        busy = [k.resident for k in kept if k.resident.form is None and not k.resident.is_free()]
    for resident in busy:
        with suppress(MXLiteError):  # a failure surfaces when the weight is read
            get_engine().wait_to_write(resident.var)


def with_copies(plan: MemoryPlan, nbytes: int) -> MemoryPlan:
    """`plan` of a program that has copies of weights, `nbytes` together, on top of what was planned."""
    fixed = dict(plan.problem.fixed_bytes)
    fixed["arguments"] = fixed.get("arguments", 0) + nbytes
    schedule = replace(plan.schedule, problem=replace(plan.problem, fixed_bytes=fixed))
    return replace(plan, schedule=schedule, keep_all_peak_bytes=plan.keep_all_peak_bytes + nbytes)


def held_bytes(arrays: Sequence[NDArray]) -> int:
    """Bytes of all arrays, each memory counted once; none is converted back."""
    found: dict[int, int] = {}
    for a in arrays:
        away = getattr(a, "away", None)
        memory = a.storage if away is None else away.memory
        found[id(memory)] = memory.nbytes
    return sum(found.values())
