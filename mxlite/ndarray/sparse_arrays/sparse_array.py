"""CSRNDArray and RowSparseNDArray: arrays that store only some of their elements.

The number of stored elements follows from values, so no operation can be pushed before it is known: **an
operation on a sparse array waits for its inputs and is done at once**, by numpy on the CPU. An operator that
keeps the storage type (`sparse_operators.py`) works on the stored elements; any other gets dense arrays with
the zeros written out, as in MXNet. A dense operator that reads a sparse array is an operation like any other,
pushed and run later.

`storage` of such an array is its Form, which no dense kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np

from ...core import as_dtype, Context, cpu, DeviceError, OpAttributeError, ShapeError
from ...core.errors import ArgumentError, IndexingError, PlaceError
from ...core.supplied import Supplied
from ...core.wanted import found
from ...engine import Var
from ..calls.invoke import call_of, invoke
from ..calls.plan import Call
from ..gradients.tape import MODE, origin_of
from ..memory.storage import Storage
from ..memory.transfer import push_on, put
from ..ndarray import NDArray
from ..operators.creation import array
from .sparse_form import Array, csr_of, CSRForm, empty_form, index_type, row_sparse_of, SparseForm

run_operator: Supplied[Callable[[Call, Any, Any], Any]] = Supplied()
"""Applies an operator to arrays some of which are sparse, see `sparse_operators.py`."""


class BaseSparseNDArray(NDArray):
    """Base of both kinds of sparse arrays."""

    __slots__ = ()
    storage: Any

    @classmethod
    def of(cls, form: SparseForm, ctx: Context | None = None) -> Self:
        """An array with this form."""
        if ctx is not None and ctx.device_type == "gpu":
            raise DeviceError(
                f"Sparse arrays are on the CPU, not on {ctx}; tostype('default') makes a dense one."
            )
        self = cls.__new__(cls)
        self.storage = form
        self.context = ctx or cpu()
        self.var = Var()
        self.partial = False
        self.origin = None
        return self

    @property
    def form(self) -> Any:
        """The stored elements and their indices, as numpy arrays that are never changed."""
        return self.storage

    @property
    def stype(self) -> str:
        """'csr' or 'row_sparse'."""
        return str(self.form.stype)

    @property
    def _num_aux(self) -> int:
        """The number of index arrays: 2 for csr, 1 for row_sparse."""
        return 2 if self.stype == "csr" else 1

    @property
    def data(self) -> NDArray:
        """The stored elements, copied."""
        return dense_array(self.form.data)

    @property
    def indices(self) -> NDArray:
        """Columns of the stored elements, or numbers of the stored rows; int64, copied."""
        return dense_array(self.form.indices)

    def check_format(self, full_check: bool = True) -> None:
        """Raise FormatError if indices are out of range or not ascending. Without `full_check` in O(1)."""
        self.form.check(full_check)
        if full_check:
            self.form.check_order()

    # -- dense copies ------------------------------------------------------------------------------------

    def plain(self) -> Any:
        dense = dense_array(self.form.dense(), self.context)
        dense.origin = origin_of(self)
        return dense

    def tostype(self, stype: str) -> NDArray:
        """A copy with another storage type: 'default', or this one's own."""
        if stype == self.stype:
            return self.copy()
        if stype != "default":
            raise OpAttributeError(
                f"A {self.stype} array becomes 'default' or {self.stype!r}, got {stype!r}."
            )
        return self.plain()

    def asnumpy(self) -> Array:
        dense: Array = self.form.dense()
        return dense

    look = asnumpy

    def asscalar(self) -> Any:
        return self.plain().asscalar()

    def __bool__(self) -> bool:
        return bool(self.plain())

    def __repr__(self) -> str:
        dims = "x".join(map(str, self.shape))
        return f"\n<{type(self).__name__} {dims} @{self.context}>"

    # -- copies ------------------------------------------------------------------------------------------

    def copyto(self, other: Any) -> Any:
        """Write the values into `other`, sparse or dense, or into a new array on a Context; return it."""
        if isinstance(other, Context):
            if other.device_type == "gpu":
                raise DeviceError(f"Sparse arrays are on the CPU; plain arrays can be copied to {other}.")
            copied = sparse_array(self.form, other)
            copied.origin = origin_of(self)
            return copied
        if not isinstance(other, NDArray):
            raise ArgumentError(f"copyto needs an NDArray or a Context, got {type(other).__name__}.")
        if other.shape != self.shape:
            raise ShapeError(f"copyto needs equal shapes, got {self.shape} and {other.shape}.")
        if isinstance(other, BaseSparseNDArray):
            other.take_over(self)
        elif MODE.flags or other.backend.is_remote:
            self.plain().copyto(other)
        else:  # the input of a step is written directly, without a dense copy
            run = partial(self.form.write_to, other.storage)
            push_on(other.backend, run, (other.var,) * other.partial, (other.var,), name="copyto")
        return other

    def take_over(self, source: NDArray) -> None:
        """Take over the values of `source`, converted."""
        mine = self.form
        if isinstance(source, BaseSparseNDArray) and source.stype == self.stype:
            form = source.form
        else:
            form = form_of_dense(self.stype, source.look())
        self.storage = form.like(form.data.astype(mine.dtype, copy=False))

    def astype(self, dtype: Any, copy: bool = True) -> Self:
        kind = as_dtype(dtype)
        if kind == self.form.dtype and not copy:
            return self
        return sparse_array(self.form.like(self.form.data.astype(kind)), self.context)  # type: ignore[return-value]

    def as_in_context(self, context: Context) -> Self:
        return self if context == self.context else self.copyto(context)

    as_in_ctx = as_in_context

    def detach(self) -> Self:
        return sparse_array(self.form, self.context)  # type: ignore[return-value]

    def __reduce__(self) -> Any:
        return sparse_array, (self.form,)

    def reshape(self, *shape: Any, reverse: bool = False, **keyword: Any) -> Self:
        raise OpAttributeError(
            f"A {self.stype} array cannot be reshaped; tostype('default') makes a dense one."
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        """`a[:] = value`, an array of this shape; nothing else can be assigned."""
        if not isinstance(key, slice) or key != slice(None):
            raise IndexingError(f"A {self.stype} array takes a[:] = value, nothing for a part of it.")
        if isinstance(value, (int, float)) and value == 0:
            self.storage = empty_form(self.stype, self.shape, self.form.dtype)
            return
        if isinstance(value, (int, float)):
            value = np.full(self.shape, value, self.form.dtype)
        if not isinstance(value, NDArray):
            value = array(value, dtype=self.form.dtype)
        value.copyto(self)

    # -- operators ---------------------------------------------------------------------------------------

    @staticmethod
    def call(call: Call, inputs: Any, out: Any) -> Any:
        """Apply the operator to arrays some of which are sparse."""
        return run_operator.call(call, inputs, out)

    def __add__(self, other: Any) -> NDArray:
        return combined("add", self, other)

    def __sub__(self, other: Any) -> NDArray:
        return combined("sub", self, other)

    def __mul__(self, other: Any) -> NDArray:
        return combined("mul", self, other)

    def __truediv__(self, other: Any) -> NDArray:
        return combined("div", self, other)

    def __iadd__(self, other: Any) -> Self:
        return (self + other).copyto(self)

    def __isub__(self, other: Any) -> Self:
        return (self - other).copyto(self)

    def __imul__(self, other: Any) -> Self:
        return (self * other).copyto(self)

    def __itruediv__(self, other: Any) -> Self:
        return (self / other).copyto(self)


class CSRNDArray(BaseSparseNDArray):
    """A matrix stored by rows: the elements of each row that are not 0, and their columns."""

    __slots__ = ()

    @property
    def indptr(self) -> NDArray:
        """Offset of each row in `data`, and the end of the last; int64, copied."""
        return dense_array(self.form.indptr)

    def __getitem__(self, key: Any) -> Any:
        """`a[i]` and `a[i:j]`: rows, as a csr array."""
        count = self.shape[0]
        if isinstance(key, (int, np.integer)):
            if not -count <= key < count:
                raise PlaceError(f"index {key} is out of range for axis 0 of length {count}.")
            begin, end = int(key) % count, int(key) % count + 1
        elif isinstance(key, slice) and key.step in (None, 1):
            begin, end, _ = key.indices(count)
        else:
            raise IndexingError("A csr array takes one row or a slice of rows without a step.")
        if key == slice(None):
            return self
        if end <= begin:
            raise IndexingError(f"rows [{begin}, {end}) of a csr array are none.")
        return CSRNDArray.of(self.form.part((begin, end), (0, self.shape[1])), self.context)

    def asscipy(self) -> Any:
        """A `scipy.sparse.csr_matrix` with the values. Needs scipy."""
        from scipy import sparse  # type: ignore[import-untyped, import-not-found, unused-ignore]

        form = self.form
        return sparse.csr_matrix((form.data.copy(), form.indices.copy(), form.indptr.copy()), self.shape)


class RowSparseNDArray(BaseSparseNDArray):
    """An array stored by rows along its first axis: the rows that are not 0, and their numbers."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        """`a[:]` alone: the array itself."""
        if isinstance(key, slice) and key == slice(None):
            return self
        raise IndexingError("A row_sparse array takes a[:] alone; retain(rows) gives some of its rows.")

    def retain(self, indices: NDArray) -> RowSparseNDArray:
        """The rows with these numbers alone, as a new array."""
        return retain(self, indices)


def combined(what: str, lhs: Any, rhs: Any) -> NDArray:
    """Sum, difference, ...: of two arrays of one shape, of two that broadcast, or with a number."""
    if isinstance(rhs, Storage) and isinstance(lhs, Storage):
        name = f"elemwise_{what}" if lhs.storage.shape == rhs.storage.shape else f"broadcast_{what}"
        result: NDArray = invoke(call_of(name, {}), (lhs, rhs))
        return result
    if isinstance(lhs, Storage):
        dense: NDArray = getattr(NDArray, f"__{'truediv' if what == 'div' else what}__")(lhs, rhs)
        return dense
    reflected: NDArray = getattr(NDArray, f"__r{'truediv' if what == 'div' else what}__")(rhs, lhs)
    return reflected


def retain(data: RowSparseNDArray, indices: Any = None, out: Any = None, **left: Any) -> RowSparseNDArray:
    """The rows of `data` with these numbers; the others become 0."""
    if left:
        raise ArgumentError(f"retain takes no {next(iter(left))!r}.")
    if indices is None:
        raise ArgumentError("retain needs indices, the numbers of the rows that stay.")
    if not isinstance(data, RowSparseNDArray):
        raise OpAttributeError(f"retain needs a row_sparse array, got {found(data)}.")
    rows = indices.look() if isinstance(indices, NDArray) else np.asarray(indices)
    retained = RowSparseNDArray.of(data.form.retained(rows.astype(index_type).ravel()), data.context)
    if MODE.recording and origin_of(data) is not None:
        retained.origin = invoke(call_of("_sparse_retain", {}), (data.plain(), array(rows))).origin
    return retained if out is None else retained.copyto(out)


def cast_storage(data: NDArray, stype: str, out: Any = None) -> NDArray:
    """A copy of `data` with the storage type 'default', 'csr' or 'row_sparse'. Waits if one is sparse."""
    made = data.tostype(stype)
    if out is None:
        return made
    result: NDArray = made.copyto(out)
    return result


def dense_array(values: Array, ctx: Context | None = None) -> NDArray:
    """A dense array with a copy of these values."""
    result = NDArray.fresh(values.shape, values.dtype, ctx or cpu())
    put(values, result, name="dense")
    return result


def sparse_array(form: SparseForm, ctx: Context | None = None) -> BaseSparseNDArray:
    """The sparse array with this form."""
    return (CSRNDArray if isinstance(form, CSRForm) else RowSparseNDArray).of(form, ctx)


def form_of_dense(stype: str, values: Array) -> SparseForm:
    """The sparse form of an array: its elements that are not 0. OpAttributeError for an unknown `stype`."""
    if stype not in ("csr", "row_sparse"):
        raise OpAttributeError(f"stype must be 'default', 'csr' or 'row_sparse', got {stype!r}.")
    return csr_of(values) if stype == "csr" else row_sparse_of(values)


def zeros_of(stype: str, shape: Any, ctx: Context | None, dtype: Any) -> BaseSparseNDArray:
    """Zeros, none of which is stored."""
    if stype not in ("csr", "row_sparse"):
        raise OpAttributeError(f"stype must be 'default', 'csr' or 'row_sparse', got {stype!r}.")
    return sparse_array(empty_form(stype, shape, as_dtype(dtype)), ctx)
