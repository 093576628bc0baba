"""Operators of each element, which declare their steps and nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...te.steps import STEPS
from ..declared import Declared
from .derivative import derivative_of


class Elementwise(Declared):
    """Base: each element of `out` follows from those of the inputs at its place, which broadcast to it.

    Where one function of numpy computes it, `function` names that, and the operator is its step. Otherwise
    `compute` writes steps. What backward reads is in `backward_reads`; its gradients are derived from
    `compute`, unless `slope(w, a, x)` says by what `d_out` is multiplied, x being the one array that backward
    reads besides, or `compute_gradient` writes them. Their own gradients follow: see derivative.py.
    The gradient of one input may overwrite what it reads, unless `backward_in_place` says over what.
    """

    abstract = True
    elementwise = True
    cheap = True
    function: ClassVar[str] = ""
    slope: ClassVar[Callable[..., Any] | None] = None

    def __init_subclass__(cls) -> None:
        own = vars(cls)
        if own.get("function") and "forward" not in own:
            cls.forward = cls.called
        if own.get("function") and "compute" not in own and cls.can_step():
            cls.compute = cls.stepped
        if cls.slope is not None and "compute_gradient" not in own:
            cls.compute_gradient = cls.sloped
        if cls.same_shape and cls.gradients == ("data",) and cls.backward_reads and not cls.backward_in_place:
            cls.backward_in_place = {"d_data": cls.backward_reads}
        super().__init_subclass__()
        if cls.backward is not None and cls.backward_reads and "derivative" not in own:
            cls.derivative = functools.partial(derivative_of, cls)

    @classmethod
    def called(cls, xp: Any, a: Any, *inputs: Any, **outputs: Any) -> None:
        """The reference kernel by `function`; a family of operators says what its operands are."""
        raise NotImplementedError

    @classmethod
    def can_step(cls) -> bool:
        """True if there is a step for `function`."""
        return cls.function in STEPS

    @classmethod
    def stepped(cls, w: Any, a: Any, **inputs: Any) -> Mapping[str, Any]:
        """`compute` by the step of `function`."""
        return {"out": w(STEPS[cls.function], *inputs.values())}

    @classmethod
    def known(cls, a: Any) -> str:
        """The array that `slope` is taken from."""
        left_out = cls.unneeded(a)
        (name,) = (n for n in cls.backward_reads if n != "d_out" and n not in left_out)
        return name

    @classmethod
    def sloped(cls, w: Any, a: Any, heads: Mapping[str, Any], arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """`compute_gradient` by `slope`."""
        assert cls.slope is not None
        return {"d_data": heads["out"] * cls.slope(w, a, arrays[cls.known(a)])}
