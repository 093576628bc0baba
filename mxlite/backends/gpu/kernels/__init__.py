"""Rows of the GPU's table: a module below with a function `rows(device)` is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from ....graph.opdef import Op
from ..runtime.device import Device


def table(device: Device) -> dict[type[Op], list[Any]]:
    """Every row for one device: those on cuDNN first, generated ones last, else in the order of the modules'
    names.
    """
    made: dict[type[Op], list[Any]] = {}
    turns = {"cudnn": 0, "generated": 2}
    for module in sorted(modules(), key=lambda name: turns.get(name.split(".")[-2], 1)):
        for op, listed in importlib.import_module(module).rows(device).items():
            made.setdefault(op, []).extend(listed)
    return made


def modules() -> list[str]:
    """The modules that have rows, in the order of their own names, whatever their folders."""
    found = [m.name for m in pkgutil.walk_packages(__path__, f"{__name__}.") if not m.ispkg]
    return sorted(found, key=own_name)


def own_name(module: str) -> str:
    """A module's name without its packages'."""
    return module.rpartition(".")[2]
