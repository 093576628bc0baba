"""Elementwise operators that are no expressions, and those of integers: one kernel per compute type.

The formula, the types and the broadcasting are arguments of the launch, so that some sixty operators are
three sources. A thread computes an element; arrays are read and written once. Gradients of broadcast inputs
are computed whole in scratch and reduced.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite, prod
from typing import Any

import numpy as np

from .....graph.ir import Shape
from .....graph.opdef import Op
from .....ops import find_op
from .....ops.blocks import weak
from .....ops.index.index import element_mask
from .....ops.scratch import accumulator
from ....base import ChosenKernel, Request
from ....elementwise.formula import view_of
from ....elementwise.program import broadcasts, collapsed, kinds_of
from ...compiler.kinds import floating, kind, known, wide
from ...compiler.source import assembled, fields_of, kernel, KernelSource, typedefs
from ...handwritten.each import each, THREADS
from ...handwritten.fold import Fold
from ...handwritten.formulas import FLOAT, GRADIENTS, WHOLE
from ...handwritten.layout import Divisor, MOST
from ...rows import answer, gradient_of, table
from ...runtime.device import Device, InOrder, Run
from ...runtime.scratch import padded

MOST_AXES, MOST_INPUTS = 6, 4

_FLOATING = list(dict.fromkeys([*FLOAT.values(), *(t for g in GRADIENTS.values() for t in g.values())]))
_WHOLE = list(dict.fromkeys(WHOLE.values()))

_HEAD = """
enum { MOST_AXES = 6, MOST_INPUTS = 4 };

// Inputs of up to three types, stretched where a stride is 0; of a gradient the last one is d.
struct Formula {
    const void *in[MOST_INPUTS];
    void *out;
    int64 strides[MOST_INPUTS][MOST_AXES];
    int64 whole;
    double number;
    Divisor lengths[MOST_AXES];
    int kinds[MOST_INPUTS];
    int kind, operation, inputs, axes;
};

__device__ __forceinline__ C read(const Formula &f, int i, const int64 *places) {
#if WHOLE
    if (f.kinds[i] <= BFLOAT16) return number(f.in[i], f.kinds[i], places[i]) != 0;  // a condition
    return whole(f.in[i], f.kinds[i], places[i]);
#else
    return (C)number(f.in[i], f.kinds[i], places[i]);
#endif
}
"""


@functools.lru_cache(maxsize=3)
def source(compute: str) -> KernelSource:
    """The kernel "formula" for numbers computed as "float", "double" or "int64"."""
    texts = _WHOLE if compute == "int64" else _FLOATING
    body = [
        "MX_EACH(at, n) {",
        "    int64 places[MOST_INPUTS] = {0, 0, 0, 0};",
        "    uint32 rest = (uint32)at;",
        "    for (int axis = f.axes - 1; axis >= 0; --axis) {",
        "        uint32 left = rest / f.lengths[axis], i = rest - left * f.lengths[axis].n;",
        "        rest = left;",
        '        _Pragma("unroll") for (int k = 0; k < MOST_INPUTS; ++k)',
        "            places[k] += i * f.strides[k][axis];",
        "    }",
        "    C x = f.in[0] ? read(f, 0, places) : C(0), y = f.in[1] ? read(f, 1, places) : C(0);",
        "    C z = f.in[2] ? read(f, 2, places) : C(0), d = f.in[3] ? read(f, 3, places) : C(0), r = C(0);",
        "    C k = WHOLE ? (C)f.whole : (C)f.number;",
        "    switch (f.operation) {",
        *(f"        case {i}: r = {text}; break;" for i, text in enumerate(texts)),
        "    }",
        "    put(f.out, f.kind, at, r);",
        "}",
    ]
    types = typedefs(C=compute) + f"#define WHOLE {int(compute == 'int64')}\n" + _HEAD
    made = kernel("formula", ["int64 n", "Formula f"], body, THREADS)
    return assembled("types", "math", "index", "whole", "functions", types, made)


class _Formula(ctypes.Structure):
    """The structure Formula above."""

    _fields_ = fields_of(_HEAD, "Formula", Divisor=Divisor)


class Apply:
    """A formula on inputs that broadcast to `shape`; `places` says which of x, y, z, d each input is."""

    def __init__(
        self,
        device: Device,
        text: str,
        compute: str,
        views: Sequence[Shape],
        shape: Shape,
        number: float,
        places: Sequence[int],
    ) -> None:
        self.device, self.compute, self.size = device, compute, prod(shape)
        lengths, strides = collapsed(shape, views)
        self.fits = (
            len(lengths) <= MOST_AXES and 0 < self.size <= MOST and all(broadcasts(v, shape) for v in views)
        )
        if not self.fits:
            return
        made = _Formula(axes=len(lengths), inputs=len(views))
        made.operation = (_WHOLE if compute == "int64" else _FLOATING).index(text)
        made.number = number if compute != "int64" else 0.0
        made.whole = int(number) if compute == "int64" else 0
        for axis, n in enumerate(lengths):
            made.lengths[axis] = Divisor(n)
            for place, s in zip(places, strides):
                made.strides[place][axis] = s[axis]
        self.made, self.places = made, places

    def call(self, inputs: Sequence[Any], out: Any) -> Run:
        device, made = self.device, _Formula.from_buffer_copy(self.made)
        for place, x in zip(self.places, inputs):
            getattr(made, "in")[place], made.kinds[place] = device.address(x), kind(x.dtype)
        made.out, made.kind = device.address(out), kind(out.dtype)
        return each(device, source(self.compute), "formula", self.size, made)


def _number(r: Request, op: type[Op]) -> float | None:
    """The number of the attributes, as the formula reads it; None if there is none."""
    a, dtype = r.attrs, r.dtypes[0]
    if op.op_name == "polygamma":
        return float(a.n)
    if not hasattr(a, "scalar"):
        return 0.0
    if dtype.kind in "iub":
        return weak(np.empty(0, dtype), a.scalar) if isfinite(a.scalar) and dtype.kind != "b" else None
    return float(np.asarray(a.scalar).astype(dtype)) if dtype.itemsize == 2 else float(a.scalar)


def _view(op: type[Op], r: Request, name: str, shape: Shape, whole: Shape) -> Shape:
    if op is element_mask and name == "rhs":
        return (*shape, *(1,) * (len(whole) - len(shape)))
    return view_of(op, r.attrs, name, shape, whole)


def _forward(device: Device, r: Request, whole: bool) -> ChosenKernel | None:
    op, number = r.op, _number(r, r.op)
    texts: Mapping[str, str] = WHOLE if whole else FLOAT
    made = op.infer_type(r.attrs, *r.dtypes)[1][0]
    values = r.dtypes[1:] if op.op_name == "where" else r.dtypes
    kinds_fit = all(d.kind in "iub" for d in values) if whole else floating(*values)
    if number is None or made is None or not known(*r.dtypes, made) or not kinds_fit:
        return None
    text = texts[op.op_name]
    if made.kind == "b":
        text = {"~x": WHOLE["logical_not"]}.get(text, text)
    (shape,) = r.outputs
    names = op.input_names(r.attrs)
    views = [_view(op, r, n, s, shape) for n, s in zip(names, r.inputs)]
    apply = Apply(
        device, text, "int64" if whole else wide(*r.dtypes), views, shape, number, range(len(views))
    )
    if not apply.fits:
        return None

    def connect(a: Any, *inputs: Any, out: Any, **services: Any) -> Run:
        return apply.call(inputs, out)

    return answer(r, connect, 0, "cuda formula")


def _backward(device: Device, r: Request) -> ChosenKernel | None:
    op, kinds = r.op.forward_op, kinds_of(r)
    assert op is not None
    number = _number(r, op)
    if number is None or kinds is None or not floating(*r.dtypes) or not prod(r.outputs[0]):
        return None
    (whole,), needs = r.outputs, r.op.signature.needs
    views = [_view(op, r, n, kinds[n][0], whole) for n in needs]
    places = [3 if n == "d_out" else i for i, n in enumerate(needs, -1)]
    acc = accumulator(r.dtype)
    parts: dict[str, tuple[Apply, Fold | None]] = {}
    for name, text in GRADIENTS[op.op_name].items():
        if not r.is_used(name):
            continue
        apply = Apply(device, text, wide(*r.dtypes), views, whole, number, places)
        target = kinds[name][0]
        fold = None
        if prod(target) != prod(whole):
            aligned = (1,) * (len(whole) - len(target)) + tuple(target)
            fold = Fold(device, acc, whole, aligned)
        if not apply.fits or (fold is not None and not fold.fits):
            return None
        parts[name] = apply, fold
    held = padded(prod(whole) * acc.itemsize)
    folds = [f.workspace for _, f in parts.values() if f is not None]

    def connect(a: Any, *inputs: Any, work: Any = None, **made: Any) -> Run:
        runs = []
        # An output that may overwrite an input is computed last.
        for name, (apply, fold) in sorted(parts.items(), key=lambda p: p[1][1] is None):
            into = made[name]
            if into is None:
                continue
            if fold is None:
                runs.append(apply.call(inputs, into))
            else:
                box = work[: prod(whole) * acc.itemsize].view(acc).reshape(whole)
                runs += [apply.call(inputs, box), fold.call(box, into, work[held:])]
        return InOrder(runs)

    return answer(r, connect, held + max(folds) if folds else 0, "cuda formula gradient")


rows = table(
    *((find_op(n), partial(_forward, whole=False), None) for n in FLOAT),
    *((find_op(n), partial(_forward, whole=True), None) for n in WHOLE),
    *((gradient_of(find_op(n)), _backward, None) for n in GRADIENTS),
)
