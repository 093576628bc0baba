"""Guard bytes: memory with a pattern before and after it, so that a write outside is detected later.

    | pattern | memory that was asked for | pattern |

A debugging mode, MXLITE_GUARD=1. The pattern lies beside what is planned and is no part of it: it is the
one memory that a plan does not count. New memory is filled with NaN (0xFF in every byte: NaN in each floating
type), so that a kernel which reads unwritten memory, or leaves a piece unwritten, shows it in the result.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...core import config

WIDTH = 64  # bytes of pattern on each side; with it an aligned block stays aligned
PATTERN = bytes((0xA5, 0x5A, 0xC3, 0x3C)) * (WIDTH // 4)
on = config.guard()


class Guarded(np.ndarray):
    """A block of bytes with `inside` = [start, stop) for use and the pattern around it."""

    inside: tuple[int, int]


class Fence:
    """The pattern around `memory`, which is bytes [start, stop) of `block`, called `name`."""

    __slots__ = ("_after", "_before", "name", "nbytes")

    def __init__(self, block: Any, start: int, stop: int, name: str) -> None:
        self.name = name
        self.nbytes = stop - start
        self._before = block[start - WIDTH : start]
        # Up to the next aligned byte and WIDTH from there: the padding is included.
        self._after = block[stop : stop + -stop % WIDTH + WIDTH]

    def put_up(self) -> None:
        """Write the pattern."""
        for part in (self._before, self._after):
            self._write(part, _pattern(len(part)))

    def broken_at(self) -> tuple[int, int] | None:
        """The first changed byte and their number; [0, nbytes) is the memory itself, so -4 are the four bytes
        before it. None if all are intact.
        """
        for part, start in ((self._before, -WIDTH), (self._after, self.nbytes)):
            wanted, found = _pattern(len(part)), self._read(part)
            if found.tobytes() != wanted.tobytes():
                changed = np.flatnonzero(found != wanted)
                return start + int(changed[0]), len(changed)
        return None

    def _write(self, part: Any, pattern: np.ndarray) -> None:
        part[...] = pattern

    def _read(self, part: Any) -> np.ndarray:
        found: np.ndarray = part
        return found


@functools.cache
def _pattern(nbytes: int) -> np.ndarray:
    return np.frombuffer((PATTERN * (nbytes // WIDTH + 1))[:nbytes], np.uint8)


def guarded(nbytes: int, align: int) -> Any:
    """A 1-D uint8 array of `nbytes`, aligned, inside a pattern. Raises MemoryError."""
    block = np.ndarray.__new__(Guarded, nbytes + align + 3 * WIDTH, np.uint8)
    start = WIDTH + -(block.ctypes.data + WIDTH) % align
    block.inside = (start, start + nbytes)
    Fence(block.view(np.ndarray), start, start + nbytes, "").put_up()
    return block[start : start + nbytes].view(np.ndarray)


def fence_of(array: Any, name: str) -> Fence | None:
    """The fence of the memory that a numpy array lies in; None if it has none, like memory of the user."""
    base = array
    while base is not None and not (isinstance(base, Guarded) and hasattr(base, "inside")):
        base = getattr(base, "base", None)
    if base is None:
        return None
    return Fence(base.view(np.ndarray), *base.inside, name)


def forget(memory: Any) -> None:
    """Fill with NaN, whatever the type."""
    memory.reshape(-1).view(np.uint8)[...] = 0xFF
