"""Densities of random numbers, and their gradients: the laws of `ops/random/random_pdf.py` as loop nests.

Everything is computed in float64, as in the reference.
"""

from __future__ import annotations

from math import inf, prod
from typing import Any

from .....core.dtype import as_dtype
from .....ops.elementwise.gamma_function import gammaln_values
from .....ops.random import random_pdf
from .....ops.scratch import carve, Piece, scratch_bytes
from .....te.computation import Computation, Tensor
from .....te.steps import Numpy
from ....base import ChosenKernel, Request
from ....nests.build import nests_of
from ....nests.nest import Nests
from ...compiler.kinds import floating
from ...nests import Launches, THREADS
from ...rows import answer, table
from ...runtime.device import Device, InOrder, Run

LAWS = "uniform normal gamma exponential poisson negative_binomial generalized_negative_binomial".split()


class _Numpy(Numpy):
    """The functions of numpy that laws call, on tensors."""

    inf = inf

    def __init__(self, t: Computation) -> None:
        self.t = t

    def step(self, name: str, *operands: Any) -> Tensor:
        return self.t(name, *operands)

    def formula(self, of: Any, x: Tensor) -> Tensor:
        """log gamma or its derivative."""
        is_log = of.__name__ == gammaln_values.__name__
        return self.t("gammaln", x) if is_log else self.t("polygamma", 0.0, x)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return self.t("select", condition, x, y)

    def zeros_like(self, x: Tensor) -> Tensor:
        return self.t.number(0.0)


def _nests(r: Request, output: str) -> Nests | None:
    """The nests that make one output."""
    op: Any = r.op.forward_op or r.op
    rows, (name, *names) = prod(r.inputs[1]), op.inputs
    line, column = (rows, prod(r.inputs[0]) // rows), (rows, 1)
    t = Computation()
    x = t.input(name, line)
    value, *slopes = op.law(_Numpy(t), x, *(t.input(n, column) for n in names))
    share = t.number(1.0) if r.attrs.is_log else t.exp(value)
    if output == "out":
        made = value if r.attrs.is_log else share
    else:
        made = t.input("d_out", line) * share * slopes[op.inputs.index(output.removeprefix("d_"))]
    shape = column if output in [f"d_{n}" for n in names] else line
    if shape == column:
        made = t.reduced_to(made, line, column)
    kinds = dict(zip(op.inputs, map(str, r.dtypes)))
    kinds = {**kinds, **{f"d_{n}": d for n, d in kinds.items()}, "out": kinds[name], "d_out": kinds[name]}
    return nests_of(t, {output: made}, {output: shape}, kinds, {}, None, THREADS, "float64")


def _row(device: Device, r: Request) -> ChosenKernel | None:
    if not floating(*r.dtypes) or not all(map(prod, r.inputs)):
        return None
    found = {n: _nests(r, n) for n in r.op.output_names(r.attrs)}
    pieces: dict[str, list[Piece]] = {}
    for n, nests in found.items():
        if nests is None:
            return None
        pieces[n] = [((size,), as_dtype("float64")) for size in nests.scratch]

    def connect(a: Any, *inputs: Any, work: Any = None, **made: Any) -> Run:
        given, runs = dict(zip(r.op.signature.needs, inputs)), []
        for n, nests in found.items():
            if made[n] is not None and nests is not None:
                arrays = [*(given[x] for x in nests.inputs), made[n], *carve(work, pieces[n])]
                runs.append(Launches(device, nests).call(arrays))
        return InOrder(runs)

    return answer(r, connect, max(map(scratch_bytes, pieces.values())), "cuda density")


rows = table(*((getattr(random_pdf, f"_random_pdf_{law}"), _row, _row) for law in LAWS))
