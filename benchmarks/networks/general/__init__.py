"""Networks of many kinds, one in each module of this folder, which has it as NETWORK."""

from __future__ import annotations

import importlib
import pkgutil

from ..network import Network


def names() -> list[str]:
    """The names of all networks: those of the modules."""
    return sorted(found.name for found in pkgutil.iter_modules(__path__))


def network(name: str) -> Network:
    found: Network = importlib.import_module(f"{__name__}.{name}").NETWORK
    return found
