"""Random numbers of many distributions, whose parameters are numbers or arrays: the CPU's up to rounding.

Only the seed, the step and the parameters are read; an element is written once. Rejected
elements draw anew in a loop of their own, so that no element depends on another.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from .....ops import find_op
from .....ops.random import sampling
from ....base import ChosenKernel, Request
from ...compiler.kinds import kind, known
from ...compiler.source import assembled, structure
from ...handwritten.each import addresses, each
from ...rows import answer, table
from ...runtime.device import Device, Run

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


_Draw: Any = structure("distributions", "Draw")


SOURCE = assembled("types", "index", "whole", "philox", "distributions")


def _row(device: Device, r: Request, law: str, names: tuple[str, ...] = ()) -> ChosenKernel | None:
    """`names` are attributes; without any the inputs are the parameters."""
    (made,), size = r.op.infer_type(r.attrs, *r.dtypes)[1], prod(r.outputs[0])
    if made is None or not known(made, *r.dtypes) or size > NUMBERS:
        return None

    def connect(a: Any, *inputs: Any, out: Any, rng: Any, work: Any) -> Run:
        parameters = dict(zip(("first", "second"), inputs)) if not names else {}
        s = _Draw(**addresses(device, state=rng.state, out=out, **parameters))
        s.stream, s.law, s.kind = rng.stream, LAWS.index(law), kind(out.dtype)
        s.numbers[: len(names)] = [float(getattr(a, n)) for n in names]
        s.each = 1 if names else out.size // inputs[0].size
        s.kinds[: len(parameters)] = [kind(x.dtype) for x in parameters.values()]
        return each(device, SOURCE, "draw", out.size, s)

    return answer(r, connect, 0, f"cuda random {law}")


_BY_ARRAY = {n: getattr(sampling, f"_sample_{n}", None) for n in LAWS} | {"bernoulli": sampling.bernoulli}

rows = table(
    *((op, partial(_row, law=law), None) for law, op in _BY_ARRAY.items() if op is not None),
    *(
        (find_op(f"_random_{law}{like}"), partial(_row, law=law, names=names), None)
        for law, names in _NUMBERS.items()
        for like in ("", "_like")
    ),
)
