"""Densities of random numbers, and their gradients: a thread for each sample, and for each parameter."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.random import random_pdf
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, kind
from ...compiler.source import assembled
from ...compiler.structure import declared
from ...handwritten.each import addresses, each
from ...handwritten.fill import zeros
from ...handwritten.layout import MOST
from ...rows import answer, table
from ...runtime.device import Device, InOrder, Run

LAWS = "uniform normal gamma exponential poisson negative_binomial generalized_negative_binomial".split()


class _Density(ctypes.Structure):
    """The structure Density of densities.cuh."""

    _fields_ = declared("densities", "Density")


SOURCE = assembled("types", "math", "index", "whole", "functions", "densities")


def _structure(device: Device, r: Request, sample: Any, parameters: Any) -> _Density:
    law = (r.op.forward_op or r.op).op_name.removeprefix("_random_pdf_")
    made = _Density(**addresses(device, sample=sample, **dict(zip(("first", "second"), parameters))))
    made.each, made.law = sample.size // parameters[0].size, LAWS.index(law)
    made.is_log = r.attrs.is_log
    made.kinds[: 1 + len(parameters)] = [kind(x.dtype) for x in (sample, *parameters)]
    return made


def _fits(r: Request) -> bool:
    return floating(*r.dtypes) and all(0 < prod(s) <= MOST for s in r.inputs)


def _forward(device: Device, r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None

    def connect(a: Any, sample: Any, *parameters: Any, out: Any) -> Run:
        made = _structure(device, r, sample, parameters)
        made.out = device.address(out)
        return each(device, SOURCE, "density", out.size, made)

    return answer(r, connect, 0, "cuda density")


def _backward(device: Device, r: Request) -> ChosenKernel | None:
    if not _fits(r):
        return None
    assert r.op.forward_op is not None
    names = [f"d_{n}" for n in r.op.forward_op.inputs]

    def connect(a: Any, d_out: Any, sample: Any, *parameters: Any, work: Any, **made: Any) -> Run:
        first, *others = (made[n] for n in names)
        if d_out is None:
            return InOrder([zeros(device, x) for x in (first, *others) if x is not None])
        s = _structure(device, r, sample, parameters)
        s.d_out, runs = device.address(d_out), []
        if first is not None:
            s.out = device.address(first)
            runs.append(each(device, SOURCE, "density", sample.size, s))
        if any(x is not None for x in others):
            for name, address in addresses(device, **dict(zip(("d_first", "d_second"), others))).items():
                setattr(s, name, address)
            runs.append(each(device, SOURCE, "density_gradient", parameters[0].size, s))
        return InOrder(runs)

    return answer(r, connect, 0, "cuda density gradient")


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    operators = (getattr(random_pdf, f"_random_pdf_{law}") for law in LAWS)
    return table(device, *((op, _forward, _backward) for op in operators))
