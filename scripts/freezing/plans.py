"""Records of plans: the zoo within budgets."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from .digest import digest
from .texts import Texts

BATCH = 8
FEW = 2000
"""A network of more steps is planned without a budget only, unless SPECIAL says otherwise: planning it within
one takes ten seconds and more."""

BUDGETS = ("none", "0.75", "0.5", "least")
"""Shares of what the network takes without a budget; `least` is the least budget that the planner names."""

VARIED = ("resnet50", "mobilenet_v2", "unet", "lstm", "bert_base", "gpt2", "transformer", "densenet121")
"""Networks that are also planned for the options of VARIANTS."""

VARIANTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "": ({}, BUDGETS),
    "bfloat16": ({"amp": "bfloat16"}, ("none", "0.5", "least")),
    "no optimizer": ({"optimizer": None}, ("none", "0.5")),
    "inference": ({"optimizer": None, "grad_req": "null"}, ("none",)),
    "gpu": ({"gpu": True}, ("none", "0.5")),
    "gpu bfloat16": ({"gpu": True, "amp": "bfloat16"}, ("none",)),
}
SPECIAL: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "resnet1001_cifar_v2": ("resnet1001_cifar_v2", {}, ("none", "0.5")),
    "lstm_unrolled": ("lstm_unrolled", {"steps": 16}, BUDGETS),
    "lstm cross_entropy": ("lstm", {"loss": "cross_entropy"}, BUDGETS),
    "gpt2 cross_entropy": ("gpt2", {"loss": "cross_entropy"}, BUDGETS),
}
"""Networks that are planned with other options or budgets than those that follow from their size."""


def networks(mx: Any, match: re.Pattern[str]) -> Iterator[tuple[str, Any, dict[str, Any], tuple[str, ...]]]:
    """Key, network, shapes and budgets of each plan; no budgets: the network's size decides."""
    for name in mx.models.list_models():
        if name not in SPECIAL and match.fullmatch(name):
            yield name, mx.models.get(name), mx.models.shapes_of(name, BATCH), ()
    for key, (name, options, budgets) in SPECIAL.items():
        if match.fullmatch(key):
            yield key, mx.models.get(name, **options), mx.models.shapes_of(name, BATCH, **options), budgets


def record_plans(own: SimpleNamespace, match: re.Pattern[str], record: dict[str, Any], texts: Texts) -> None:
    """Section `plans`. Seconds come from the backends' fixed rates, not from a clock."""
    for name, net, shapes, budgets in networks(own.mx, match):
        for variant, (options, usual) in VARIANTS.items():
            if variant and name not in VARIED:
                continue
            key, peak = " ".join(filter(None, (name, variant))), 0
            for budget in budgets if budgets and not variant else usual:
                texts.at = f"{key} {budget}"
                found = _plan(own.mx, net, shapes, options, budget, peak)
                record[texts.at] = found
                peak = peak or found["peak_bytes"]
                if found.get("steps", 0) > FEW and not budgets:
                    break


def _plan(
    mx: Any, net: Any, shapes: Mapping[str, Any], options: Mapping[str, Any], budget: str, peak: int
) -> dict[str, Any]:
    how: dict[str, Any] = {"optimizer": mx.optimizer.SGD(momentum=0.9), **options, **shapes}
    device = mx.gpu() if how.pop("gpu", False) else mx.cpu()
    nbytes = {"none": None, "least": 1}.get(budget, 0)
    nbytes = int(peak * float(budget)) if nbytes == 0 else nbytes
    try:
        plan = net.memory_plan(device, memory_budget=nbytes, **how)
    except mx.MemoryBudgetError as error:
        refused = {"least_feasible_bytes": error.least_feasible_bytes, "bound": error.lower_bound_bytes}
        if budget != "least":
            return refused
        plan = net.memory_plan(device, memory_budget=error.least_feasible_bytes, **how)
    data = json.loads(plan.to_json())
    tasks = data["problem"]["tasks"]
    runs = Counter(f"{tasks[t]['op']}: {tasks[t]['kernel']}" for t in data["schedule"]["task"])
    return {
        "peak_bytes": data["peak_bytes"],
        "arena_bytes": data["arena_bytes"],
        "extra_time": data["extra_time"],
        "step_seconds": plan.step_seconds,
        "method": data["method"],
        "steps": len(data["schedule"]["task"]),
        "recomputed": plan.recomputed,
        "schedule": digest(data["schedule"], data["buffers"], data["host_offsets"]),
        **dict(sorted(runs.items())),
    }
