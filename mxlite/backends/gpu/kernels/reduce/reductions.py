"""Sums, means, products, norms over axes, and their gradients.

Forward, the array is read once (twice for logsumexp and moments); see fold.py. A gradient is one elementwise
pass in which the reduced array is broadcast.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from .....core.dtype import as_dtype
from .....graph.opdef import DType
from .....ops import find_op
from .....ops.reduce.measures import logsumexp, moments
from .....ops.reduce.reduce import kept_shape, SpreadLike
from .....ops.scratch import carve, Piece, scratch_bytes
from .....te.computation import Computation, Tensor
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, known
from ...handwritten import fold as folds
from ...handwritten.fold import ADD, DIVIDED, Fold, folded, LARGEST, MULTIPLY, PLAIN, SAME, sum_type
from ...rows import answer, gradient_of, table
from ...runtime.device import Device, InOrder, nothing, Run
from ..arithmetic.elementwise import loop

_BYTE = as_dtype("uint8")


# -- forward

_FOLDS = {
    "sum": (SAME, ADD, PLAIN),
    "mean": (SAME, ADD, DIVIDED),
    "prod": (SAME, MULTIPLY, PLAIN),
    "nansum": (folds.KNOWN_OR_0, ADD, PLAIN),
    "nanprod": (folds.KNOWN_OR_1, MULTIPLY, PLAIN),
    "any": (folds.TRUTH, ADD, folds.TRUE_OR_NOT),
    "all": (folds.TRUTH, MULTIPLY, folds.TRUE_OR_NOT),
}


def fold_of(device: Device, r: Request, name: str, made: DType | None = None) -> Fold:
    """The reduction `name` of a request's input; `made` is the type of its result, if it may be another."""
    (shape,), a = r.inputs, r.attrs
    map, combine, finish = (folds.SQUARE, ADD, folds.ROOT) if name == "norm" else _FOLDS[name]
    if name == "norm" and a.ord == 1:
        map, finish = folds.SIZE, PLAIN
    target = kept_shape(a, shape)
    count = prod(shape) // prod(target) if prod(target) else 1
    if not count and not floating(r.dtype):
        finish = PLAIN
    return Fold(device, r.dtype, shape, target, map, combine, finish, float(count), made=made)


def _reduction(device: Device, r: Request, name: str) -> ChosenKernel | None:
    (made,) = r.op.infer_type(r.attrs, *r.dtypes)[1]
    if made is None or not known(made):
        return None
    return folded(r, fold_of(device, r, name, made), f"cuda {name}")


def _pieces(outputs: int, dtype: DType, *folds: Fold) -> list[Piece]:
    """Scratch for a number per result, and for folds that run one after another."""
    return [((outputs,), sum_type(dtype)), ((max(f.workspace for f in folds),), _BYTE)]


def _logsumexp(device: Device, r: Request) -> ChosenKernel | None:
    (shape,), target = r.inputs, kept_shape(r.attrs, r.inputs[0])
    most = Fold(device, r.dtype, shape, target, SAME, LARGEST, folds.FINITE)
    total = Fold(device, r.dtype, shape, target, folds.POWER, ADD, folds.LOGARITHM, shifted=True)
    if not (most.fits and total.fits):
        return None
    pieces = _pieces(prod(target), r.dtype, most, total)

    def connect(a: Any, data: Any, *, out: Any, work: Any) -> Run:
        largest, rest = carve(work, pieces)
        return InOrder([most.call(data, largest, rest), total.call(data, out, rest, shift=largest)])

    return answer(r, connect, scratch_bytes(pieces), "cuda logsumexp")


def _moments(device: Device, r: Request) -> ChosenKernel | None:
    (shape,), target = r.inputs, kept_shape(r.attrs, r.inputs[0])
    n, count = prod(target), float(prod(shape) // prod(target) if prod(target) else 1)
    middle = Fold(device, r.dtype, shape, target, SAME, ADD, DIVIDED, count)
    spread = Fold(device, r.dtype, shape, target, folds.SPREAD, ADD, DIVIDED, count, shifted=True)
    narrow = loop(device, lambda w, x: x, [(n,)], [sum_type(r.dtype)], (n,), r.dtype)
    if not (middle.fits and spread.fits and narrow):
        return None
    pieces = _pieces(n, r.dtype, middle, spread)

    def connect(a: Any, data: Any, *, mean: Any, var: Any, work: Any) -> Run:
        if not n:
            return nothing
        centre, rest = carve(work, pieces)
        runs = [middle.call(data, centre, rest)]
        if mean is not None:
            runs.append(narrow.call(centre, mean))
        if var is not None:
            runs.append(spread.call(data, var, rest, shift=centre))
        return InOrder(runs)

    return answer(r, connect, scratch_bytes(pieces), "cuda moments")


# -- backward


def _moments_gradient(device: Device, r: Request) -> ChosenKernel | None:
    (shape,), target = r.inputs, kept_shape(r.attrs, r.inputs[0])
    if not prod(shape):
        return None
    n, count = prod(target), prod(shape) // prod(target)
    wide = sum_type(r.dtype)
    middle = Fold(device, r.dtype, shape, target, SAME, ADD, DIVIDED, float(count))
    pieces = _pieces(n, r.dtype, middle)

    def of_var(w: Computation, d: Tensor, x: Tensor, m: Tensor, d_mean: Tensor | None = None) -> Tensor:
        slope = (x - m) * 2 * d
        return (slope if d_mean is None else slope + d_mean) / w.constant(count)

    only_mean = loop(device, lambda w, d: d / w.constant(count), [target], [r.dtype], shape, r.dtype)
    views, dtypes = [target, shape, target], [r.dtype, r.dtype, wide]
    var = loop(device, of_var, views, dtypes, shape, r.dtype)
    both = loop(device, of_var, [*views, target], [*dtypes, r.dtype], shape, r.dtype)
    if not middle.fits or only_mean is None or var is None or both is None:
        return None

    def connect(a: Any, d_mean: Any, d_var: Any, data: Any, *, d_data: Any, work: Any) -> Run:
        if d_var is None:
            return only_mean.call(d_mean, d_data)
        centre, rest = carve(work, pieces)
        first = middle.call(data, centre, rest)
        if d_mean is None:
            return InOrder([first, var.call(d_var, data, centre, d_data)])
        return InOrder([first, both.call(d_var, data, centre, d_mean, d_data)])

    return answer(r, connect, scratch_bytes(pieces), "cuda moments gradient")


def _spread_gradient(device: Device, r: Request) -> ChosenKernel | None:
    shape = r.inputs[1]
    kept = kept_shape(r.attrs, shape)
    count = prod(shape) // prod(kept) if prod(kept) else 1
    finish = DIVIDED if r.attrs.mean else PLAIN
    fold = Fold(device, r.dtype, shape, kept, SAME, ADD, finish, float(count))
    return folded(r, fold, "cuda sum") if floating(r.dtype) else None


rows = table(
    *((find_op(n), partial(_reduction, name=n), None) for n in (*_FOLDS, "norm")),
    (logsumexp, _logsumexp, None),
    (moments, _moments, _moments_gradient),
    (gradient_of(SpreadLike), _spread_gradient, None),
)
