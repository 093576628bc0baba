"""Densities of random numbers and their gradients, as generated code."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.random import random_pdf
from ....base import ChosenKernel, connected, Request, Row
from ...compiled import call, storable, usable
from ...compiled.random.densities import code, DensityForm, Law
from ...compiled.random.parameters import arguments, parameters_of, threads_for
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of

LEAST = 512  # samples from which on compiling code pays
COST = 64  # bytes that could be moved in the time of one sample


def _fits(r: Request) -> bool:
    known = (storable() & {"float32", "float16", "bfloat16"}) | {"float64"}
    sizes = [prod(s) for s in r.inputs]
    return usable() and {d.name for d in r.dtypes} <= known and 0 not in sizes and sizes[0] >= LEAST


def _forward(law: Law, r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None

    def connect(xp: Any, a: Any, sample: Any, *parameters: Any, out: Any) -> Run:
        if out is None:
            return in_turn(())
        p = parameters_of(parameters, sample.size)
        form = DensityForm(law, a.is_log, sample.dtype.name, out.dtype.name, p)
        args = [*arguments(p, parameters, sample.size), address_of(sample), address_of(out)]
        arrays = (sample, out, *parameters)
        return call(code(form), "density", args, threads_for(sample.size, COST), keep=arrays)

    return connected(connect, 0, "compiled density", like=r.op.forward)


def _backward(law: Law, r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None
    assert r.op.forward_op is not None
    names = [f"d_{n}" for n in r.op.forward_op.inputs]

    def connect(
        xp: Any, a: Any, d_out: Any, sample: Any, *parameters: Any, work: Any = None, **made: Any
    ) -> Run:
        found = [made[n] for n in names]
        p = parameters_of(parameters, sample.size)
        kinds = tuple("" if x is None else x.dtype.name for x in found)
        form = DensityForm(law, a.is_log, sample.dtype.name, d_out.dtype.name, p, kinds)
        args = [*arguments(p, parameters, sample.size, whole=True), address_of(sample), address_of(d_out)]
        args += [address_of(x) for x in found]
        arrays = (sample, d_out, *parameters, *found)
        threads = threads_for(sample.size, COST) if any(kinds) else 1
        return call(code(form), "density", args, threads, keep=arrays)

    return connected(connect, 0, "compiled density gradient", like=r.op.forward)


def _chosen_by() -> dict[type[Op], Row]:
    table: dict[type[Op], Row] = {}
    for op in vars(random_pdf).values():
        law = getattr(op, "law", None)
        if law is not None:
            table[op] = partial(_forward, law)
            table[op.grad_op] = partial(_backward, law)
    return table


SERVES = ("ops.random.random_pdf",)
ROWS = kernel_rows(GENERATED, _chosen_by())
