"""Operators that keep the storage type, as MXNet 1.9.1's do; the others get dense arrays.

| operator                                    | storage of the inputs                | of the result  |
|---------------------------------------------|--------------------------------------|----------------|
| functions and comparisons that are 0 at 0   | any                                  | the same       |
| elemwise_add, elemwise_sub                  | both csr, both row_sparse            | the same       |
| elemwise_mul                                | both alike; one sparse, one dense    | the sparse one |
| broadcast_mul, broadcast_div                | csr, dense                           | csr            |
| dot                                         | csr, dense or row_sparse             | dense          |
| dot with transpose_a                        | csr, dense or row_sparse             | row_sparse     |
| dot                                         | dense, csr                           | csr            |
| add_n                                       | all row_sparse                       | row_sparse     |
| slice, take of rows, Concat along axis 0    | csr                                  | csr            |
| _square_sum along axis 1 with keepdims      | row_sparse                           | row_sparse     |
| sum, mean, norm                             | any                                  | dense          |
| updates of SGD, Adam, AdaGrad, Ftrl         | row_sparse gradient: its rows change |                |

A rule returns a Form, a numpy array, or None if it does not apply; then all inputs are made dense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import OpAttributeError
from ...graph.opdef import Op
from ...ops.linalg.sparse_storage import ZERO_AT_ZERO
from ...ops.shape.cut import slices_of
from ..calls.invoke import invoke
from ..calls.plan import Call, call_of
from ..gradients.row_steps import is_product, Product, recorded
from ..gradients.tape import MODE, origin_of
from ..ndarray import NDArray
from .sparse_array import BaseSparseNDArray, dense_array, form_of_dense, RowSparseNDArray, sparse_array
from .sparse_dot import times_dense, transposed_times_dense
from .sparse_form import (
    Array,
    CSRForm,
    empty_form,
    in_both,
    index_type,
    RowSparseForm,
    SparseForm,
    stacked,
    united,
)

Made = SparseForm | Array | None
Rule = Callable[[Call, list[Any]], Made]


def run(call: Call, inputs: Sequence[NDArray], out: Any = None) -> Any:
    """Apply the operator to arrays some of which are sparse; waits for them. See the table above.

    The tape records the operator on dense arrays, except for products of a csr array (`row_steps.py`).
    """
    on_tape = MODE.recording and any(origin_of(a) for a in inputs)
    if on_tape and out is None and is_product(call, inputs):
        return recorded(call, inputs, Product)
    if _is_update(call.op) and isinstance(inputs[1], RowSparseNDArray):
        return _update(call, inputs, out)
    rule = _RULES.get(call.op.op_name)
    made = None
    if rule is not None:
        made = rule(call, [a.form if isinstance(a, BaseSparseNDArray) else a.look() for a in inputs])
    if made is None or on_tape:
        result: Any = invoke(call, [a.plain() for a in inputs])
    if made is not None:
        context = inputs[0].context
        stored = sparse_array(made, context) if isinstance(made, SparseForm) else dense_array(made, context)
        if on_tape:
            stored.origin = result.origin
        result = stored
    if out is None:
        return result
    pairs = [(result, out)] if isinstance(out, NDArray) else zip([result] if len(out) == 1 else result, out)
    for given, target in pairs:
        given.copyto(target)
    return out


# -- element by element ------------------------------------------------------------------------------------


def _computed(call: Call, values: Array) -> Array:
    """The results of an operator with one input on stored elements."""
    if not values.size:
        return values
    result: Array = invoke(call, (dense_array(values),)).look()
    return result


def _kept(call: Call, ins: list[Any]) -> Made:
    (form,) = ins
    result: SparseForm = form.like(_computed(call, form.data))
    return result


def _kept_at_zero(call: Call, ins: list[Any]) -> Made:
    """The rule of an operator that is 0 at 0, if its parameters make it so."""
    zero = _computed(call, np.zeros(1, ins[0].dtype))
    return _kept(call, ins) if not zero.any() else None


def _nothing(call: Call, ins: list[Any]) -> Made:
    return empty_form(ins[0].stype, ins[0].shape, ins[0].dtype)


def _sum_of_two(ufunc: np.ufunc) -> Rule:
    def rule(call: Call, ins: list[Any]) -> Made:
        a, b = ins
        return united(a, b, ufunc) if type(a) is type(b) and a.shape == b.shape else None

    return rule


def _product_of_two(call: Call, ins: list[Any]) -> Made:
    a, b = ins
    if a.shape != b.shape:
        return None
    if type(a) is type(b):
        return in_both(a, b) if isinstance(a, CSRForm) else united(a, b, np.multiply)
    if isinstance(b, np.ndarray):
        return _by_dense(a, b, np.multiply)
    return _by_dense(b, a, np.multiply) if isinstance(a, np.ndarray) else None


def _by_dense(form: Any, values: Array, ufunc: np.ufunc) -> SparseForm:
    """``ufunc(form, values)`` at the positions that the form stores; `values` broadcasts."""
    values = np.broadcast_to(values, form.shape)
    where = (form.rows, form.indices) if isinstance(form, CSRForm) else form.indices
    with np.errstate(all="ignore"):
        result: SparseForm = form.like(ufunc(form.data, values[where]).astype(form.dtype, copy=False))
    return result


def _broadcast(ufunc: np.ufunc) -> Rule:
    def rule(call: Call, ins: list[Any]) -> Made:
        a, b = ins
        if (
            not isinstance(a, CSRForm)
            or isinstance(b, SparseForm)
            or np.broadcast_shapes(a.shape, b.shape) != a.shape
        ):
            return None
        return _by_dense(a, b, ufunc)

    return rule


def _sum_of_many(call: Call, ins: list[Any]) -> Made:
    if not all(isinstance(x, RowSparseForm) and x.shape == ins[0].shape for x in ins):
        return None
    total: SparseForm = ins[0]
    for other in ins[1:]:
        total = united(total, other, np.add)
    return total


# -- sums --------------------------------------------------------------------------------------------------


def _reduced(call: Call, ins: list[Any]) -> Made:
    """Sum or mean of a csr array over whole axes."""
    (form,), a = ins, call.attrs
    if not isinstance(form, CSRForm) or a.exclude:
        return None
    axes = range(2) if a.axis in (None, ()) else [a.axis] if isinstance(a.axis, int) else a.axis
    axes = sorted({x % 2 for x in axes})
    form.check()
    if len(axes) == 2:
        result = form.data.sum(keepdims=True, dtype=form.dtype)
    else:
        result = np.zeros(form.shape[1 - axes[0]], form.dtype)
        np.add.at(result, form.indices if axes[0] == 0 else form.rows, form.data)
    if call.op.op_name == "mean":
        result = (result / np.prod([form.shape[x] for x in axes])).astype(form.dtype)
    if a.keepdims:
        result = result.reshape([1 if x in axes else n for x, n in enumerate(form.shape)])
    return result


def _norm(call: Call, ins: list[Any]) -> Made:
    """The norm over all elements, which is that of the stored ones."""
    (form,), a = ins, call.attrs
    if a.axis not in (None, ()) or a.keepdims or not form.data.size:
        return None
    return _computed(call, form.data)


def _square_sum(call: Call, ins: list[Any]) -> Made:
    (form,), a = ins, call.attrs
    if not isinstance(form, RowSparseForm) or form.ndim != 2:
        return None
    if not a.keepdims or tuple(np.atleast_1d(a.axis) % 2) != (1,):
        return None
    return form.like(np.square(form.data).sum(axis=1, keepdims=True, dtype=form.dtype))


# -- matrices ----------------------------------------------------------------------------------------------


def _dot(call: Call, ins: list[Any]) -> Made:
    (left, right), a = ins, call.attrs
    call.op.infer_shape(a, left.shape, right.shape)
    result: Any = None
    if isinstance(left, CSRForm) and not isinstance(right, CSRForm) and right.ndim == 2:
        left.check()
        dense = right.dense() if isinstance(right, SparseForm) else right
        dense = dense.T if a.transpose_b else dense
        result = transposed_times_dense(left, dense) if a.transpose_a else times_dense(left, dense)
        if a.transpose_a and a.transpose_b:  # dense in MXNet
            result = result.dense()
        elif a.transpose_a and isinstance(right, RowSparseForm):
            filled = np.isin(result.indices, np.unique(left.indices[np.isin(left.rows, right.indices)]))
            result = RowSparseForm(result.shape, result.data[filled], result.indices[filled])
    elif isinstance(left, np.ndarray) and left.ndim == 2 and isinstance(right, CSRForm):
        right.check()
        flat = left if a.transpose_a else left.T  # (K, M)
        product = times_dense(right, flat) if a.transpose_b else transposed_times_dense(right, flat).dense()
        result = product.T
        if not a.transpose_a:
            result = _full_columns(right, result, a.transpose_b)
    if result is None:
        if a.forward_stype in (None, "default"):
            return None
        result = invoke(
            call_of("dot", dict(transpose_a=a.transpose_a, transpose_b=a.transpose_b)),
            [dense_array(x.dense() if isinstance(x, SparseForm) else x) for x in ins],
        ).look()
    if a.forward_stype is None or a.forward_stype == getattr(result, "stype", "default"):
        return np.ascontiguousarray(result) if isinstance(result, np.ndarray) else result
    dense = result.dense() if isinstance(result, SparseForm) else np.ascontiguousarray(result)
    return dense if a.forward_stype == "default" else form_of_dense(a.forward_stype, dense)


def _full_columns(right: CSRForm, product: Array, transposed: bool) -> CSRForm:
    """The product, which stores the columns in which the right side stores something."""
    columns = np.flatnonzero(np.diff(right.indptr)) if transposed else np.unique(right.indices)
    rows = len(product)
    indptr = np.arange(rows + 1) * len(columns)
    return CSRForm(product.shape, product[:, columns].ravel(), np.tile(columns, rows), indptr)


def _slice(call: Call, ins: list[Any]) -> Made:
    (form,) = ins
    keys = slices_of(call.attrs)
    if not isinstance(form, CSRForm) or any(k.step not in (None, 1) for k in keys):
        return None
    call.op.infer_shape(call.attrs, form.shape)
    spans = [k.indices(n)[:2] for k, n in zip((*keys, slice(None)), form.shape)]
    return form.part(*spans) if all(b > a for a, b in spans) else None


def _take(call: Call, ins: list[Any]) -> Made:
    """Rows of a csr array; dense ones for other arrays."""
    form, indices = ins
    if not isinstance(form, CSRForm) or call.attrs.axis != 0 or not isinstance(indices, np.ndarray):
        return None
    if indices.ndim != 1 or call.attrs.mode == "raise":
        return None
    rows, count = indices.astype(index_type), form.shape[0]
    return form.take(rows % count if call.attrs.mode == "wrap" else np.clip(rows, 0, count - 1))


def _joined(call: Call, ins: list[Any]) -> Made:
    if call.attrs.dim != 0 or not all(isinstance(x, CSRForm) and x.shape[1] == ins[0].shape[1] for x in ins):
        return None
    return stacked(ins)


# -- updates -----------------------------------------------------------------------------------------------

LAZY = frozenset(
    "sgd_update sgd_mom_update adam_update mp_adam_update ftrl_update mp_ftrl_update adagrad_update "
    "mp_adagrad_update _contrib_group_adagrad_update".split()
)
"""Updates that leave rows alone that a row_sparse gradient does not store; SGD's of 16-bit weights
change all, as MXNet's do."""


def _is_update(op: type[Op]) -> bool:
    """True if this is the update of one weight, with inputs weight, gradient and states."""
    return getattr(op, "form", "") in ("plain", "mixed") or op.op_name in LAZY


def _is_lazy(op: type[Op], attrs: Any, weight: NDArray, grad: NDArray) -> bool:
    step = getattr(op, "step_of", op).op_name
    if step == "ftrl_update":  # MXNet decides by the weight
        return weight.stype == "row_sparse" or getattr(grad, "of_sparse", False)
    if step == "adagrad_update":  # MXNet refuses decay; without it the other rows do not change anyway
        return not attrs.wd
    return op.op_name in LAZY and getattr(attrs, "lazy_update", True)


def _update(call: Call, inputs: Sequence[NDArray], out: Any) -> Any:
    """Apply a row_sparse gradient: to its rows if the update is lazy, else to all."""
    weight, grad, *states = inputs
    target = weight if out is None else out
    if not _is_lazy(call.op, call.attrs, weight, grad):
        plain = [a.plain() for a in inputs]
        result = invoke(call, plain, plain[0] if target is weight else None)
        for given, place in ((result, target), *zip(plain[2:], states)):
            if given is not place:
                given.copyto(place)
        return target
    by_rows: Any = grad.storage
    rows = by_rows.indices
    if not len(rows):
        return weight.copyto(target) if target is not weight else target
    parts = [dense_array(_rows_of(a, rows)) for a in (weight, *states)]
    step = [parts[0], dense_array(by_rows.data), *parts[1:]]
    invoke(call, step, step[0])
    if target is not weight:
        weight.copyto(target)
    for part, place in zip(parts, (target, *states)):
        _put_rows(place, rows, part.look())
    return target


def _rows_of(array: NDArray, rows: Array) -> Array:
    stored: Any = array.storage
    values: Array = stored.at(rows) if isinstance(stored, RowSparseForm) else array.look()[rows]
    return values


def _put_rows(array: NDArray, rows: Array, values: Array) -> None:
    stored: Any = array.storage
    if isinstance(stored, RowSparseForm):
        array.storage = stored.with_rows(rows, values)  # type: ignore[assignment]
    elif isinstance(stored, SparseForm):
        raise OpAttributeError(
            f"An update by rows changes a dense or row_sparse array, not a {array.stype} one."
        )
    else:
        array[rows] = values


_BY_NUMBER = """
    _mul_scalar _div_scalar clip _equal_scalar _not_equal_scalar _greater_scalar _greater_equal_scalar
    _lesser_scalar _lesser_equal_scalar _contrib_quadratic
""".split()

_RULES: dict[str, Rule] = {
    **dict.fromkeys(ZERO_AT_ZERO, _kept),
    **dict.fromkeys(_BY_NUMBER, _kept_at_zero),
    "zeros_like": _nothing,
    "elemwise_add": _sum_of_two(np.add),
    "_grad_add": _sum_of_two(np.add),
    "elemwise_sub": _sum_of_two(np.subtract),
    "elemwise_mul": _product_of_two,
    "broadcast_mul": _broadcast(np.multiply),
    "broadcast_div": _broadcast(np.divide),
    "add_n": _sum_of_many,
    "sum": _reduced,
    "mean": _reduced,
    "norm": _norm,
    "_square_sum": _square_sum,
    "dot": _dot,
    "slice": _slice,
    "take": _take,
    "Concat": _joined,
}
