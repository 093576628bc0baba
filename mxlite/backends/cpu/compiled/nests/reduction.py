"""How generated code joins numbers: sums, products, extremes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..codegen.emitter import Function
from ..codegen.ir import FLOAT, number, Value


class Reduction:
    """How numbers are joined: `begin` is what joins to the other one."""

    def __init__(self, begin: float, join: str, across: Callable[[Function, Value], Value]) -> None:
        self.begin, self.across = begin, across
        self._join = join

    def join(self, f: Function, a: Value, b: Value) -> Value:
        return getattr(f, self._join)(a, b)


def _product(f: Function, a: Value) -> Value:
    name = f"llvm.vector.reduce.fmul.{a.type.short}"
    return f.every(f.call(FLOAT, name, number(FLOAT, 1.0), a, flags="reassoc"))


REDUCTIONS: Mapping[str, Reduction] = {
    "reduce_sum": Reduction(0.0, "add", Function.total),
    "reduce_prod": Reduction(1.0, "mul", _product),
    "reduce_max": Reduction(float("-inf"), "maximum", Function.largest),
    "reduce_min": Reduction(float("inf"), "minimum", Function.smallest),
}
