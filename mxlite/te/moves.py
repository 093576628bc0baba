"""Moves: the computation of an operator that only moves elements, as copies and fills between strided views.

Such an operator declares its moves by its reference kernel, in numpy's views and copies between them,
`xp.copyto(out, data[...])`. Run on `Sheet`s, which can be sliced, transposed and broadcast like numpy's
arrays but hold nothing, the kernel leaves a list of moves, which a backend performs in code of its own.
Anything else that it uses (a sum, a number, scratch) raises, and then the operator does more than move.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..graph.ir import Shape
from ..graph.opdef import DType

BLANK = np.zeros(1, np.int8)  # of one byte, so that strides count elements; no element is read or written

REFUSALS = (AttributeError, TypeError, ValueError, NotImplementedError, IndexError)
"""Exceptions of a kernel run on sheets that does more than views, copies and fills."""


class Move(NamedTuple):
    """Elements of `source`, or the bytes `value` of one element, into `target`."""

    target: Sheet
    source: Sheet | None
    value: bytes = b""


class Sheet:
    """A view of the array `of`: shape, strides and offset in elements."""

    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, of: Any, dtype: DType, view: Any, base: int, log: list[Move]) -> None:
        self.of, self.dtype, self._view, self._base, self._log = of, dtype, view, base, log

    @classmethod
    def whole(cls, of: Any, shape: Shape, dtype: DType, log: list[Move]) -> Sheet:
        """All of an array in C order, which is named `of`."""
        strides = [1] * len(shape)
        for i in range(len(shape) - 1, 0, -1):
            strides[i - 1] = strides[i] * max(1, shape[i])
        view = np.lib.stride_tricks.as_strided(BLANK, shape, strides)
        return cls(of, np.dtype(dtype), view, BLANK.ctypes.data, log)

    def _like(self, view: Any) -> Sheet:
        return Sheet(self.of, self.dtype, view, self._base, self._log)

    shape = property(lambda self: self._view.shape)
    strides = property(lambda self: self._view.strides)
    ndim = property(lambda self: self._view.ndim)
    size = property(lambda self: self._view.size)

    @property
    def offset(self) -> int:
        """Offset of the first element."""
        return int(self._view.__array_interface__["data"][0]) - self._base if self.size else 0

    def __len__(self) -> int:
        return len(self._view)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a sheet has no numbers")

    __bool__ = __int__ = __float__ = __index__ = __iter__ = __array__

    def __getitem__(self, key: Any) -> Sheet:
        for k in key if isinstance(key, tuple) else (key,):
            if not (k is None or k is Ellipsis or isinstance(k, (slice, int, np.integer))):
                raise TypeError("a sheet is indexed by slices and whole numbers")
        if not isinstance(key, tuple):
            key = (key,)
        return self._like(self._view[key if Ellipsis in key else (*key, ...)])

    def __setitem__(self, key: Any, value: Any) -> None:
        part = self[key]
        copyto(part, value) if isinstance(value, Sheet) else part.fill(value)

    def fill(self, value: Any) -> None:
        if isinstance(value, Sheet) or np.ndim(value):
            raise TypeError("only a number fills a sheet")
        one = np.empty(1, self.dtype)
        with np.errstate(all="ignore"):
            one.fill(value)
        self._log.append(Move(self, None, one.tobytes()))

    def transpose(self, *axes: Any) -> Sheet:
        return self._like(self._view.transpose(*axes))

    def swapaxes(self, i: int, j: int) -> Sheet:
        return self._like(self._view.swapaxes(i, j))

    def reshape(self, *shape: Any) -> Sheet:
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return self._like(_reshaped(self._view, wanted))

    @property
    def T(self) -> Sheet:
        return self.transpose()


def _reshaped(view: Any, shape: Shape) -> Any:
    """A view of another shape. Raises ValueError if that takes a copy."""
    known = prod(d for d in shape if d != -1)
    wanted = tuple(view.size // known if d == -1 else d for d in shape)
    if prod(wanted) != view.size:
        raise ValueError(f"{view.shape} does not fit {shape}")
    strides = [1] * len(wanted)
    rest = [i for i, d in enumerate(wanted) if d != 1]
    for length, stride in _runs(view) if view.size else ():
        while length > 1:
            axis = rest.pop(0)
            if length % wanted[axis]:
                raise ValueError("only a copy has this shape")
            length //= wanted[axis]
            strides[axis] = stride * length
    return np.lib.stride_tricks.as_strided(view, wanted, strides)


def _runs(view: Any) -> list[tuple[int, int]]:
    """(length, stride) of as few axes as hold the same elements in the same order."""
    found: list[tuple[int, int]] = []
    for n, s in zip(view.shape, view.strides):
        if n == 1:
            continue
        if found and found[-1][1] == n * s:
            found[-1] = (found[-1][0] * n, s)
        else:
            found.append((n, s))
    return found


def copyto(target: Sheet, source: Any, casting: str = "same_kind") -> None:
    """Record a copy. Types must be equal: nothing is converted here."""
    if not isinstance(source, Sheet):
        target.fill(source)
        return
    if source.dtype != target.dtype:
        raise TypeError("a copy that converts is a computation")
    spread = np.broadcast_to(source._view, target.shape)
    target._log.append(Move(target, source._like(spread)))


def flip(x: Sheet, axis: Any = None) -> Sheet:
    return x._like(np.flip(x._view, axis))


def moveaxis(x: Sheet, source: Any, destination: Any) -> Sheet:
    return x._like(np.moveaxis(x._view, source, destination))


def as_strided(x: Sheet, shape: Shape, strides: Shape) -> Sheet:
    return x._like(np.lib.stride_tricks.as_strided(x._view, shape, strides))


def never(x: Any, y: Any) -> bool:
    """Assume that arrays share no memory. A copy onto itself is removed when its addresses are known."""
    return False


Axis = tuple[int, int, int]  # length, stride in the target, stride in the source


def axes_of(target: Sheet, source: Sheet | None) -> list[Axis]:
    """The fewest axes of a copy, ordered as in the target; strides in elements, 0 without a source."""
    strides = source.strides if source is not None else (0,) * target.ndim
    listed = [(n, t, s) for n, t, s in zip(target.shape, target.strides, strides) if n != 1]
    listed.sort(key=lambda axis: (-abs(axis[1]), -abs(axis[2])))
    merged: list[Axis] = []
    for n, t, s in listed:
        if merged and merged[-1][1] == n * t and merged[-1][2] == n * s:
            merged[-1] = (merged[-1][0] * n, t, s)
        else:
            merged.append((n, t, s))
    return merged or [(1, 1, 1)]


class _Module:
    """Stand-in for numpy, with aliases of its functions."""

    copyto = staticmethod(copyto)
    flip = staticmethod(flip)
    moveaxis = staticmethod(moveaxis)
    as_strided = staticmethod(as_strided)
    may_share_memory = staticmethod(never)
    shares_memory = staticmethod(never)


XP: Any = _Module()
XP.lib = XP.stride_tricks = XP


def traced(run: Callable[[Any], None], log: list[Move]) -> list[Move] | None:
    """Moves of `run(xp)`, whose arrays are sheets with this `log`; None if it does more than move."""
    try:
        run(XP)
    except REFUSALS:
        return None
    return log
