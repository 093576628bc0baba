"""What a backend may make of a graph, as far as that depends on no device: a pass in each file, of its name.

Which of them run is said by the lists of the backends, `cpu/passes.py` and `gpu/passes.py`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from typing import Any

_MODULES = {m.name.rpartition(".")[2]: m.name for m in walk_packages(__path__, f"{__name__}.") if not m.ispkg}

NAMES = frozenset(_MODULES)
"""The files, which are called as their passes are; some help others."""


def named(*names: str) -> tuple[Any, ...]:
    """The passes of these names."""
    return tuple(getattr(import_module(_MODULES[name]), name) for name in names)
