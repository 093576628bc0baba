"""Weight and bias of a convolution with a folded norm: one pass over the weight, run with the constants."""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.norm.fold_norm import FoldNorm
from .....ops.scratch import accumulator
from ....base import ChosenKernel, connected, Request
from ...compiler.source import KernelSource, NAMES, shared
from ...handwritten.elements import blocks
from ...runtime.device import Arguments, Device, nothing, pointer, Run

THREADS = 256
FLOATS = ("float32", "float64", "float16", "bfloat16")

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


@functools.cache
def source(dtype: str) -> KernelSource:
    """The kernel "fold_norm" for a weight of `dtype`."""
    wide = "double" if dtype == "float64" else "float"
    types = f"typedef {NAMES[dtype]} T;\ntypedef {wide} A;\n"
    return KernelSource(shared("types", "index", "math") + types + _TEXT)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(r: Request) -> ChosenKernel | None:
        weight, acc = r.dtypes[0], accumulator(r.dtypes[0])
        if str(weight) not in FLOATS or any(d != acc for d in r.dtypes[1:5]):
            return None
        (count, *rest), size = r.inputs[0], prod(r.inputs[0])

        def connect(
            xp: Any, a: Any, weight: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any,
            bias: Any = None, *, out: Any, shift: Any, work: Any,
        ) -> Run:  # fmt: skip
            if count == 0 or (out is None and shift is None):
                return nothing

            def at(x: Any) -> ctypes.c_void_p:
                return pointer(0 if x is None else device.address(x))

            given = (weight, None if a.fix_gamma else gamma, beta, moving_mean, moving_var, bias)
            values: list[Any] = [at(x) for x in given]
            values += [ctypes.c_int64(count), ctypes.c_int64(prod(rest)), ctypes.c_double(a.eps)]
            values += [at(out), at(shift)]
            function = device.function(source(str(weight.dtype)), "fold_norm")
            grid = (blocks(device, max(size, count)), 1, 1)
            return device.launch(function, grid, (THREADS, 1, 1), 0, Arguments(values))

        return connected(connect, 0, "cuda fold norm", like=r.op.forward)

    return {FoldNorm: [row]}
