"""Source generator for optimizer kernels, from the expression of a step's formula.

A step has two expressions, with weight decay and without; a block chooses when it has read its rates. Values
that are the same for all elements of a weight (rates, functions of the count of updates, constants) are
computed once for each thread: its factors. Numbers of the attributes are an argument of the kernel, so that
one text serves them all.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from ...elementwise.update import Form, Traced
from ..compiler.source import KernelSource, NAMES, shared
from ..compiler.steps import step_lines
from .each import THREADS
from .weights import PACK, text


@functools.lru_cache(maxsize=1024)
def source(
    decaying: Traced, plain: Traced, dtypes: tuple[str, ...], master: bool, rates: str, capacity: int
) -> KernelSource:
    """The kernel "update". dtypes: of weight (and `out`), gradient, states, and with `master` the copy.

    rates: the dtype of rates in device memory. Only the expressions' structure counts, not their numbers.
    Parameters: the table, the weights in it, the numbers (see `numbers`).
    """
    count, wide = len(dtypes), dtypes[-1] if master else dtypes[0]
    compute = "double" if wide == "float64" else "float"
    narrow = wide if wide in ("float16", "bfloat16") else ""
    return KernelSource(
        shared("types", "math", "index")
        + f"typedef {compute} C;\n"
        + text(count + 1, capacity, NAMES[rates])
        + f"struct Numbers {{ double at[{num_numbers(decaying, plain)}]; }};\n"
        + factors("decaying", decaying, narrow, 0)
        + factors("plain", plain, narrow, _num_own(decaying))
        + element("decaying", decaying, count - master)
        + element("plain", plain, count - master)
        + _sweep("decaying", decaying, dtypes, master)
        + _sweep("plain", plain, dtypes, master)
        + f"""
extern "C" __global__ void __launch_bounds__({THREADS}, 2) update(
    const __grid_constant__ Weights weights,
    int count,
    const __grid_constant__ Numbers numbers) {{
    const Weight &w = weights.of[own_weight(weights, count)];
    double lr = w.rate_of(0), wd = w.rate_of(1), t = w.rate_of(2);
    if (lr != lr) return;
    int64 begin = (blockIdx.x - w.first) * w.chunk;
    int64 end = w.size - begin < w.chunk ? w.size : begin + w.chunk;
    if ({_rounded("wd", narrow)} != C(0)) sweep_decaying(w, begin, end, lr, wd, t, numbers.at);
    else sweep_plain(w, begin, end, lr, wd, t, numbers.at);
}}
"""
    )


def _rounded(x: str, narrow: str) -> str:
    """A rate rounded to the type that numpy has it in."""
    return f"to<C>(from<{narrow}>({x}))" if narrow else f"(C){x}"


def _num_own(formula: Traced) -> int:
    return len(formula.constants) + len(formula.numbers)


def num_numbers(decaying: Traced, plain: Traced) -> int:
    return max(1, _num_own(decaying) + _num_own(plain))


def numbers(decaying: Traced, plain: Traced) -> Any:
    """The kernel's argument "numbers": constants and numbers of both expressions."""
    values = [*decaying.constants, *decaying.numbers, *plain.constants, *plain.numbers]
    return (ctypes.c_double * num_numbers(decaying, plain))(*values)


def factors(name: str, formula: Traced, narrow: str, first: int) -> str:
    """C++ function of the factors: rates, functions of the count, and constants."""
    counts = first + len(formula.constants)
    lines = [f"k[0] = {_rounded('lr', narrow)};", f"k[1] = {_rounded('wd', narrow)};"]
    counted = narrow if narrow == "float16" else ""  # numpy meets bfloat16 with float32 there
    lines += [f"k[{2 + i}] = {_rounded(_form(f, counts), counted)};" for i, f in enumerate(formula.counted)]
    at = 2 + len(formula.counted)
    lines += [f"k[{at + i}] = (C)number[{first + i}];" for i in range(len(formula.constants))]
    return (
        f"__device__ __forceinline__ void factors_{name}(\n"
        "    double lr, double wd, double t, const double *number, C *k) {\n"
        + "".join(f"    {line}\n" for line in lines)
        + "}\n"
    )


def _form(form: Form, first: int) -> str:
    if form[0] == "t":
        return "t"
    if form[0] == "number":
        return f"number[{first + form[1]}]"
    a, b = (_form(x, first) for x in form[1:])
    return f"pow({a}, {b})" if form[0] == "pow" else f"({a} - {b})"


def element(name: str, formula: Traced, arrays: int) -> str:
    """C++ of the expression: x are array elements, k the factors, y the new weight and states."""
    e = formula.expression
    lines = [f"C v{i} = x[{i}];" for i in range(arrays)]
    lines += [f"C v{i} = k[{i - arrays}];" for i in range(arrays, e.first_step)]
    lines += step_lines(e)
    lines += [f"y[{i}] = (C)v{x};" for i, x in enumerate(e.outputs)]
    return (
        f"__device__ __forceinline__ void element_{name}(const C *x, const C *k, C *y) {{\n"
        + "".join(f"    {line}\n" for line in lines)
        + "}\n"
    )


def _sweep(name: str, formula: Traced, dtypes: tuple[str, ...], master: bool) -> str:
    """The loops over packs and over the remaining elements."""
    count, out = len(dtypes), len(dtypes)
    read = [count - 1, *range(1, count - 1)] if master else list(range(count))
    states = range(2, count - master)
    written = [(i, n) for n, i in enumerate(states, 1)] + ([(count - 1, 0)] if master else [])
    kinds = [NAMES[d] for d in dtypes]

    def loop(pack: int) -> list[str]:
        lines = [
            f"Pack<{kinds[i]}, {pack}> p{i} = ((const Pack<{kinds[i]}, {pack}> *)w.at[{i}])[at];"
            for i in read
        ]
        lines += [f"Pack<{kinds[i]}, {pack}> q{i};" for i, _ in written]
        lines += [f"Pack<{kinds[0]}, {pack}> made;", "#pragma unroll", f"for (int e = 0; e < {pack}; ++e) {{"]
        lines += [
            f"    C x[{len(read)}] = {{{', '.join(f'to<C>(p{i}.at[e])' for i in read)}}};",
            f"    C y[{1 + len(states)}];",
        ]
        lines += [f"    element_{name}(x, k, y);"]
        lines += [f"    q{i}.at[e] = from<{kinds[i]}>(y[{n}]);" for i, n in written]
        lines += [f"    made.at[e] = from<{kinds[0]}>(y[0]);", "}"]
        lines += [f"((Pack<{kinds[i]}, {pack}> *)w.at[{i}])[at] = q{i};" for i, _ in written]
        lines += [f"if (w.at[{out}]) ((Pack<{kinds[0]}, {pack}> *)w.at[{out}])[at] = made;"]
        return [f"        {line}" for line in lines]

    body = [
        f"    C k[{2 + len(formula.counted) + max(1, len(formula.constants))}];",
        f"    factors_{name}(lr, wd, t, number, k);",
        f"    int64 packs = w.packed ? end / {PACK} : 0;",
        f"    for (int64 at = begin / {PACK} + threadIdx.x; at < packs; at += {THREADS}) {{",
        *loop(PACK),
        "    }",
        f"    int64 rest = w.packed ? packs * {PACK} : begin;",
        f"    for (int64 at = rest + threadIdx.x; at < end; at += {THREADS}) {{",
        *loop(1),
        "    }",
    ]
    return (
        f"__device__ __forceinline__ void sweep_{name}(\n"
        "    const Weight &w, int64 begin, int64 end, double lr, double wd, double t, const double *number) {"
        + "\n"
        + "\n".join(body)
        + "\n}\n"
    )
