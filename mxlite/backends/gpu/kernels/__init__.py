"""Rows of the GPU's table: a module here with a function `rows(device)` is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from ....graph.opdef import Op
from ..device import Device


def table(device: Device) -> dict[type[Op], list[Any]]:
    """Every row for one device: those on cuDNN first, else in the order of the modules' names."""
    made: dict[type[Op], list[Any]] = {}
    names = [m.name for m in pkgutil.iter_modules(__path__)]
    for module in sorted(names, key=lambda name: (not name.startswith("cudnn_"), name)):
        for op, listed in importlib.import_module(f"{__name__}.{module}").rows(device).items():
            made.setdefault(op, []).extend(listed)
    return made
