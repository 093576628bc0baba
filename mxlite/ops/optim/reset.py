"""Reset of several arrays to 0 in one call, for accumulated gradients."""

from __future__ import annotations

from typing import Any

from ...core.record import record
from ...graph.opdef import Op
from ..elementwise.finite import counted_names


class reset_arrays(Op):
    """Set every element of all arrays to 0, in place.

    args: `num_arrays` arrays (...) of any types. No output.
    """

    variadic = "args"
    outputs = ()
    recomputable = False

    @record
    class Attrs:
        num_arrays: int = 0
        num_args: int = 0

    input_names = classmethod(counted_names)

    @classmethod
    def mutated(cls, a: Any) -> tuple[str, ...]:
        return cls.input_names(a)

    @staticmethod
    def infer_shape(a, *shapes):
        return shapes, ()

    @classmethod
    def infer_type(cls, a, *dtypes):
        return dtypes, ()

    @staticmethod
    def forward(xp, a, *args):
        for x in args:
            x.fill(0)
