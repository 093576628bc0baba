"""What a backend may make of a graph, as far as that depends on no device: a pass in each file, of its name.

Which of them run is said by the lists of the backends, `cpu/passes.py` and `gpu/passes.py`.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

NAMES = frozenset(m.name for m in iter_modules(__path__))
"""The files, which are called as their passes are; some help others."""


def named(*names: str) -> tuple[Any, ...]:
    """The passes of these names."""
    return tuple(getattr(import_module(f"{__name__}.{name}"), name) for name in names)
