"""Operators that declare what they compute, from which their kernels of numpy follow."""

from __future__ import annotations

from typing import Any, ClassVar

from ..graph.opdef import DType, Op, Shapes
from ..te.operator import forward_call, gradient_call, is_derived, scratch_of


class Declared(Op):
    """Base: an operator with `compute`, whose forward, backward and scratch are derived from it.

    An operator that has a kernel of its own for one of the two directions defines that, with its scratch.
    """

    abstract = True
    backward_reads: ClassVar[tuple[str, ...]] = ()  # what is kept for backward, as its parameters would say
    gradients: ClassVar[tuple[str, ...]] = ("data",)  # inputs that have a gradient, where backward reads

    def __init_subclass__(cls) -> None:
        if cls.compute is not None:
            if is_derived(getattr(cls, "forward", None)) or not hasattr(cls, "forward"):
                cls.forward = staticmethod(forward_call(cls))
            if cls.backward_reads and (cls.backward is None or is_derived(cls.backward)):
                makes = tuple(f"d_{n}" for n in cls.gradients)
                cls.backward = staticmethod(gradient_call(cls, cls.backward_reads, makes))
        super().__init_subclass__()

    @classmethod
    def workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        return scratch_of(cls, a, (inputs, outputs), dtype) if is_derived(cls.forward) else 0

    @classmethod
    def backward_workspace(cls, a: Any, inputs: Shapes, outputs: Shapes, dtype: DType) -> int:
        if cls.grad_op is None or not is_derived(cls.backward):
            return 0
        return scratch_of(cls.grad_op, a, (inputs, outputs), dtype)
