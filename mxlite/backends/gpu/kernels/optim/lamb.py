"""LAMB in two launches, however many weights there are: norms of each layer, then the step.

    norms   reads weight, gradient, mean, var; writes mean, var, and for every block the sums of squares of
            its part of the weight and of the direction, in double
    step    adds up the sums of its layer, block by block in their order; reads weight, mean, var, recomputes
            the direction, writes the weight

So 4 + 3 arrays are read and 2 + 1 written. A layer has at most MOST_PARTS blocks, whose number follows from
its size: every block of the second launch adds all of its layer's sums, and the bits are the same on every
device.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

from .....graph.opdef import DType
from .....ops import (
    lamb_update,
    lamb_update_phase1,
    lamb_update_phase2,
    mp_lamb_update_phase1,
    mp_lamb_update_phase2,
)
from .....ops.optim.lamb_updates import direction
from .....ops.optim.update import settings
from ....base import ChosenKernel, Request
from ....elementwise.update import trace_both, Traced, traced
from ...compiler.kinds import FLOATS
from ...compiler.source import assembled, kernel, KernelSource, NAMES, shared
from ...handwritten.each import launch, spread, THREADS
from ...handwritten.step_source import element, factors, num_numbers, numbers
from ...handwritten.weights import capacity_for, CHUNK, tables, text, Weight
from ...rows import answer, table
from ...runtime.device import Device, InOrder, nothing, pointer, Run
from .update import rows_by, UpdateStep

MOST_PARTS = 1024  # blocks of a layer


@functools.lru_cache(maxsize=256)
def source(
    first: tuple[Traced, Traced],
    second: tuple[Traced, Traced],
    dtypes: tuple[str, ...],
    master: bool,
    capacity: int,
) -> KernelSource:
    """The kernels "lamb_norms" and "lamb_step". dtypes: of weight, gradient, mean, var (and copy).

    first: weight, grad, mean, var -> direction, mean, var, with decay and without; second: weight, mean,
    var -> direction. Parameters: the table, the weights in it, numbers of first and second, sums, bounds of
    the norm.
    """
    wide = dtypes[-1] if master else dtypes[0]
    kinds = [NAMES[d] for d in dtypes]
    weight, mean, var, out = (4 if master else 0), 2, 3, len(dtypes)
    parts = [shared("types", "math", "index"), f"typedef {'double' if wide == 'float64' else 'float'} C;\n"]
    parts += [f"#define THREADS {THREADS}\n", text(len(dtypes) + 1, capacity), shared("lamb")]
    for kind, pair, arrays in (("Numbers", first, 4), ("More", second, 3)):
        parts.append(f"struct {kind} {{ double at[{num_numbers(*pair)}]; }};\n")
        begin = 0
        for name, formula in zip(("decaying", "plain"), pair):
            parts.append(factors(f"{name}_{kind}", formula, "", begin))
            parts.append(element(f"{name}_{kind}", formula, arrays))
            begin += len(formula.constants) + len(formula.numbers)
    head = f"""
extern "C" __global__ void __launch_bounds__({THREADS}) NAME(
    const __grid_constant__ Weights weights,
    int count,
    const __grid_constant__ Numbers numbers,
    const __grid_constant__ More more,
    double *sums,
    double lower,
    double upper) {{
    const Weight &w = weights.of[own_weight(weights, count)];
    double lr = w.rate_of(0), wd = w.rate_of(1), t = w.rate_of(2);
    if (lr != lr) return;
    int64 begin = (blockIdx.x - w.first) * w.chunk;
    int64 end = w.size - begin < w.chunk ? w.size : begin + w.chunk;
    const {kinds[weight]} *weight = (const {kinds[weight]} *)w.at[{weight}];
    {kinds[mean]} *mean = ({kinds[mean]} *)w.at[{mean}], *var = ({kinds[var]} *)w.at[{var}];
"""
    norms = f"""
    const {kinds[1]} *grad = (const {kinds[1]} *)w.at[1];
    double own = 0, step = 0;
    C k[{_num_factors(first)}];
    if ((C)wd != C(0)) factors_decaying_Numbers(lr, wd, t, numbers.at, k);
    else factors_plain_Numbers(lr, wd, t, numbers.at, k);
    for (int64 i = begin + threadIdx.x; i < end; i += {THREADS}) {{
        C x[4] = {{to<C>(weight[i]), to<C>(grad[i]), to<C>(mean[i]), to<C>(var[i])}}, y[3];
        if ((C)wd != C(0)) element_decaying_Numbers(x, k, y);
        else element_plain_Numbers(x, k, y);
        mean[i] = y[1];
        var[i] = y[2];
        own += (double)x[0] * (double)x[0];
        step += (double)y[0] * (double)y[0];
    }}
    block_sums(own, step);
    if (threadIdx.x == 0) {{
        sums[2 * (int64)blockIdx.x] = own;
        sums[2 * (int64)blockIdx.x + 1] = step;
    }}
}}
"""
    masters = f"(({kinds[weight]} *)weight)[i] = made;" if master else ""
    step = f"""
    double own = 0, step = 0;
    int64 parts = (w.size + w.chunk - 1) / w.chunk;
    for (int64 p = w.first + threadIdx.x; p < w.first + parts; p += {THREADS}) {{
        own += sums[2 * p];
        step += sums[2 * p + 1];
    }}
    block_sums(own, step);
    C factor = (C)lr * (C)layer_ratio(sqrt(own), sqrt(step), lower, upper);
    C k[{_num_factors(second)}];
    if ((C)wd != C(0)) factors_decaying_More(lr, wd, t, more.at, k);
    else factors_plain_More(lr, wd, t, more.at, k);
    for (int64 i = begin + threadIdx.x; i < end; i += {THREADS}) {{
        C x[3] = {{to<C>(weight[i]), to<C>(mean[i]), to<C>(var[i])}}, y[1];
        if ((C)wd != C(0)) element_decaying_More(x, k, y);
        else element_plain_More(x, k, y);
        C made = x[0] - y[0] * factor;
        {masters}
        if (w.at[{out}]) (({kinds[0]} *)w.at[{out}])[i] = from<{kinds[0]}>(made);
    }}
}}
"""
    return KernelSource(
        "".join(parts) + head.replace("NAME", "lamb_norms") + norms + head.replace("NAME", "lamb_step") + step
    )


def _num_factors(pair: tuple[Traced, Traced]) -> int:
    return max(2 + len(f.counted) + len(f.constants) for f in pair)


class Layers:
    """The formula with its numbers, for layers of these types; a counterpart of `update.Step`."""

    def __init__(self, device: Device, attrs: Any, dtypes: tuple[DType, ...], master: bool) -> None:
        wide = dtypes[-1] if master else dtypes[0]
        self.device, self.master, self.attrs = device, master, attrs
        self.first = trace_both(lamb_update_phase1, attrs, wide)
        own = settings(lamb_update_phase1, attrs)
        self.second = tuple(traced(direction, own, 3, wide, decays) for decays in (True, False))
        self.dtypes = tuple(d.name for d in dtypes)

    def weight(self, arrays: Sequence[Any], out: Any, **rates: Any) -> Weight:
        """One layer. `arrays` are weight, gradient, mean, var and, if there is one, the float32 copy."""
        device, size = self.device, arrays[0].size
        addresses = [device.address(x) for x in arrays] + [0 if out is None else device.address(out)]
        return Weight(tuple(addresses), size, False, chunk=chunk_of(size), **rates)

    def run(self, weights: Sequence[Weight], work: Any) -> Run:
        """The call that updates these layers. `work` has 16 bytes for each of their blocks."""
        device = self.device
        more = [numbers(*self.first), numbers(*self.second), pointer(device.address(work))]
        more += [ctypes.c_double(self.attrs.lower_bound), ctypes.c_double(self.attrs.upper_bound)]
        capacity = capacity_for(len(self.dtypes) + 1, len(weights), more)
        first, second = ((a.shape, b.shape) for a, b in (self.first, self.second))
        made = source(first, second, self.dtypes, self.master, capacity)
        runs: list[Run] = []
        for of_weights, count, blocks in tables(weights, capacity):
            if blocks == 0:
                continue
            for name in ("lamb_norms", "lamb_step"):
                runs.append(launch(device, made, name, blocks, THREADS, of_weights, count, *more))
        return InOrder(runs) if runs else nothing

    @staticmethod
    def workspace(sizes: Sequence[int]) -> int:
        """Bytes for the sums of layers of so many elements."""
        return sum(16 * -(-n // chunk_of(n)) for n in sizes)


def chunk_of(size: int) -> int:
    """Elements of a block: whole multiples of CHUNK, so that a layer has at most MOST_PARTS blocks."""
    return max(1, -(-size // (CHUNK * MOST_PARTS))) * CHUNK


def _layers(
    device: Device, step: Any, attrs: Any, dtypes: tuple[DType, ...], master: bool, rates: str
) -> Layers | None:
    """None for 16-bit weights without a float32 copy: numpy sums squares in 16 bits, where they overflow."""
    wide = dtypes[-1] if master else dtypes[0]
    return Layers(device, attrs, dtypes, master) if wide.itemsize > 2 else None


# -- the two phases as operators of their own


@functools.lru_cache(maxsize=16)
def phase2_source(dtypes: tuple[str, ...], compute: str) -> KernelSource:
    """The kernel "phase2". dtypes: of the weight that is read, g, r1, r2 and `out`.

    `wide` gets the new weight unrounded, `out` rounded; either may be null.
    """
    weight, g, r1, r2, out = (NAMES[d] for d in dtypes)
    parameters = [f"const {weight} *weight", f"const {g} *g", f"const {r1} *r1", f"const {r2} *r2"]
    parameters += [f"{weight} *wide", f"{out} *out", "int64 size"]
    parameters += ["double lr", "double lower", "double upper"]
    body = [
        f"typedef {NAMES[compute]} C;",
        "C factor = (C)(lr * layer_ratio(to<double>(*r1), to<double>(*r2), lower, upper));",
        "MX_EACH(i, size) {",
        "    C made = to<C>(weight[i]) - to<C>(g[i]) * factor;",
        f"    if (wide) wide[i] = from<{weight}>(made);",
        f"    if (out) out[i] = from<{out}>(made);",
        "}",
    ]
    threads, made = f"#define THREADS {THREADS}\n", kernel("phase2", parameters, body, THREADS)
    return assembled("types", "math", "index", threads, "lamb", made)


def _phase1(device: Device, r: Request) -> ChosenKernel | None:
    """mp_lamb_update_phase1: its direction is float32, its weight is the copy, which is not changed."""
    _, grad, mean, var, copy = r.dtypes
    if grad.name not in FLOATS:
        return None
    step = UpdateStep(device, lamb_update_phase1, r.attrs, (copy, grad, mean, var), False, "float64")

    def connect(a: Any, *arrays: Any, out: Any, work: Any = None) -> Run:
        _, grad, mean, var, copy = arrays
        return step.run([step.weight((copy, grad, mean, var), out, rates=(1.0, float(a.wd), float(a.t)))])

    return answer(r, connect, 0, "cuda lamb_update_phase1", mutates=True)


def _phase2(device: Device, r: Request) -> ChosenKernel | None:
    master = r.op is mp_lamb_update_phase2
    out_type, g, r1, r2 = r.dtypes[:4]
    weight = r.dtypes[4] if master else out_type
    kinds = tuple(d.name for d in (weight, g, r1, r2, out_type))
    if weight.itemsize == 2 or not set(kinds) <= FLOATS:
        return None
    text = phase2_source(kinds, weight.name)

    def connect(a: Any, *arrays: Any, out: Any, work: Any = None) -> Run:
        read = arrays[4] if master else arrays[0]
        arrays = read, *arrays[1:4], read if master else None, out
        numbers = map(float, (a.lr, a.lower_bound, a.upper_bound))
        return spread(device, text, "phase2", read.size, *arrays, ctypes.c_int64(read.size), *numbers)

    return answer(r, connect, 0, "cuda lamb_update_phase2", mutates=True)


rows = table(
    *rows_by(_layers, lambda step: step is lamb_update),
    (mp_lamb_update_phase1, _phase1, None),
    (lamb_update_phase2, _phase2, None),
    (mp_lamb_update_phase2, _phase2, None),
)
