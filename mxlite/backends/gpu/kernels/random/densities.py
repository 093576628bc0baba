"""Densities of random numbers, and their gradients: a thread for each sample, and for each parameter."""

from __future__ import annotations

from math import prod
from typing import Any

from .....ops.random import random_pdf
from ...compiler.kinds import floating, kind
from ...compiler.source import assembled, structure
from ...handwritten.each import addresses, each
from ...handwritten.fill import zeros
from ...handwritten.layout import MOST
from ...rows import At, row, table, where
from ...runtime.device import InOrder, Run

LAWS = "uniform normal gamma exponential poisson negative_binomial generalized_negative_binomial".split()


_Density: Any = structure("densities", "Density")


SOURCE = assembled("types", "math", "index", "whole", "functions", "densities")


def _structure(at: At, sample: Any, parameters: Any) -> Any:
    device, r = at
    law = (r.op.forward_op or r.op).op_name.removeprefix("_random_pdf_")
    made = _Density(**addresses(device, sample=sample, **dict(zip(("first", "second"), parameters))))
    made.each, made.law = sample.size // parameters[0].size, LAWS.index(law)
    made.is_log = r.attrs.is_log
    made.kinds[: 1 + len(parameters)] = [kind(x.dtype) for x in (sample, *parameters)]
    return made


_at = where(lambda r: floating(*r.dtypes) and all(0 < prod(s) <= MOST for s in r.inputs))


@row(_at, "cuda density")
def _forward(at: At, a: Any, sample: Any, *parameters: Any, out: Any) -> Run:
    made = _structure(at, sample, parameters)
    made.out = at.device.address(out)
    return each(at.device, SOURCE, "density", out.size, made)


@row(_at, "cuda density gradient")
def _backward(at: At, a: Any, d_out: Any, sample: Any, *parameters: Any, work: Any, **made: Any) -> Run:
    device, of = at.device, at.r.op.forward_op
    assert of is not None
    first, *others = (made[f"d_{n}"] for n in of.inputs)
    if d_out is None:
        return InOrder([zeros(device, x) for x in (first, *others) if x is not None])
    s = _structure(at, sample, parameters)
    s.d_out, runs = device.address(d_out), []
    if first is not None:
        s.out = device.address(first)
        runs.append(each(device, SOURCE, "density", sample.size, s))
    if any(x is not None for x in others):
        for name, address in addresses(device, **dict(zip(("d_first", "d_second"), others))).items():
            setattr(s, name, address)
        runs.append(each(device, SOURCE, "density_gradient", parameters[0].size, s))
    return InOrder(runs)


rows = table(*((getattr(random_pdf, f"_random_pdf_{law}"), _forward, _backward) for law in LAWS))
