"""The memory plan of a step of a PyTorch module, before the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import cpu
from ...memplan import MemoryPlan
from .importer import network_of


def plan(
    module: Any,
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Any = None,
    budget: int | str | None = None,
) -> MemoryPlan:
    """The plan of one training step of a torch.nn.Module as mxlite would run it; print it for its table.

    args, kwargs: example inputs, as for `from_torch`.  optimizer: such as `mx.optimizer.SGD()`, whose update
    then lies inside the step; None: gradients are kept.  budget: bytes, or text such as "4GiB".

    Raises MemoryBudgetError if no plan is found that fits, and what `from_torch` raises.
    """
    symbol, reader = network_of(module, args, kwargs)
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    names = symbol.list_arguments()
    shapes: dict[str, Any] = {n: shape for n, shape in reader.inputs.items() if n in names}
    return symbol.memory_plan(
        cpu(),
        grad_req={n: "write" if n in trained else "null" for n in names},
        memory_budget=budget,
        optimizer=optimizer,
        **shapes,
    )
