"""Which bytes a kernel may touch: those of the arrays whose addresses it is given."""

from __future__ import annotations

import bisect
import ctypes
import weakref

import numpy as np

from mxlite.backends.gpu.runtime.device import Arguments


class Range(ctypes.Structure):
    """As in cuda_on_cpu/bounds.h: the bytes [begin, end)."""

    _fields_ = (("begin", ctypes.c_size_t), ("end", ctypes.c_size_t))


def words_of(arguments: Arguments) -> list[int]:
    """All that may be an address: pointers, and the words of structures."""
    found = []
    for value in arguments.values:
        raw = bytes(value)
        found += [int.from_bytes(raw[at : at + 8], "little") for at in range(0, len(raw) - 7, 8)]
    return [word for word in found if word >> 16]


class Extents:
    """Arrays that somebody has asked the address of, while their memory is there."""

    def __init__(self) -> None:
        self._starts: list[int] = []  # ascending
        self._noted: dict[int, list[tuple[weakref.ref[np.ndarray], int]]] = {}  # by start: whose, bytes

    def note(self, array: np.ndarray) -> int:
        """The address of an array, from now on known to be that of its bytes."""
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        start = int(array.ctypes.data)
        if start not in self._noted:
            bisect.insort(self._starts, start)
        known = [(w, n) for w, n in self._noted.get(start, ()) if w() is not None]
        if not any(w() is owner and n == array.nbytes for w, n in known):
            known.append((weakref.ref(owner), array.nbytes))
        self._noted[start] = known
        return start

    def of(self, arguments: Arguments) -> ctypes.Array[Range]:
        """The bytes of all arrays that the arguments name, by their start or a place inside of them."""
        found: dict[int, int] = {}
        for word in words_of(arguments):
            self._find(word, found)
        return (Range * len(found))(*found.items())

    def _find(self, address: int, found: dict[int, int]) -> None:
        """Those that begin at the address, else those that it lies in."""
        place = bisect.bisect_right(self._starts, address)
        while place > 0:
            place -= 1
            start = self._starts[place]
            living = [n for w, n in self._noted[start] if w() is not None]
            if not living:
                del self._starts[place], self._noted[start]
                continue
            end = start + max(living)
            if address < end or start == address:
                found[start] = max(end, found.get(start, 0))
                return
            if address - start > 2**40:
                return
