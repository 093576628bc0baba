"""NDArray: an array whose operations run later.

Each method pushes its work to the engine and returns at once. Shapes, dtypes and parameters are checked
before, at the call; an error of the running operation surfaces when the values are read: `asnumpy`,
`asscalar`, `print`, `bool`, `float`, `int`, `np.asarray`, `wait_to_read`. Those wait, nothing else does.

    b = a + 1          pushed: reads a, writes b
    c = a[2:4]         no work: c is a view, with the Var of a
    c[:] = 0           pushed: writes the Var of a, so it comes after the line above and before
    a.asnumpy()        which waits for it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Self

import numpy as np

from ..core import as_dtype, bfloat16, Context, ShapeError
from ..core.errors import ArgumentError, DTypeError, RangeError
from ..core.supplied import Supplied
from ..core.wanted import wanted
from ..engine import get_engine
from .calls.invoke import call_of, note_copy, note_view
from .gradients.attachment import Attachment
from .gradients.tape import MODE
from .indexing import get_item, set_item
from .memory.capsule import to_dlpack_for_read, to_dlpack_for_write
from .memory.storage import form_of, RawArray, Shape, Storage
from .memory.transfer import push_copy, put
from .operators.arithmetic import Arithmetic
from .operators.methods import Methods

load_raw: Supplied[Callable[[bytes | bytearray], RawArray]] = Supplied()
"""The elements of the array in one of MXNet's pickles, see `files/persistence.py`."""

py_slice = slice  # MXNet's name of Python's slice, which the operator `slice` hides there


class NDArray(Arithmetic, Methods, Attachment):
    """Elements of one dtype in C order, on one device. Made by `mx.nd.array`, ... and by operators."""

    __slots__ = ()
    __array_priority__ = 1000.0

    # -- properties --------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""
        return form_of(self)[0]

    @property
    def dtype(self) -> type[Any]:
        """The numpy type of the elements, as `numpy.float32`."""
        return form_of(self)[1].type

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(form_of(self)[0])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(form_of(self)[0])

    @property
    def ctx(self) -> Context:
        """The device; `context` is the same."""
        return self.context

    def __len__(self) -> int:
        if not self.storage.ndim:
            raise ArgumentError("an array without axes has no len().")
        return len(self.storage)

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))  # type: ignore[misc]

    # -- values: these wait ----------------------------------------------------------------------------

    def asnumpy(self) -> RawArray:
        """A numpy array with the values, copied. Waits. Raises OperatorError if they cannot be computed."""
        storage = self.storage
        get_engine().wait_for(self.var)
        return self.backend.to_host(storage, self.var)

    def asscalar(self) -> Any:
        """The only element, as a numpy scalar. Waits. Raises ShapeError if there is more than one."""
        if self.storage.size != 1:
            raise ShapeError(
                f"an array of shape {self.shape} is not a scalar; asnumpy() gives all its elements."
            )
        return self.look().reshape(-1)[0]

    def item(self) -> Any:
        """The only element, as a Python number. Waits."""
        return self.asscalar().item()

    def tolist(self) -> Any:
        """Nested lists of Python numbers. Waits."""
        return self.asnumpy().tolist()

    def __bool__(self) -> bool:
        if self.storage.size > 1:
            raise ShapeError(
                f"the truth value of an array of shape {self.shape} is ambiguous; reduce it first."
            )
        return bool(self.storage.size and self.asscalar())

    def __float__(self) -> float:
        return float(self.asscalar())

    def __int__(self) -> int:
        return int(self.asscalar())

    def __index__(self) -> int:
        if self.storage.dtype.kind not in "iu":
            raise DTypeError(f"only an array of integers can be an index, this one is {self.storage.dtype}.")
        return int(self.asscalar())

    def __repr__(self) -> str:
        dims = "x".join(map(str, self.shape))
        return f"\n{self.asnumpy()}\n<{type(self).__name__} {dims} @{self.context}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> RawArray:
        """A copy for `np.asarray`, since the memory may be written later."""
        if copy is False:
            raise RangeError("an NDArray gives numpy a copy; use np.from_dlpack(a) to share its memory.")
        values = self.asnumpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Share the memory with another library. Waits for all pending reads and writes.

        Afterwards both sides see each other's writes; the engine knows nothing of the other's. On a GPU it is
        `stream`, the other library's stream, that waits.
        """
        storage = self.storage
        get_engine().wait_to_write(self.var)
        return self.backend.dlpack(
            storage, self.var, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.backend.dlpack_device(self.storage)

    def to_dlpack_for_read(self) -> Any:
        """`mx.nd.to_dlpack_for_read` of this array."""
        return to_dlpack_for_read(self)

    def to_dlpack_for_write(self) -> Any:
        """`mx.nd.to_dlpack_for_write` of this array."""
        return to_dlpack_for_write(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The protocol (version 3) by which libraries share a GPU's memory; waits as `__dlpack__`."""
        backend: Any = self.backend
        if not backend.is_remote or self.storage.dtype == bfloat16:
            raise AttributeError(f"an array of {self.storage.dtype} on {self.context} has no CUDA interface.")
        get_engine().wait_to_write(self.var)
        backend.show(self.storage, self.var, -1)
        return {
            "shape": self.storage.shape,
            "typestr": self.storage.dtype.str,
            "data": (backend.address(self.storage) if self.size else 0, False),
            "version": 3,
            "strides": None,
            "stream": backend.device.compute,
        }

    # -- copies ----------------------------------------------------------------------------------------

    def copy(self) -> Self:
        """A new array with the same values, on the same device."""
        return self.copyto(self.context)

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def copyto(self, other: Any) -> Any:
        """Write the values into the NDArray `other`, or into a new array on the Context `other`; return it.

        Converts the dtype. Raises ShapeError unless the shapes are equal.
        """
        if isinstance(other, Context):
            other = self.fresh(self.storage.shape, self.storage.dtype, other)
        elif not isinstance(other, NDArray):
            raise ArgumentError(f"copyto needs an NDArray or a Context, got {type(other).__name__}.")
        if other.shape != self.shape:
            raise ShapeError(f"copyto needs equal shapes, got {self.shape} and {other.shape}.")
        if other.stype != "default":
            other.take_over(self)
        elif other is not self:
            self._copy_into(other, "copyto")
        return other

    def _copy_into(self, other: Storage, name: str) -> None:
        if MODE.flags and note_copy(self, other, name):
            return
        push_copy(self, other, name=name)

    def astype(self, dtype: Any, copy: bool = True) -> Self:
        """Elements converted to `dtype`; the array itself if nothing changes and `copy` is False."""
        wanted = as_dtype(dtype)
        if wanted == self.storage.dtype and not copy:
            return self
        result = self.fresh(self.storage.shape, wanted, self.context)
        self._copy_into(result, "astype")
        return result

    def as_in_context(self, context: Context) -> Self:
        """The array itself if it is on `context`, else a copy there."""
        return self if context == self.context else self.copyto(context)

    as_in_ctx = as_in_context

    def detach(self) -> Self:
        """The same memory under another handle, to which no gradient flows."""
        return self.alias(self.storage)

    # -- views -----------------------------------------------------------------------------------------

    def reshape(self, *shape: Any, reverse: bool = False, **keyword: Any) -> Self:
        """The same memory with other axes.

        `shape`: ints, or one tuple, or `shape=`. 0 keeps an axis, -1 is inferred, -2 all remaining axes,
        -3 two axes joined, -4 one axis split into the next two numbers. `reverse` matches from the
        right. Raises ShapeError if the number of elements would change.
        """
        if "shape" in keyword and not shape:
            shape = (keyword.pop("shape"),)
        if keyword or not shape:
            raise ArgumentError(f"reshape takes a shape and reverse, got {sorted(keyword) or 'nothing'}.")
        lengths: Any = shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape
        wanted("reshape: shape", lengths, "whole numbers", has=("__iter__",))
        call = call_of("Reshape", {"shape": tuple(lengths), "reverse": reverse})
        try:
            _, (new_shape,) = call.op.infer_shape(call.attrs, self.storage.shape)
        except ShapeError as error:
            raise ShapeError(f"reshape: {error}") from None
        view = self.alias(self.storage.reshape(new_shape))
        if MODE.flags:
            note_view(call, self, view)
        return view

    def reshape_like(
        self,
        rhs: NDArray,
        lhs_begin: int | None = None,
        lhs_end: int | None = None,
        rhs_begin: int | None = None,
        rhs_end: int | None = None,
    ) -> Self:
        """The same memory with the axes of `rhs`, or with those of a range in place of a range of its own, as
        the operator `reshape_like` has it.
        """
        ranges = dict(lhs_begin=lhs_begin, lhs_end=lhs_end, rhs_begin=rhs_begin, rhs_end=rhs_end)
        call = call_of("reshape_like", ranges)
        try:
            _, (shape,) = call.op.infer_shape(call.attrs, self.shape, rhs.shape)
        except ShapeError as error:
            raise ShapeError(f"reshape_like: cannot reshape {self.shape} like {rhs.shape}: {error}") from None
        view = self.alias(self.storage.reshape(shape))
        if MODE.flags:
            note_view(call_of("_reshape_to", {"shape": shape}), self, view)
        return view

    __getitem__ = get_item
    __setitem__ = set_item

    # -- pickle ----------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        return _restore, (self.asnumpy(), self.context.device_type, self.context.device_id)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the array of one of MXNet's pickles, whose state is {'handle': its bytes}; on cpu(0).

        Raises FormatError where these are not those of a dense array.
        """
        handle = wanted("NDArray.__setstate__: state", state, "a dict", dict).get("handle")
        if handle is not None:
            wanted("NDArray.__setstate__: handle", handle, "bytes", bytes, bytearray)
            Storage.__init__(self, load_raw.call(handle))


def _restore(values: RawArray, device_type: str, device_id: int) -> NDArray:
    array = NDArray.fresh(values.shape, values.dtype, Context(device_type, device_id))
    put(values, array, name="unpickle")
    return array
