"""Functions of one array that are formulas in float64, the gamma function's kin and the inverse of the error
function, and their gradients: the reference kernels' formulas, traced.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ....core.dtype import as_dtype
from ....core.machine_code import native
from ....graph.opdef import Op
from ....ops import digamma, erfinv, gamma, gammaln, polygamma
from ....ops.elementwise.gamma_function import digamma_values, gamma_values, gammaln_values, polygamma_values
from ....te.error_function import erfinv_values
from .calls.team import load
from .codegen.doubles import Doubles
from .codegen.emitter import Module
from .codegen.ir import Value
from .codegen.traced import Tracer

Formula = Callable[..., Any]

FORMULAS: Mapping[type[Op], tuple[tuple[str, ...], Formula]] = {
    erfinv: (("data",), lambda xp, a, y: erfinv_values(xp, y, a.itemsize)),
    gamma: (("data",), lambda xp, a, x: gamma_values(xp, x, itemsize=a.itemsize)),
    gammaln: (("data",), lambda xp, a, x: gammaln_values(xp, x, itemsize=a.itemsize)),
    digamma: (("data",), lambda xp, a, x: digamma_values(xp, x, itemsize=a.itemsize)),
    polygamma: (("data",), lambda xp, a, x: polygamma_values(xp, a.n, x)),
}
"""For each operator its inputs, and its formula (xp, form, *inputs)."""

GRADIENTS: Mapping[type[Op], tuple[tuple[str, ...], Formula]] = {
    erfinv: (("d_out", "out"), lambda xp, a, d, y: d * (xp.exp(y * y) * (math.sqrt(math.pi) / 2))),
    gamma: (
        ("d_out", "data", "out"),
        lambda xp, a, d, x, y: d * (y * digamma_values(xp, x, itemsize=a.itemsize)),
    ),
    gammaln: (("d_out", "data"), lambda xp, a, d, x: d * digamma_values(xp, x, itemsize=a.itemsize)),
    digamma: (("d_out", "data"), lambda xp, a, d, x: d * polygamma_values(xp, 1, x)),
    polygamma: (("d_out", "data"), lambda xp, a, d, x: d * polygamma_values(xp, a.n + 1, x)),
}


class SpecialForm(NamedTuple):
    """Parameters that the code depends on."""

    op: type[Op]
    is_gradient: bool
    n: int  # polygamma's
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of a number; the formulas' accuracy depends on them."""
        return as_dtype(self.dtype).itemsize


def inputs_of(form: SpecialForm) -> tuple[str, ...]:
    """Names of the arrays that are read."""
    return (GRADIENTS if form.is_gradient else FORMULAS)[form.op][0]


@functools.lru_cache(maxsize=256)
def code(form: SpecialForm) -> native.Code:
    """The code with one function, `special`. Arguments: elements, the arrays that are read, the result."""
    names, formula = (GRADIENTS if form.is_gradient else FORMULAS)[form.op]
    module = Module()
    f = module.function("special")
    d = Doubles(f)
    xp = Tracer(d)
    pointers = [f.pointer(1 + k) for k in range(len(names) + 1)]

    def body(index: Value, mask: Value | None) -> None:
        values = [xp.real(d.load_as(p, index, form.dtype, mask)) for p in pointers[:-1]]
        d.store_as(xp.value(formula(xp, form, *values)), pointers[-1], index, form.dtype, mask)

    f.sweep(*f.share(f.integer(0), f.width), body)
    f.done()
    f.prune()
    return load(module)
