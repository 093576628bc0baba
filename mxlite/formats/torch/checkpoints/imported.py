"""The same step where mxlite runs it: the module is imported, and its memory planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .... import ops
from ....core import cpu
from ....graph.update import UpdateRule
from ....memplan import MemoryPlan
from ...building import NotSupportedError
from ..importer import network_of


def imported_plan(
    module: Any, args: Any, kwargs: Mapping[str, Any] | None, optimizer: Any, budget: int | None
) -> MemoryPlan:
    """The plan of one training step of a module as mxlite would run it, the optimizer's update within.

    optimizer: a torch.optim.Optimizer; None: gradients are kept. Raises NotSupportedError for one that mxlite
    has no update for, MemoryBudgetError, and what `from_torch` raises.
    """
    symbol, reader = network_of(module, args, kwargs)
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    names = symbol.list_arguments()
    shapes: dict[str, Any] = {n: shape for n, shape in reader.inputs.items() if n in names}
    return symbol.memory_plan(
        cpu(),
        grad_req={n: "write" if n in trained else "null" for n in names},
        memory_budget=budget,
        optimizer=None if optimizer is None else _rule_of(optimizer),
        **shapes,
    )


def _rule_of(optimizer: Any) -> UpdateRule:
    """The update of mxlite that has the states of an optimizer of PyTorch."""
    kind, settings = type(optimizer).__name__, optimizer.defaults
    op, states = _STATES.get(kind, ("", ()))
    if kind == "SGD" and not settings["momentum"]:
        op, states = "sgd", ()
    if not op or settings.get("amsgrad"):
        raise NotSupportedError(
            f"mxlite plans its own step with {', '.join(_STATES)} of torch.optim, and not with {kind}."
        )
    return UpdateRule(ops.find_op(f"_fused_{op}"), {}, states)


_STATES: dict[str, tuple[str, tuple[str, ...]]] = {
    "SGD": ("sgd_mom", ("mom",)),
    "Adam": ("adam", ("mean", "var")),
    "AdamW": ("adamw", ("mean", "var")),
}
"""By optimizer of PyTorch: the operator of the update, and its states."""
