"""The names of operations on arrays, with facts for the profiler."""

from __future__ import annotations

from math import prod
from typing import Self, TYPE_CHECKING

from ...backends import Facts, flops_of

if TYPE_CHECKING:
    from .plan import Plan


class CallName(str):
    """The name of an operation for the engine, which a profiler can ask for more: `facts()`."""

    __slots__ = ("_plan", "_told")
    _plan: Plan
    _told: Facts | None

    def __new__(cls, plan: Plan) -> Self:
        self = super().__new__(cls, plan.op.op_name)
        self._plan = plan
        self._told = None
        return self

    def facts(self) -> Facts:
        """The operator, kernel and cost of the call; the same object each time."""
        if self._told is None:
            plan = self._plan
            nbytes = sum(prod(shape) * dtype.itemsize for shape, dtype in (*plan.kinds, *plan.makes))
            self._told = Facts(
                str(self),
                str(self),
                plan.kernel,
                str(plan.dtype),
                flops_of(plan.op, plan.attrs, plan.shapes),
                nbytes,
            )
        return self._told
