"""A plan in a module of PyTorch: the submodules that it recomputes are checkpointed."""

from __future__ import annotations

from typing import Any

from ....core import ArgumentError
from .plan import StepPlan
from .problem import Choice
from .regional import checkpointed, plain


class Applied:
    """The checkpoints that a plan put into a module: `regions` are the names of its submodules.

    `remove()` takes them out again; as a context manager it does so at the end.
    """

    def __init__(self, module: Any, regions: Choice) -> None:
        self.regions = tuple(regions)
        self._parts = [module.get_submodule(name) for name in regions]
        for part, (name, kept) in zip(self._parts, regions.items()):
            checkpointed(part, name, kept)

    def remove(self) -> None:
        """Take the checkpoints out of the module."""
        for part in self._parts:
            plain(part)
        self._parts = []

    def __enter__(self) -> Applied:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def apply(module: Any, plan: StepPlan) -> Applied:
    """Put a plan of `mx.torch.plan` into the module: PyTorch then recomputes what it says in each step.

    Numbers stay as they were: random ones are drawn again equally, and moving averages move once. Only
    forward passes in training are checkpointed. A second call takes the place of the first. Regions change
    their class, to one derived from it, so that copies of the module have them, too.

    Raises ArgumentError for a plan of another module, or one of mxlite's own steps.
    """
    if not isinstance(plan, StepPlan):
        raise ArgumentError(
            f"apply takes a plan of mx.torch.plan, of a step of PyTorch; got {type(plan).__name__}."
        )
    own = dict(module.named_modules())
    if missing := [name for name in plan.regions if name not in own]:
        raise ArgumentError(
            f"{type(module).__name__} has no submodule {missing[0]!r}: the plan is of another."
        )
    for part in own.values():
        plain(part)
    return Applied(module, plan.regions)
