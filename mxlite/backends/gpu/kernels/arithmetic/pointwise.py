"""Computations without reductions, as one pass over memory each: gradients of reductions, regressions."""

from __future__ import annotations

from .....ops import find_op
from ....base import ChosenKernel, Request
from ....nests.pointwise import pointwise
from ...compiler.kinds import FLOATS
from ...rows import gradient_of, table
from ...runtime.device import Device
from .elementwise import KNOWN, programmed

REGRESSIONS = ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"]
FACTORS = ["_contrib_div_sqrt_dim", "element_mask"]
REDUCTIONS = "logsumexp mean nanprod nansum norm prod sum".split()


def _row(device: Device, r: Request) -> ChosenKernel | None:
    return programmed(device, r, pointwise(r, KNOWN, FLOATS))


rows = table(
    *((find_op(n), _row, None) for n in (*REGRESSIONS, *FACTORS, "SVMOutput", "_spread_like")),
    *((gradient_of(find_op(n)), _row, None) for n in (*REGRESSIONS, *FACTORS, *REDUCTIONS)),
)
