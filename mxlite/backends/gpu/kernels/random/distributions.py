"""Random numbers of many distributions, whose parameters are numbers or arrays: the CPU's up to rounding.

Only the seed, the step and the parameters are read; an element is written once. Rejected
elements draw anew in a loop of their own, so that no element depends on another.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops import find_op
from .....ops.random import sampling
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import kind, known
from ...compiler.source import KernelSource, shared
from ...compiler.structure import declared
from ...handwritten.each import each
from ...runtime.device import Device, nothing, Run

NUMBERS = 2**32  # elements at most: each has its own counter
LAWS = (
    "uniform normal exponential bernoulli gamma poisson negative_binomial generalized_negative_binomial"
).split()
_NUMBERS = {
    "gamma": ("alpha", "beta"),
    "poisson": ("lam",),
    "negative_binomial": ("k", "p"),
    "generalized_negative_binomial": ("mu", "alpha"),
}
"""Attributes that are the parameters of a distribution."""


class _Draw(ctypes.Structure):
    """The structure Draw of distributions.cuh."""

    _fields_ = declared("distributions", "Draw")


@functools.cache
def source() -> KernelSource:
    return KernelSource(shared("types", "index", "whole", "philox", "distributions"))


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def row(r: Request, law: str, names: tuple[str, ...]) -> ChosenKernel | None:
        """`names` are attributes; without any the inputs are the parameters."""
        (made,), size = r.op.infer_type(r.attrs, *r.dtypes)[1], prod(r.outputs[0])
        if made is None or not known(made, *r.dtypes) or size > NUMBERS:
            return None

        def connect(xp: Any, a: Any, *inputs: Any, out: Any, rng: Any, work: Any) -> Run:
            if out is None or not out.size:
                return nothing
            s = _Draw(device.address(rng.state), stream=rng.stream, law=LAWS.index(law))
            s.out, s.kind, s.each = device.address(out), kind(out.dtype), 1
            if names:
                s.numbers[: len(names)] = [float(getattr(a, n)) for n in names]
            else:
                s.each = out.size // inputs[0].size
                for field, i, x in zip(("first", "second"), (0, 1), inputs):
                    setattr(s, field, device.address(x))
                    s.kinds[i] = kind(x.dtype)
            return each(device, source(), "draw", out.size, s)

        return connected(connect, 0, f"cuda random {law}", like=r.op.forward)

    table: dict[type[Op], list[Any]] = {
        sampling.bernoulli: [lambda r: row(r, "bernoulli", ())],
    }
    for law in LAWS:
        sample: Mapping[str, Any] = vars(sampling)
        if f"_sample_{law}" in sample:
            table[sample[f"_sample_{law}"]] = [lambda r, law=law: row(r, law, ())]
    for law, names in _NUMBERS.items():
        for op in (find_op(f"_random_{law}"), find_op(f"_random_{law}_like")):
            table[op] = [lambda r, law=law, names=names: row(r, law, names)]
    return table
