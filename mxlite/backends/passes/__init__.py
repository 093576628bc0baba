"""Passes over graphs that depend on no device: one pass in each file, with the file's name.

The lists of the backends, `cpu/passes.py` and `gpu/passes.py`, say which of them run.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from typing import Any

_MODULES = {m.name.rpartition(".")[2]: m.name for m in walk_packages(__path__, f"{__name__}.") if not m.ispkg}

NAMES = frozenset(_MODULES)
"""Names of the files: those of passes, and of a few that passes share."""


def named(*names: str) -> tuple[Any, ...]:
    """The passes of these names."""
    return tuple(getattr(import_module(_MODULES[name]), name) for name in names)
