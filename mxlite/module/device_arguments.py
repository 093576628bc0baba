"""What a module is told of its devices: contexts, work loads, budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from ..core import BindError, Context, current_context, MXLiteError, parse_bytes
from ..core.errors import BudgetError, RangeError
from ..core.wanted import number, wanted
from .loop_arguments import as_list

Budgets = int | str | Sequence[int | str | None] | None
"""Bytes for each device: one number or text for all of them, or a list with one for each."""


def contexts_of(context: Any) -> list[Context]:
    """The devices of a module; the current one if none is given. MXLiteError if they cannot work together."""
    contexts: list[Context] = as_list(context) or [current_context()]
    for i, c in enumerate(contexts):
        wanted("Module: context", c, "a device such as mx.cpu()", Context)
        if c in contexts[:i]:
            raise MXLiteError(
                f"Module: context names {c} twice, in {contexts}: each device gets one part of a batch. "
                f"mx.cpu(0), mx.cpu(1), ... are devices of one CPU."
            )
    if len(contexts) > 1 and any(c.device_type == "gpu" for c in contexts):
        raise MXLiteError(
            f"Module runs on one device, or on several CPUs such as [mx.cpu(0), mx.cpu(1)]; got "
            f"{len(contexts)} with a GPU among them: {contexts}."
        )
    return contexts


def groups_of(group2ctxs: Any, contexts: Sequence[Context]) -> dict[str, Context] | None:
    """The device of each group of nodes, of a module on one context; None without groups.

    `group2ctxs` is a dict of names and devices, or lists of one device for each context, or a list of such
    dicts, one for each context. BindError if they differ in length. On several contexts each program is on
    one device.
    """
    if group2ctxs is None:
        return None
    several = len(contexts)
    given = as_list(group2ctxs)
    if len(given) == 1 and not isinstance(group2ctxs, (list, tuple)):
        given = given * several
    if len(given) != several or not all(isinstance(groups, Mapping) for groups in given):
        raise BindError(
            f"Module: group2ctxs is a dict of groups and devices, or a list of one for each of {several} "
            f"contexts, got {group2ctxs!r}."
        )
    found: list[dict[str, Context]] = []
    for i, (groups, context) in enumerate(zip(given, contexts)):
        found.append({})
        for name, place in groups.items():
            places = as_list(place)
            if len(places) not in (1, several):
                raise BindError(
                    f"Module: group2ctxs has {len(places)} devices for {name!r}, where {several} contexts "
                    f"take one each, or one for all."
                )
            found[i][name] = wanted(
                f"Module: group2ctxs[{name!r}]", places[i if len(places) > 1 else 0], "a device", Context
            )
            if several > 1 and found[i][name] != context:
                raise BindError(
                    f"Module: group2ctxs puts {name!r} on {found[i][name]} beside {context}. Either groups "
                    f"are on several devices, or batches are cut for several contexts, here {several}."
                )
    return found[0] if several == 1 else None


def work_loads_of(work_load_list: Any, devices: int) -> list[float]:
    """The share of a batch that each device gets. RangeError if there are not as many as devices."""
    if work_load_list is None:
        return [1.0] * devices
    loads = [number("Module: work_load_list", load) for load in as_list(work_load_list)]
    if len(loads) != devices or not all(load > 0 and isfinite(load) for load in loads):
        raise RangeError(
            f"Module: work_load_list must have a number above 0 for each of {devices} contexts, "
            f"got {work_load_list!r}."
        )
    return loads


def budgets_of(memory_budget: Budgets, devices: int) -> list[int | None]:
    """The bytes of each device, None for no bound. BudgetError for a list that is too long or too short."""
    budgets: list[Any] = [memory_budget] * devices
    if isinstance(memory_budget, (list, tuple)):
        budgets = list(memory_budget)
    if len(budgets) != devices:
        raise BudgetError(
            f"Module: memory_budget is a list of {len(budgets)} for {devices} contexts: give as many, "
            f"or one budget, which every device gets."
        )
    return [None if b is None else parse_bytes(b) for b in budgets]
