"""Operators as methods of an array: `a.sum(axis=1)` is `mx.nd.sum(a, axis=1)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TYPE_CHECKING

import numpy as np

from ...core.errors import ArgumentError
from ...core.supplied import Supplied
from ..calls.invoke import call_of, invoke
from ..gradients.tape import origin_of
from ..memory.storage import RawArray, Shape, Storage
from .operator_methods import OperatorMethods
from .rearrange import split_v2

if TYPE_CHECKING:
    from ..ndarray import NDArray

Axis = int | Sequence[int] | None

sparse_copy: Supplied[Callable[[str, RawArray], NDArray]] = Supplied()
"""The sparse array of a storage type with the elements of a numpy array that are not 0."""


class Methods(OperatorMethods):
    """Mixin of NDArray. Each method gives a new array; see the operator of its name for shapes and dtypes."""

    __slots__ = ()

    def _apply(self, op: str, *others: Storage, out: Any = None, **attrs: Any) -> Any:
        given = {k: v for k, v in attrs.items() if v is not None}
        return invoke(call_of(op, given), (self, *others), out)

    def _with_axes(self, shape: Sequence[int]) -> NDArray:
        """A view of this memory with other axes."""
        return self.reshape(tuple(shape))  # type: ignore[attr-defined]

    def tostype(self, stype: str) -> NDArray:
        """A copy of the storage type 'default', 'csr' or 'row_sparse'; for the last two it waits."""
        if stype == "default":
            return self._apply("_copy")
        result = sparse_copy.call(stype, self.look().copy())
        result.origin = origin_of(self)
        return result

    def sum(
        self, axis: Axis = None, keepdims: bool = False, exclude: bool = False, out: Any = None
    ) -> NDArray:
        """Sum over `axis`; over all, of shape (1,), if None."""
        return self._apply("sum", axis=axis, keepdims=keepdims, exclude=exclude, out=out)

    def mean(
        self, axis: Axis = None, keepdims: bool = False, exclude: bool = False, out: Any = None
    ) -> NDArray:
        """Mean over `axis`; over all, of shape (1,), if None."""
        return self._apply("mean", axis=axis, keepdims=keepdims, exclude=exclude, out=out)

    def max(
        self, axis: Axis = None, keepdims: bool = False, exclude: bool = False, out: Any = None
    ) -> NDArray:
        """Largest element over `axis`; over all, of shape (1,), if None."""
        return self._apply("max", axis=axis, keepdims=keepdims, exclude=exclude, out=out)

    def min(
        self, axis: Axis = None, keepdims: bool = False, exclude: bool = False, out: Any = None
    ) -> NDArray:
        """Smallest element over `axis`; over all, of shape (1,), if None."""
        return self._apply("min", axis=axis, keepdims=keepdims, exclude=exclude, out=out)

    def argmax(self, axis: int | None = None, keepdims: bool = False, out: Any = None) -> NDArray:
        """Index of the largest element along `axis`, as float32; over all, of shape (1,), if None."""
        return self._apply("argmax", axis=axis, keepdims=keepdims, out=out)

    def norm(
        self,
        ord: int = 2,
        axis: Axis = None,
        out_dtype: Any = None,
        keepdims: bool = False,
        out: Any = None,
    ) -> NDArray:
        """Euclidean length, or sum of magnitudes for `ord` 1, over `axis`; over all if None."""
        return self._apply("norm", ord=ord, axis=axis, out_dtype=out_dtype, keepdims=keepdims, out=out)

    def clip(self, a_min: float, a_max: float, out: Any = None) -> NDArray:
        """Each element moved into [a_min, a_max]."""
        return self._apply("clip", a_min=a_min, a_max=a_max, out=out)

    def dot(
        self, other: NDArray, transpose_a: bool = False, transpose_b: bool = False, out: Any = None
    ) -> NDArray:
        """Product over the last axis of this array and the first of `other`."""
        return self._apply("dot", other, transpose_a=transpose_a, transpose_b=transpose_b, out=out)

    def transpose(self, *axes: Any, out: Any = None, **keyword: Any) -> NDArray:
        """Axes in another order, as ints, one tuple or `axes=`; reversed if none is given. Copies."""
        if "axes" in keyword and not axes:
            axes = (keyword.pop("axes"),)
        if keyword:
            raise ArgumentError(f"transpose takes axes once, and out; got {sorted(keyword)[0]!r} as well.")
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self._apply("transpose", axes=tuple(order) if order else None, out=out)

    @property
    def T(self) -> NDArray:
        """Axes in reverse order; a copy (an array of one axis is itself)."""
        return self if self.storage.ndim < 2 else self.transpose()  # type: ignore[return-value]

    def flatten(self, inplace: bool = False, out: Any = None) -> NDArray:
        """(N, ...) -> (N, rest). With `inplace` it shares the elements, as `reshape` does; else it copies."""
        if inplace:
            return self._with_axes((*self.storage.shape[:1], -1))
        return self._apply("Flatten", out=out)

    def expand_dims(self, axis: int, inplace: bool = False, out: Any = None) -> NDArray:
        """A new axis of length 1 before axis `axis`. Copies, unless `inplace`."""
        if inplace:
            return self._with_axes(np.expand_dims(np.empty(self.storage.shape, "V0"), axis).shape)
        return self._apply("expand_dims", axis=axis, out=out)

    def broadcast_to(self, shape: Shape, out: Any = None) -> NDArray:
        """Axes of length 1 repeated to `shape`, new ones put in front; 0 keeps an axis."""
        missing = len(shape) - self.storage.ndim
        if missing > 0:
            array = self._apply("_reshape_to", shape=(1,) * missing + self.storage.shape)
            return array.broadcast_to(shape, out)
        return self._apply("broadcast_to", shape=shape, out=out)

    def broadcast_like(
        self, rhs: NDArray, lhs_axes: Axis = None, rhs_axes: Axis = None, out: Any = None
    ) -> NDArray:
        """Axes of length 1 repeated to the shape of `rhs`; only `lhs_axes`, to its `rhs_axes`, if given."""
        if lhs_axes is None and rhs_axes is None:
            return self.broadcast_to(rhs.shape, out)
        return self._apply("broadcast_like", rhs, lhs_axes=lhs_axes, rhs_axes=rhs_axes, out=out)

    def slice(
        self,
        begin: Sequence[int | None],
        end: Sequence[int | None],
        step: Sequence[int | None] | None = None,
        out: Any = None,
    ) -> NDArray:
        """Elements [begin, end) of the first axes. Copies."""
        return self._apply("slice", begin=begin, end=end, step=step, out=out)

    def slice_axis(self, axis: int, begin: int, end: int | None, out: Any = None) -> NDArray:
        """Elements [begin, end) along one axis. Copies."""
        return self._apply("slice_axis", axis=axis, begin=begin, end="None" if end is None else end, out=out)

    def softmax(
        self, axis: int = -1, temperature: float | None = None, dtype: Any = None, out: Any = None
    ) -> NDArray:
        """exp(a / temperature) divided by its sum along `axis`."""
        return self._apply("softmax", axis=axis, temperature=temperature, dtype=dtype, out=out)

    def prod(
        self, axis: Axis = None, keepdims: bool = False, exclude: bool = False, out: Any = None
    ) -> NDArray:
        """Product over `axis`; over all, of shape (1,), if None."""
        return self._apply("prod", axis=axis, keepdims=keepdims, exclude=exclude, out=out)

    def argmin(self, axis: int | None = None, keepdims: bool = False, out: Any = None) -> NDArray:
        """Index of the smallest element along `axis`, as float32; over all, of shape (1,), if None."""
        return self._apply("argmin", axis=axis, keepdims=keepdims, out=out)

    def swapaxes(self, dim1: int, dim2: int, out: Any = None) -> NDArray:
        """Two axes exchanged. Copies."""
        return self._apply("SwapAxis", dim1=dim1, dim2=dim2, out=out)

    def squeeze(self, axis: Axis = None, inplace: bool = False, out: Any = None) -> NDArray:
        """Without the axes of length 1, or those of them in `axis`. Copies, unless `inplace`."""
        if inplace:
            some = axis if axis is None or isinstance(axis, int) else tuple(axis)
            return self._with_axes(np.squeeze(np.empty(self.storage.shape, "V0"), some).shape or (1,))
        return self._apply("squeeze", axis=axis, out=out)

    def flip(self, axis: int | Sequence[int], out: Any = None) -> NDArray:
        """Elements in reverse order along `axis`."""
        return self._apply("reverse", axis=axis, out=out)

    def tile(self, reps: int | Sequence[int], out: Any = None) -> NDArray:
        """The whole array, `reps` times along each axis."""
        return self._apply("tile", reps=reps, out=out)

    def repeat(self, repeats: int, axis: int | None = None, out: Any = None) -> NDArray:
        """Each element `repeats` times along `axis`; of the flattened array if None."""
        return self._apply("repeat", repeats=repeats, axis=axis, out=out)

    def split(
        self, num_outputs: int, axis: int = 1, squeeze_axis: bool = False, out: Any = None
    ) -> NDArray | list[NDArray]:
        """`num_outputs` equal parts along `axis`; a list, unless there is one."""
        return self._apply(
            "SliceChannel", num_outputs=num_outputs, axis=axis, squeeze_axis=squeeze_axis, out=out
        )

    def take(self, indices: NDArray, axis: int = 0, mode: str = "clip", out: Any = None) -> NDArray:
        """The slices along `axis` that `indices` selects; one out of range is clipped."""
        return self._apply("take", indices, axis=axis, mode=mode, out=out)

    def pick(
        self, index: NDArray, axis: int = -1, keepdims: bool = False, mode: str = "clip", out: Any = None
    ) -> NDArray:
        """One element along `axis` for each index of the others."""
        return self._apply("pick", index, axis=axis, keepdims=keepdims, mode=mode, out=out)

    def one_hot(
        self, depth: int, on_value: float = 1.0, off_value: float = 0.0, dtype: Any = None, out: Any = None
    ) -> NDArray:
        """A new last axis of `depth`, `on_value` where the element says, `off_value` elsewhere; float32."""
        return self._apply(
            "one_hot", depth=depth, on_value=on_value, off_value=off_value, dtype=dtype, out=out
        )

    def split_v2(
        self, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
    ) -> NDArray | list[NDArray]:
        """So many equal parts along `axis`, or the parts between these places."""
        return split_v2(self, indices_or_sections, axis, squeeze_axis)  # type: ignore[arg-type]

    def slice_assign(
        self, rhs: NDArray, begin: Sequence[int | None], end: Sequence[int | None], step: Sequence[int | None]
    ) -> NDArray:
        """Write `rhs` into the part [begin, end) of this array, and give this array."""
        return self._apply("_slice_assign", rhs, begin=begin, end=end, step=step, out=self)

    def slice_assign_scalar(
        self, value: float, begin: Sequence[int | None], end: Sequence[int | None], step: Sequence[int | None]
    ) -> NDArray:
        """Write a number into the part [begin, end) of this array, and give this array."""
        return self._apply("_slice_assign_scalar", scalar=value, begin=begin, end=end, step=step, out=self)
