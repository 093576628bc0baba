"""A plan in a module of PyTorch: the submodules that it recomputes are checkpointed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....core import ArgumentError
from .plan import CheckpointPlan
from .regional import checkpointed_class, plain_class


class Applied:
    """The checkpoints that a plan put into a module: `regions` are the names of its submodules.

    `remove()` takes them out again; as a context manager it does so at the end.
    """

    def __init__(self, module: Any, regions: tuple[str, ...]) -> None:
        self.regions = regions
        self._parts = [module.get_submodule(name) for name in regions]
        for part in self._parts:
            part.__class__ = checkpointed_class(part.__class__)

    def remove(self) -> None:
        """Take the checkpoints out of the module."""
        _clear(self._parts)
        self._parts = []

    def __enter__(self) -> Applied:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def apply(module: Any, plan: CheckpointPlan) -> Applied:
    """Put a plan of `plan_checkpoints` into the module: PyTorch then recomputes what it says in each step.

    Numbers stay as they were: random ones are drawn again equally, and moving averages move once. Only
    forward passes in training are checkpointed. A second call takes the place of the first. Regions change
    their class, to one derived from it, so that copies of the module have them, too.

    Raises ArgumentError for a plan of another module, or of a step that mxlite runs itself.
    """
    if not isinstance(plan, CheckpointPlan):
        raise ArgumentError(
            f"apply takes a plan of mx.torch.plan_checkpoints, of a step of PyTorch; got "
            f"{type(plan).__name__}."
        )
    own = dict(module.named_modules())
    if missing := [name for name in plan.regions if name not in own]:
        raise ArgumentError(
            f"{type(module).__name__} has no submodule {missing[0]!r}: the plan is of another."
        )
    _clear(own.values())
    return Applied(module, plan.regions)


def _clear(parts: Iterable[Any]) -> None:
    for part in parts:
        part.__class__ = plain_class(type(part))
