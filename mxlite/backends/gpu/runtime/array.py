"""Arrays in device memory: the host knows everything about them but the elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ....core.errors import DeviceError

Shape = tuple[int, ...]


class Memory(Protocol):
    """A range of bytes on a device that lives as long as an array holds it."""

    address: int
    nbytes: int
    device: Any
    since: int


class Flags(NamedTuple):
    """The subset of numpy's array flags that is used."""

    c_contiguous: bool = True
    writeable: bool = True
    aligned: bool = True


_FLAGS = Flags()


class DeviceArray:
    """Elements of one dtype in C order at `address`, inside `memory`.

    It has shape, dtype, views and reshapes as a numpy array, but no elements: to read some, ask its
    device for a copy. A view that is not in C order is refused; kernels copy such views.
    """

    __slots__ = ("__weakref__", "address", "dtype", "memory", "ndim", "shape", "size")

    def __init__(self, memory: Memory, address: int, shape: Shape, dtype: np.dtype[Any]) -> None:
        self.memory = memory
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)
        self.size = prod(shape)
        assert memory.address <= address and address + self.nbytes <= memory.address + memory.nbytes

    @property
    def device(self) -> Any:
        """The device whose memory holds it."""
        return self.memory.device

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def flags(self) -> Flags:
        return _FLAGS

    @property
    def strides(self) -> Shape:
        """In bytes, as numpy's."""
        steps, step = [], self.dtype.itemsize
        for n in reversed(self.shape):
            steps.append(step)
            step *= n
        return tuple(reversed(steps))

    @property
    def T(self) -> NoReturn:
        raise self._refusal("T")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no len().")
        return self.shape[0]

    def reshape(self, *shape: Any) -> DeviceArray:
        """The same memory with other axes; one of them may be -1."""
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
        known = tuple(int(n) for n in wanted)
        if -1 in known:
            rest = prod(n for n in known if n != -1)
            known = tuple(self.size // max(rest, 1) if n == -1 else n for n in known)
        if prod(known) != self.size:
            raise ValueError(f"cannot reshape array of size {self.size} into shape {tuple(wanted)}")
        return DeviceArray(self.memory, self.address, known, self.dtype)

    def view(self, dtype: Any) -> DeviceArray:
        """The same bytes as elements of another dtype; the last axis takes up the difference."""
        kind = np.dtype(dtype)
        if kind.itemsize == self.dtype.itemsize:
            return DeviceArray(self.memory, self.address, self.shape, kind)
        last = (self.shape[-1] if self.shape else 1) * self.dtype.itemsize
        if not self.shape or last % kind.itemsize:
            raise ValueError(f"an array of shape {self.shape} and {self.dtype} cannot be seen as {kind}.")
        return DeviceArray(self.memory, self.address, (*self.shape[:-1], last // kind.itemsize), kind)

    def __getitem__(self, key: Any) -> DeviceArray:
        """A view in C order: indices, then at most one slice of step 1, then all of the rest."""
        items = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in items:
            at = items.index(Ellipsis)
            items[at : at + 1] = [slice(None)] * (self.ndim - len(items) + 1)
        if len(items) > self.ndim:
            raise IndexError(f"too many indices for an array of {self.ndim} axes: {key!r}")
        items += [slice(None)] * (self.ndim - len(items))
        start, shape, step = 0, [], self.size
        cut = False  # true once an axis before this one is longer than 1 and not whole
        for item, n in zip(items, self.shape):
            step = step // n if n else 0
            if isinstance(item, slice):
                low, high, stride = item.indices(n)
                length = max(0, high - low) if stride == 1 else len(range(low, high, stride))
                if (stride != 1 and length > 1) or (cut and length != n):
                    raise self._refusal(f"[{key!r}]")
                shape.append(length)
                start += low * step if length else 0
                cut = cut or length > 1
            elif hasattr(item, "__index__"):
                index = item.__index__()
                if not -n <= index < n:
                    raise IndexError(f"index {index} is out of bounds for an axis of length {n}")
                if cut and n > 1:
                    raise self._refusal(f"[{key!r}]")
                start += (index + n if index < 0 else index) * step
            else:
                raise self._refusal(f"[{key!r}]")
        made = tuple(shape)
        address = self.address + (start * self.dtype.itemsize if prod(made) else 0)
        return DeviceArray(self.memory, address, made, self.dtype)

    def part(self, key: tuple[Any, ...]) -> DeviceArray | StridedView:
        """View for a key of ints, slices, None and ...; an axis may have a step, or run backwards."""
        # numpy does the arithmetic: on an array over the same addresses whose elements are never read.
        there = np.asarray(Addresses(self.address, self.shape, self.dtype.itemsize))
        found = there[key if any(item is Ellipsis for item in key) else (*key, ...)]
        start = found.__array_interface__["data"][0] if found.size else self.address
        if found.flags.c_contiguous:
            return DeviceArray(self.memory, start, found.shape, self.dtype)
        return StridedView(self.memory, start, found.shape, found.strides, self.dtype)

    def _refusal(self, what: str) -> DeviceError:
        return DeviceError(
            f"{what} of an array of shape {self.shape} on {self.device}: the host does not see a device's "
            f"elements, and parts that are not in C order are made by operators."
        )

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise self._refusal("assignment to elements")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise self._refusal("np.asarray")

    def __iter__(self) -> NoReturn:
        raise self._refusal("iteration")

    def __bool__(self) -> NoReturn:
        raise self._refusal("the truth value")

    def __dlpack__(self, *_: Any, **__: Any) -> NoReturn:
        raise self._refusal("__dlpack__")

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype} at {self.address:#x} on {self.device}>"


class StridedView(NamedTuple):
    """View of a DeviceArray that is not in C order: for `assign` and `fill`, which walk by strides."""

    memory: Memory
    address: int
    shape: Shape
    strides: Shape
    dtype: np.dtype[Any]

    @property
    def device(self) -> Any:
        return self.memory.device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def flags(self) -> Flags:
        return Flags(c_contiguous=False)


def overlap(a: DeviceArray | StridedView, b: DeviceArray | StridedView) -> bool:
    """True if the extents of both, from first to last byte, intersect."""
    (low, high), (start, stop) = extent(a), extent(b)
    return low < stop and start < high


def extent(array: DeviceArray | StridedView) -> tuple[int, int]:
    """Half-open address range of its bytes; empty if it has none."""
    if not array.size:
        return 0, 0
    ends = [(n - 1) * s for n, s in zip(array.shape, array.strides)]
    low = array.address + sum(e for e in ends if e < 0)
    return low, array.address + sum(e for e in ends if e > 0) + array.dtype.itemsize


def is_dense(array: DeviceArray | StridedView) -> bool:
    """True if its elements are contiguous in C order."""
    step = array.dtype.itemsize
    for n, s in zip(reversed(array.shape), reversed(array.strides)):
        if n != 1 and s != step and array.size:
            return False
        step *= n
    return True


class Addresses:
    """An `__array_interface__` that numpy can slice, at addresses that it never reads."""

    def __init__(self, address: int, shape: Shape, itemsize: int) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "typestr": f"|V{itemsize}",
            "version": 3,
        }
