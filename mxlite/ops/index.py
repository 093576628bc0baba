"""Operators that look elements up by number.

Indices may come in any dtype, as in MXNet; they are cut towards 0 into int64 scratch first. Unless said
otherwise an index out of range is moved to the nearest end.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from ..core.dtype import as_dtype
from ..core.errors import DTypeError, OperatorError, ShapeError
from ..graph.opdef import Op
from .blocks import iota

_FEW = 1024  # indices handled in one Python list


def _whole(xp, indices, work):
    """`indices` as a flat int64 array in `work`."""
    flat = work[: 8 * indices.size].view("int64")
    xp.copyto(flat, indices.reshape(-1), casting="unsafe")
    return flat


def _bounded(xp, flat, length, mode):
    """Move int64 indices into [0, length) in place."""
    if mode == "wrap":
        xp.remainder(flat, length, out=flat)
    else:
        xp.maximum(flat, 0, out=flat)
        xp.minimum(flat, length - 1, out=flat)


def _add_rows(xp, target, flat, source):
    """``target[:, flat[i]] += source[:, i]``, in the order of i: equal indices always add up the same way."""
    for begin in range(0, flat.size, _FEW):
        for i, row in enumerate(flat[begin : begin + _FEW].tolist(), begin):
            into = target[:, row]
            xp.add(into, source[:, i], out=into)


def _two_types(index, dtype, what):
    """dtype inference of an operator whose indices have a type of their own."""
    known = [d for d in dtype if d is not None]
    if any(d != known[0] for d in known):
        raise DTypeError(f"{what} must have one dtype, got {[str(d) for d in dtype]}.")
    return known[0] if known else None


class Embedding(Op):
    """Rows of a table, ``out[...] = weight[data[...]]``.

    data: (...) whole numbers in any dtype;  weight: (`input_dim`, `output_dim`)  ->  out: (..., `output_dim`)
    An index out of range is moved to the nearest end. The gradient of `weight` is dense, summed in the order
    of the indices; `data` has none. `sparse_grad` is read and has no effect.
    """

    inputs = ("data", "weight")
    inferred = ("weight",)

    @dataclass(frozen=True)
    class Attrs:
        input_dim: int
        output_dim: int
        dtype: str = "float32"
        sparse_grad: bool = False

    @staticmethod
    def infer_shape(a, data, weight=None):
        if a.input_dim < 1 or a.output_dim < 1:
            raise ShapeError(
                f"input_dim and output_dim must be at least 1, got {a.input_dim}, {a.output_dim}."
            )
        return (data, (a.input_dim, a.output_dim)), ((*data, a.output_dim),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        # float32 is also what `dtype` says when nobody set it: then the weight decides.
        dtype = dtypes[1] if a.dtype == "float32" else as_dtype(a.dtype)
        return (dtypes[0], dtype), (dtype,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[0])

    backward_workspace = workspace

    @staticmethod
    def forward(xp, a, data, weight, *, out, work):
        flat = _whole(xp, data, work)
        xp.take(weight, flat, axis=0, out=out.reshape(flat.size, -1), mode="clip")

    @staticmethod
    def backward(xp, a, d_out, data, *, d_weight, work):
        flat = _whole(xp, data, work)
        _bounded(xp, flat, a.input_dim, "clip")
        d_weight.fill(0)
        _add_rows(xp, d_weight[None], flat, d_out.reshape(1, flat.size, -1))


class _contrib_SparseEmbedding(Embedding):
    """Rows of a table, ``out[...] = weight[data[...]]``: `Embedding` under the name of its sparse kind.

    Storage is dense, and so is the gradient of `weight`. `deterministic` is read and has no effect: equal
    runs always give equal bits.
    """

    @dataclass(frozen=True)
    class Attrs:
        input_dim: int
        output_dim: int
        dtype: str = "float32"
        deterministic: bool = False


class take(Op):
    """Slices of `a` by number along `axis`.

    a: (A..., K, B...) with K at `axis`;  indices: (I...) in any dtype  ->  out: (A..., I..., B...).
    mode: "clip" moves an index out of range to the nearest end (so -1 becomes 0), "wrap" counts round,
    "raise" is an error. The gradient of `a` is dense; `indices` have none.
    """

    inputs = ("a", "indices")

    @dataclass(frozen=True)
    class Attrs:
        axis: int = 0
        mode: Literal["clip", "wrap", "raise"] = "clip"

    @staticmethod
    def infer_shape(a, array, indices):
        if not -len(array) <= a.axis < len(array):
            raise ShapeError(f"axis {a.axis} is not one of a {array}.")
        axis = a.axis % len(array)
        return (array, indices), ((*array[:axis], *indices, *array[axis + 1 :]),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (dtypes[0],)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * prod(inputs[1])

    backward_workspace = workspace

    @staticmethod
    def forward(xp, attrs, a, indices, *, out, work):
        axis = attrs.axis % a.ndim
        flat = _whole(xp, indices, work)
        length = a.shape[axis]
        if attrs.mode == "raise" and (flat.min() < 0 or flat.max() >= length):
            raise OperatorError(
                f"take: indices must be in [0, {length}), got {flat.min()} to {flat.max()}.", operation="take"
            )
        if attrs.mode == "wrap":
            _bounded(xp, flat, length, "wrap")
        outer = prod(a.shape[:axis])
        xp.take(
            a.reshape(outer, length, -1), flat, axis=1, out=out.reshape(outer, flat.size, -1), mode="clip"
        )

    @staticmethod
    def backward(xp, attrs, d_out, indices, *, d_a, work):
        axis = attrs.axis % d_a.ndim
        flat = _whole(xp, indices, work)
        _bounded(xp, flat, d_a.shape[axis], attrs.mode)
        d_a.fill(0)
        outer = prod(d_a.shape[:axis])
        _add_rows(xp, d_a.reshape(outer, d_a.shape[axis], -1), flat, d_out.reshape(outer, flat.size, -1))


class one_hot(Op):
    """`on_value` at the place that each index names, `off_value` elsewhere.

    indices: (...) in any dtype  ->  out: (..., `depth`) of `dtype`. An index out of range gives a row of
    `off_value`. No gradient.
    """

    inputs = ("indices",)

    @dataclass(frozen=True)
    class Attrs:
        depth: int
        on_value: float = 1.0
        off_value: float = 0.0
        dtype: str = "float32"

    @staticmethod
    def infer_shape(a, indices):
        if a.depth < 1:
            raise ShapeError(f"depth must be at least 1, got {a.depth}.")
        return (indices,), ((*indices, a.depth),)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (as_dtype(a.dtype),)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 8 * (prod(inputs[0]) + a.depth)

    @staticmethod
    def forward(xp, a, indices, *, out, work):
        flat = _whole(xp, indices, work)
        places = work[8 * flat.size :][: 8 * a.depth].view("int64")
        iota(xp, places)
        xp.equal(flat[:, None], places, out=out.reshape(flat.size, a.depth))
        if a.on_value != 1 or a.off_value != 0:
            on, off = out.dtype.type(a.on_value), out.dtype.type(a.off_value)
            xp.multiply(out, on - off, out=out)
            xp.add(out, off, out=out)


class pick(Op):
    """One element along `axis` for each place of the others, ``out[i] = data[i, index[i]]``.

    data: (...);  index: `data`'s shape without `axis` (or with it, 1 long), in any dtype  ->
    out: the same without `axis`, or with it when `keepdims`. mode: "clip" moves an index out of range to
    the nearest end, "wrap" counts round. The gradient is 0 at what was not picked; `index` has none.
    """

    aliases = ("choose_element_0index",)
    inputs = ("data", "index")
    inferred = ("index",)

    @dataclass(frozen=True)
    class Attrs:
        axis: int = -1
        keepdims: bool = False
        mode: Literal["clip", "wrap"] = "clip"

    @staticmethod
    def infer_shape(a, data, index=None):
        if not -len(data) <= a.axis < len(data):
            raise ShapeError(f"axis {a.axis} is not one of data {data}.")
        axis = a.axis % len(data)
        kept = (*data[:axis], 1, *data[axis + 1 :])
        gone = (*data[:axis], *data[axis + 1 :]) or (1,)
        if index is not None and index not in (kept, gone):
            raise ShapeError(
                f"index must be {gone} or {kept} for data {data} and axis {a.axis}, got {index}."
            )
        return (data, index or gone), (kept if a.keepdims else gone,)

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, (dtypes[0],)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return 16 * prod(outputs[0])

    backward_workspace = workspace

    @staticmethod
    def forward(xp, a, data, index, *, out, work):
        places = _picked(xp, a, data.shape, index, work)
        xp.take(data.reshape(-1), places, out=out.reshape(-1), mode="clip")

    @staticmethod
    def backward(xp, a, d_out, index, *, d_data, work):
        places = _picked(xp, a, d_data.shape, index, work)
        d_data.fill(0)
        d_data.reshape(-1)[places] = d_out.reshape(-1)


def _picked(xp, a, shape, index, work):
    """Places of the picked elements in the flattened data: outer * (K * inner) + index * inner + rest."""
    axis = a.axis % len(shape)
    length, inner = shape[axis], prod(shape[axis + 1 :])
    places = _whole(xp, index, work)
    _bounded(xp, places, length, a.mode)
    xp.multiply(places, inner, out=places)
    offsets = work[8 * places.size :][: 8 * places.size].view("int64")
    # The n-th place is at (n // inner, n % inner); n // inner * inner * length + n % inner
    # is n + n // inner * inner * (length - 1).
    iota(xp, offsets)
    xp.add(places, offsets, out=places)
    xp.floor_divide(offsets, inner, out=offsets)
    xp.multiply(offsets, inner * (length - 1), out=offsets)
    xp.add(places, offsets, out=places)
    return places


class where(Op):
    """`x` where the condition is not 0, `y` elsewhere.

    condition: (...) as `x`, or (N,) for whole rows, in any dtype;  x, y: (N, ...)  ->  out: (N, ...).
    `condition` has no gradient.
    """

    inputs = ("condition", "x", "y")

    @staticmethod
    def infer_shape(a, condition, x, y):
        if x != y:
            raise ShapeError(f"x and y must have one shape, got {x} and {y}.")
        if condition != x and condition != x[:1]:
            raise ShapeError(f"condition must be {x} or {x[:1]}, got {condition}.")
        return (condition, x, y), (x,)

    @classmethod
    def infer_type(cls, a, *dtypes):
        dtype = _two_types(dtypes[0], dtypes[1:], "x and y")
        return (dtypes[0], dtype, dtype), (dtype,)

    @staticmethod
    def workspace(a, inputs, outputs, dtype):
        return prod(inputs[0])

    backward_workspace = workspace

    @staticmethod
    def forward(xp, a, condition, x, y, *, out, work):
        mask = _mask(xp, condition, x.ndim, work)
        xp.copyto(out, y)
        xp.copyto(out, x, where=mask)

    @staticmethod
    def backward(xp, a, d_out, condition, *, d_x, d_y, work):
        mask = _mask(xp, condition, d_out.ndim, work)
        if d_x is not None:
            d_x.fill(0)
            xp.copyto(d_x, d_out, where=mask)
        if d_y is not None:
            xp.copyto(d_y, d_out)
            xp.copyto(d_y, 0, where=mask)


def _mask(xp, condition, rank, work):
    """Where `condition` is not 0, as a bool array in `work` that broadcasts over `rank` axes."""
    mask = work[: condition.size].view("bool").reshape(condition.shape)
    xp.not_equal(condition, 0, out=mask)
    return mask if condition.ndim == rank else mask.reshape(-1, *(1,) * (rank - 1))
