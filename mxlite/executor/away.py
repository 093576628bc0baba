"""Weights that a program for inference keeps in its kernels' order, in the bytes of the user's array.

A kernel may want its weights in an order of its own, and to reorder them takes as long as a convolution of
one image. Kept beside the user's arrays such weights would double a program's bytes. So they take the place
of the user's: the array is **away** (see `ndarray.storage`) until somebody asks for its elements. Then it is
put back in order, bit for bit, and the next forward pass takes it again.

Nothing may change order under the eyes of somebody who looks. Whoever has got at the elements holds a numpy
array, or a view of it: an operation that is pending, another program, another library. All of these keep an
object alive, the **loan**, of which only a weak reference is kept here. While the loan lives the array stays
plain, and the program has a copy in its kernels' order besides, made at its next forward pass. For so long
`Executor.memory_plan` counts the copy among the arguments. (No budget is overstepped: within one no weight
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

from ..core import forks
from ..core.errors import MXLiteError
from ..engine import get_engine
from ..memplan import MemoryPlan
from ..ndarray import NDArray

LOCK = forks.rlock()
"""Held while arrays go away or come back, and by a program from making sure of its weights until what reads
them is pushed. Nobody waits for the engine inside."""


class Form(Protocol):
    """An order of elements, which takes `nbytes`: 1-D arrays of so many bytes are carried to it and back. Two
    are equal if they are the same order.
    """

    nbytes: int

    def pack(self, source: Any, target: Any) -> None: ...

    def unpack(self, source: Any, target: Any) -> None: ...


class _Loan:
    """What everybody holds who has the bytes: numpy keeps it as the base of all views."""

    __slots__ = ("__array_interface__", "__weakref__", "memory")

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory
        self.__array_interface__ = memory.__array_interface__


class Resident:
    """An array that can go away: its memory, in bytes, and the form in which the elements are there now.

    array: zeros, made just now by ourselves: nobody else has its memory. nbytes: of the form it will have.
    """

    def __init__(self, array: NDArray, nbytes: int = 0) -> None:
        plain = array.storage
        self.shape, self.dtype = plain.shape, plain.dtype
        self.memory: np.ndarray[Any, Any] = plain.reshape(-1).view(np.uint8)
        if nbytes > plain.nbytes:
            self.memory = array.backend.empty(nbytes)
            self.memory.fill(0)
        del plain
        self.var = array.var
        self.form: Form | None = None
        self._around: Callable[[], AbstractContextManager[None]] | None = None
        self._array = weakref.ref(array)
        self._loan: Callable[[], _Loan | None] = lambda: None
        del array.storage
        array.away = self

    @property
    def plain(self) -> np.ndarray[Any, Any]:
        """The memory as the array, for who knows what is there."""
        size = prod(self.shape) * self.dtype.itemsize
        return self.memory[:size].view(self.dtype).reshape(self.shape)

    def back(self) -> np.ndarray[Any, Any]:
        """Push what puts the elements in order, and lend the array."""
        with LOCK:
            loan = self._loan()
            if loan is None:
                loan = _Loan(self.plain)
                self._loan = weakref.ref(loan)
                if self.form is not None:
                    self._push(self.form.unpack, "weight in order again")
                    self.form = None
            lent = np.asarray(loan).view(self.dtype)  # of bfloat16 the interface tells no more than 2 bytes
            if (array := self._array()) is not None:
                array.storage = lent
            return lent

    def take(self, form: Form, around: Callable[[], AbstractContextManager[None]]) -> bool:
        """Push what brings the elements into `form`, if nobody has the array. Under LOCK."""
        if self.form is not None and self.form == form:
            return True
        if self.memory.nbytes < form.nbytes or not self.is_free():
            return False
        # What is pushed is noted when it is: an interrupt may come while a push waits for room.
        if self.form is not None:
            self._push(self.form.unpack, "weight in order again")
            self.form = None
        self._around = around
        self._push(form.pack, "weight in its kernel's order")
        self.form = form
        return True

    def is_free(self) -> bool:
        """Whether nobody but the array itself has the bytes; then it is away. Under LOCK."""
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
    """A weight of one program: makes sure, before a forward pass, that it is there in `form`.

    point(array): lets the program's kernels read the weight in `array`.
    """

    def __init__(
        self,
        resident: Resident,
        form: Form,
        around: Callable[[], AbstractContextManager[None]],
        point: Callable[[np.ndarray[Any, Any]], None],
    ) -> None:
        self.resident, self.form = resident, form
        self._around, self._point = around, point
        self._copy: np.ndarray[Any, Any] | None = None
        self._seen = -1

    @property
    def nbytes(self) -> int:
        """Bytes of a copy, while there is one."""
        return 0 if self._copy is None else self._copy.nbytes

    def ready(self) -> None:
        """Push what is to be done. Under LOCK."""
        resident = self.resident
        if resident.form is self.form and self._copy is None:
            return
        if resident.take(self.form, self._around):
            if self._copy is not None:
                self._push(lambda: self._point(resident.memory))
                self._copy = None  # calls that were pushed before have it until then
            return
        if self._copy is None:
            self._copy, self._seen = np.empty(self.form.nbytes, np.uint8), -1
        if self._seen != resident.var.pushes:
            self._push(partial(self._refresh, self._copy))
            self._seen = resident.var.pushes

    def _refresh(self, copy: np.ndarray[Any, Any]) -> None:
        """Done when it is its turn: by then the weight may be away again, and this copy given up."""
        with self._around():
            self.form.pack(self.resident.memory, copy)
        self._point(copy)

    def _push(self, run: Callable[[], None]) -> None:
        var = self.resident.var
        get_engine().push(run, (var,), (var,), name="weight in its kernel's order", kind="team")


def settle(kept: Sequence[Kept]) -> None:
    """Wait for operations that have these arrays, if any: when they are over they let go of them."""
    with LOCK:
        busy = [k.resident for k in kept if k.resident.form is None and not k.resident.is_free()]
    for resident in busy:
        with suppress(MXLiteError):  # a failure surfaces where the weight is read
            get_engine().wait_to_write(resident.var)


def with_copies(plan: MemoryPlan, nbytes: int) -> MemoryPlan:
    """`plan` of a program that has copies of weights, `nbytes` together, on top of what was planned."""
    fixed = dict(plan.problem.fixed_bytes)
    fixed["arguments"] = fixed.get("arguments", 0) + nbytes
    schedule = replace(plan.schedule, problem=replace(plan.problem, fixed_bytes=fixed))
    return replace(plan, schedule=schedule, keep_all_peak_bytes=plan.keep_all_peak_bytes + nbytes)


def held_bytes(arrays: Sequence[NDArray]) -> int:
    """Bytes of all arrays, each memory counted once; none is brought back."""
    found: dict[int, int] = {}
    for a in arrays:
        away = getattr(a, "away", None)
        memory = a.storage if away is None else away.memory
        found[id(memory)] = memory.nbytes
    return sum(found.values())
