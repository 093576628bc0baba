"""`mxlite explain --kernel`: what an operator computes, and the loops that the CPU runs for it."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ..backends import backend_of
from ..backends.base import Request
from ..backends.cpu.compiled import storable, usable
from ..backends.cpu.compiled.nests.text import nests_as_text
from ..backends.nests.program import Arrays, computation, nests_for
from ..core.device import cpu
from ..core.dtype import as_dtype
from ..core.errors import MXLiteError
from ..graph.attrs import parse_attrs
from ..ops import find_op
from ..te.computation import needed_by, operands_of
from .request import DTYPES
from .source import named_options, parse_shapes
from .words import show

DEFAULT = (64, 512)
"""The shape of a first input that none is given for."""


def run(arguments: argparse.Namespace) -> int:
    """Print the forward kernel of an operator, and that of its gradient."""
    name, options = named_options(arguments.kernel)
    op = find_op(name)
    a = parse_attrs(op, options)
    given = parse_shapes(arguments.shape)
    names = op.input_names(a)
    if unknown := sorted(set(given) - set(names)):
        raise MXLiteError(f"{name} has no input {unknown[0]!r}; its inputs are {', '.join(names)}.")
    if not names:
        raise MXLiteError(f"{name} has no inputs; its kernel fills an array.")
    given.setdefault(names[0], DEFAULT)
    shapes = op.infer_shape(a, *(given.get(n) for n in names))
    first = as_dtype(DTYPES[arguments.dtype])
    dtypes = tuple(d or first for d in op.infer_type(a, first, *(None,) * (len(names) - 1))[0])
    request = Request(op, a, *shapes, dtypes[0], dtypes)
    show(_described(request, f"{name}{shapes[0][0]}"))
    if op.grad_op is not None:
        show("\n" + _described(replace(request, op=op.grad_op), "its gradient"))
    return 0


def _described(r: Request, title: str) -> str:
    kernel = backend_of(cpu()).choose(r.op, r.attrs, r.inputs, r.outputs, r.dtype, r.dtypes)
    text = f"{title}: {kernel.name}, {kernel.workspace} bytes of scratch\n"
    found = computation(r)
    if found is None:
        return f"{text}\nThe operator declares no computation: its kernel is a library's, or written by hand."
    t, outputs, _ = found
    order = sorted(needed_by(t, [x.number for x in outputs.values()]))
    text += "\nWhat is computed:\n\n"
    for i in order:
        kind, *rest = t.nodes[i]
        count = len(operands_of(t.nodes[i]))
        parts = [f"%{x}" for x in rest[:count]] + [str(x) for x in rest[count:]]
        text += f"    %{i} = {kind} {' '.join(parts)}  {t.shapes[i]}\n"
    text += "".join(f"    {n} = %{x.number}\n" for n, x in outputs.items())
    if not usable():
        return text + "\nThere is no compiler here (llvmlite), so numpy evaluates it."
    nests = nests_for(r, Arrays(storable()))
    if nests is None:
        return text + "\nNo loops can be made of it for these types and shapes, so numpy evaluates it."
    note = "" if kernel.is_computed else ", which another kernel is preferred to"
    return text + f"\nLoops{note}:\n\n" + nests_as_text(nests)
