"""The parts of an NDArray: an engine Var, and the memory whose use it orders."""

from __future__ import annotations

from typing import Any, Protocol, Self, TYPE_CHECKING

import numpy as np

from ...backends import Backend, backend_of
from ...core import as_dtype, Context, current_context, ShapeError
from ...core.device import cpu, gpu
from ...engine import get_engine, Var

if TYPE_CHECKING:
    from ..gradients.tape import Origin

Shape = tuple[int, ...]
RawArray = np.ndarray[Any, np.dtype[Any]]

_CPU = cpu()


class Away(Protocol):
    """A handle on the elements of an array that is away."""

    shape: Shape
    dtype: np.dtype[Any]
    is_computed: bool  # by what it takes to bring the elements back

    def back(self) -> RawArray:
        """Push the copy that brings the elements back, and return the bare array."""


class Storage:
    """A C-ordered array, its Var and its device.

    `storage` is the bare array: read it only after a wait, or inside an operation whose push names
    `var`. On a GPU it is a DeviceArray, whose elements the host cannot read; operations on elements other
    than kernels are methods of `backend`.

    A view has the Var of its base, so that uses of either are ordered. A write through a view leaves
    the rest of the Var's memory as it was; `partial` says that, so that it counts as a read too and does not
    declare a poisoned rest healthy. `origin` is its origin on the tape (`tape.py`).

    An array may be **away**: its elements are stored in another layout, or are not computed yet, and
    `storage` has no value until it is read. `away` brings them back then, so no other code needs to know.
    Read `storage` before you wait.
    """

    away: Away
    __slots__ = ("__weakref__", "away", "context", "origin", "partial", "storage", "var")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The value of a missing attribute: `storage` of an array that is away; others do not exist."""
            if name == "storage" and (away := getattr(self, "away", None)) is not None:
                return away.back()
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __init__(
        self,
        storage: RawArray | None,
        ctx: Context | None = None,
        var: Var | None = None,
        partial: bool = False,
    ) -> None:
        if storage is None:  # in MXNet's pickles, before __setstate__
            storage = np.empty(0, np.float32)
        if not storage.flags.c_contiguous:
            raise ShapeError(f"an NDArray is C-ordered; got strides {storage.strides} for {storage.shape}.")
        self.storage = storage
        self.context = ctx or context_of(storage)
        self.var = var or Var()
        self.partial = partial
        self.origin: Origin | None = None

    @classmethod
    def fresh(cls, shape: Shape, dtype: np.dtype[Any], ctx: Context) -> Self:
        """A new aligned array that holds garbage."""
        self = cls.__new__(cls)
        self.storage = backend_of(ctx).array(shape, dtype)
        self.context = ctx
        self.var = Var()
        self.partial = False
        self.origin = None
        return self

    @classmethod
    def adopt(cls, storage: RawArray, ctx: Context) -> Self:
        """A new array around C-ordered memory that nothing else uses."""
        self = cls.__new__(cls)
        self.storage = storage
        self.context = ctx
        self.var = Var()
        self.partial = False
        self.origin = None
        return self

    def alias(self, storage: RawArray) -> Self:
        """A view: C-ordered memory inside this array's."""
        view = type(self).__new__(type(self))
        view.storage = storage
        view.context = self.context
        view.var = self.var
        view.partial = self.partial or storage.size < self.storage.size
        view.origin = None
        return view

    @property
    def stype(self) -> str:
        """The storage type: 'default', which is dense; see `sparse_array.py` for the others."""
        return "default"

    def plain(self) -> Any:
        """The array itself; for a sparse one a dense copy, also on the tape."""
        return self

    @property
    def backend(self) -> Backend:
        """The backend of its device."""
        return backend_of(self.context)

    def wait_to_read(self) -> None:
        """Wait until all pushed writes of this array are over.

        Raises OperatorError if its value comes from an operation that failed, and DeviceError if the device
        has failed since.
        """
        if getattr(getattr(self, "away", None), "is_computed", False):
            self.away.back()
        get_engine().wait_for(self.var)
        if self.var.fence:
            self.backend.settle(self.var)

    def wait_to_write(self) -> None:
        """Wait until all pushed reads of this array are over, too."""
        get_engine().wait_to_write(self.var)
        if self.var.fence:
            self.backend.settle(self.var)

    def look(self) -> RawArray:
        """A numpy array with the values, perhaps the array itself: to be read at once. Waits."""
        storage = self.storage
        get_engine().wait_for(self.var)
        return self.backend.look(storage, self.var)


_bare = Storage.__dict__["storage"].__get__
"""The bare array of a Storage; AttributeError if it is away."""


def is_away(array: Storage) -> bool:
    """True if the elements of an array are not there until they are read."""
    try:
        _bare(array)
    except AttributeError:
        return True
    return False


def form_of(array: Storage) -> tuple[Shape, np.dtype[Any]]:
    """Shape and dtype, without bringing the elements back."""
    try:
        storage: RawArray = _bare(array)
    except AttributeError:
        away: Away = array.away
        return away.shape, away.dtype
    return storage.shape, storage.dtype


def context_of(storage: RawArray, like: Context = _CPU) -> Context:
    """The device of a bare array; `like` if that names the same memory."""
    place: Any = storage.device
    if place == "cpu":
        return like if like.device_type != "gpu" else _CPU
    return gpu(place.index)


def check_shape(shape: Any) -> Shape:
    """A shape from an int or ints; ShapeError for anything else, and for a negative axis."""
    if isinstance(shape, (int, np.integer)) and not isinstance(shape, bool):
        shape = (shape,)
    try:
        dims = tuple(int(d.__index__()) for d in shape)
    except (TypeError, AttributeError):
        raise ShapeError(f"a shape is an int or a tuple of ints, got {shape!r}.") from None
    if any(d < 0 for d in dims):
        raise ShapeError(f"a shape has no negative axes, got {dims}.")
    return dims


def target(ctx: Context | None, dtype: Any) -> tuple[Context, np.dtype[Any]]:
    """Device and dtype of a new array; None means the current device, and float32."""
    return ctx or current_context(), as_dtype(dtype)
