"""Densities of random numbers, and their gradients: a thread for each sample, and for each parameter."""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.random import random_pdf
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import floating, kind
from ...compiler.source import KernelSource, shared
from ...compiler.structure import declared
from ...handwritten.each import each
from ...handwritten.fill import zeros
from ...handwritten.layout import MOST
from ...runtime.device import Device, InOrder, nothing, Run

LAWS = "uniform normal gamma exponential poisson negative_binomial generalized_negative_binomial".split()


class _Density(ctypes.Structure):
    """The structure Density of densities.cuh."""

    _fields_ = declared("densities", "Density")


@functools.cache
def source() -> KernelSource:
    return KernelSource(shared("types", "math", "index", "whole", "functions", "densities"))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def structure(r: Request, law: str, sample: Any, parameters: Any) -> _Density:
        made = _Density(device.address(sample), each=sample.size // parameters[0].size, law=LAWS.index(law))
        made.is_log = r.attrs.is_log
        for i, x in enumerate((sample, *parameters)):
            made.kinds[i] = kind(x.dtype)
        for name, x in zip(("first", "second"), parameters):
            setattr(made, name, device.address(x))
        return made

    def fits(r: Request) -> bool:
        return floating(*r.dtypes) and all(0 < prod(s) <= MOST for s in r.inputs)

    def forward(r: Request, law: str) -> ChosenKernel | None:
        if not fits(r):
            return None

        def connect(xp: Any, a: Any, sample: Any, *parameters: Any, out: Any) -> Run:
            if out is None:
                return nothing
            made = structure(r, law, sample, parameters)
            made.out = device.address(out)
            return each(device, source(), "density", out.size, made)

        return connected(connect, 0, "cuda density", like=r.op.forward)

    def backward(r: Request, law: str) -> ChosenKernel | None:
        if not fits(r):
            return None
        assert r.op.forward_op is not None
        names = [f"d_{n}" for n in r.op.forward_op.inputs]

        def connect(
            xp: Any, a: Any, d_out: Any, sample: Any, *parameters: Any, work: Any, **made: Any
        ) -> Run:
            found = [made[n] for n in names]
            if d_out is None:
                return InOrder([zeros(device, x) for x in found if x is not None])
            s = structure(r, law, sample, parameters)
            s.d_out, runs = device.address(d_out), []
            if found[0] is not None:
                s.out = device.address(found[0])
                runs.append(each(device, source(), "density", sample.size, s))
            if any(x is not None for x in found[1:]):
                for name, x in zip(("d_first", "d_second"), found[1:]):
                    setattr(s, name, None if x is None else device.address(x))
                runs.append(each(device, source(), "density_gradient", parameters[0].size, s))
            return InOrder(runs)

        return connected(connect, 0, "cuda density gradient", like=r.op.forward)

    table: dict[type[Op], list[Any]] = {}
    for law in LAWS:
        op = getattr(random_pdf, f"_random_pdf_{law}")
        table[op] = [lambda r, law=law: forward(r, law)]
        table[op.grad_op] = [lambda r, law=law: backward(r, law)]
    return table
