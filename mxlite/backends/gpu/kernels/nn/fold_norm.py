"""Weight and bias of a convolution with a folded norm: one pass over the weight, run with the constants."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....ops.norm.fold_norm import FoldNorm
from .....ops.scratch import accumulator
from ....base import Request
from ...compiler.kinds import floating
from ...handwritten.each import spread, typed
from ...rows import At, row, table, where
from ...runtime.device import Run

_TEXT = """
// out = weight * scale of its row, shift = (bias - mean) * scale + beta, scale = gamma / sqrt(var + eps).
extern "C" __global__ void __launch_bounds__(256) fold_norm(
    const T *weight, const A *gamma, const A *beta, const A *mean, const A *var, const T *bias, int64 rows,
    int64 each, double eps, T *out, T *shift) {
    int64 size = rows * each;
    MX_EACH(at, size > rows ? size : rows) {
        int64 row = at < size ? at / each : 0;
        if (out && at < size) {
            A scale = A(1) / mx_sqrt(var[row] + (A)eps);
            if (gamma) scale *= gamma[row];
            out[at] = from<T>(to<A>(weight[at]) * scale);
        }
        if (shift && at < rows) {
            A scale = A(1) / mx_sqrt(var[at] + (A)eps);
            if (gamma) scale *= gamma[at];
            shift[at] = from<T>(((bias ? to<A>(bias[at]) : A(0)) - mean[at]) * scale + beta[at]);
        }
    }
}
"""


def _fits(r: Request) -> bool:
    return floating(r.dtypes[0]) and all(d == accumulator(r.dtypes[0]) for d in r.dtypes[1:5])


@row(where(_fits), "cuda fold norm")
def _row(
    at: At, a: Any, weight: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, bias: Any = None,
    *, out: Any, shift: Any, work: Any,
) -> Run:  # fmt: skip
    given = (weight, None if a.fix_gamma else gamma, beta, moving_mean, moving_var, bias)
    count, *rest = weight.shape
    sizes = ctypes.c_int64(count), ctypes.c_int64(prod(rest)), a.eps
    text = typed(str(weight.dtype), _TEXT)
    return spread(at.device, text, "fold_norm", max(weight.size, count), *given, *sizes, out, shift)


rows = table((FoldNorm, _row, None))
