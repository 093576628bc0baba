"""Operators as methods of an array: `a.sum(axis=1)` is `mx.nd.sum(a, axis=1)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TYPE_CHECKING

from .invoke import call_of, invoke
from .storage import Shape, Storage

if TYPE_CHECKING:
    from .ndarray import NDArray

Axis = int | Sequence[int] | None


class Methods(Storage):
    """Mixin of NDArray. Each method gives a new array; see the operator of its name for shapes and dtypes."""

    __slots__ = ()

    def _apply(self, op: str, *others: Storage, out: Any = None, **attrs: Any) -> Any:
        given = {k: v for k, v in attrs.items() if v is not None}
        return invoke(call_of(op, given), (self, *others), out)

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

    def norm(self, ord: int = 2, axis: Axis = None, keepdims: bool = False, out: Any = None) -> NDArray:
        """Euclidean length, or sum of magnitudes for `ord` 1, over `axis`; over all if None."""
        return self._apply("norm", ord=ord, axis=axis, keepdims=keepdims, out=out)

    def abs(self, out: Any = None) -> NDArray:
        """Magnitudes."""
        return self._apply("abs", out=out)

    def exp(self, out: Any = None) -> NDArray:
        """e to the power of each element."""
        return self._apply("exp", out=out)

    def log(self, out: Any = None) -> NDArray:
        """Natural logarithms; -inf at 0, nan below."""
        return self._apply("log", out=out)

    def sqrt(self, out: Any = None) -> NDArray:
        """Square roots; nan below 0."""
        return self._apply("sqrt", out=out)

    def square(self, out: Any = None) -> NDArray:
        """Squares."""
        return self._apply("square", out=out)

    def clip(self, a_min: float, a_max: float, out: Any = None) -> NDArray:
        """Each element moved into [a_min, a_max]."""
        return self._apply("clip", a_min=a_min, a_max=a_max, out=out)

    def dot(
        self, other: NDArray, transpose_a: bool = False, transpose_b: bool = False, out: Any = None
    ) -> NDArray:
        """Product over the last axis of this array and the first of `other`."""
        return self._apply("dot", other, transpose_a=transpose_a, transpose_b=transpose_b, out=out)

    def transpose(self, *axes: Any, out: Any = None) -> NDArray:
        """Axes in another order; reversed if none is given. Copies."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return self._apply("transpose", axes=tuple(order) if order else None, out=out)

    @property
    def T(self) -> NDArray:
        """Axes in reverse order; a copy (an array of one axis is itself)."""
        return self if self.storage.ndim < 2 else self.transpose()  # type: ignore[return-value]

    def flatten(self, out: Any = None) -> NDArray:
        """(N, ...) -> (N, rest)."""
        return self._apply("Flatten", out=out)

    def expand_dims(self, axis: int, out: Any = None) -> NDArray:
        """A new axis of length 1 before axis `axis`. Copies."""
        return self._apply("expand_dims", axis=axis, out=out)

    def broadcast_to(self, shape: Shape, out: Any = None) -> NDArray:
        """Axes of length 1 repeated to `shape`; 0 keeps an axis."""
        return self._apply("broadcast_to", shape=shape, out=out)

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

    def softmax(self, axis: int = -1, out: Any = None) -> NDArray:
        """exp(a) divided by its sum along `axis`."""
        return self._apply("softmax", axis=axis, out=out)
