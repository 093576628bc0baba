"""Modules under other names: `import mxlite.image` gives `mxlite.io.image`, the same object under both names.

`mxlite/__init__.py` adds the names of modules that lie deeper here than in MXNet, `core/alias.py` those that
begin with `mxnet`. A module is loaded when the first of its names is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Same:
    """A loader that returns the module of another name and leaves it as it is."""

    def __init__(self, real: str) -> None:
        self._real = real
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._spec = module.__spec__
        FINDER.enter_below(spec.name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has put the second name's there


class Finder:
    """A finder of modules under other names. `names` has the real name of each; what lies below a module
    lies below its other names, too.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def add(self, names: Mapping[str, str]) -> None:
        """Answer for these as well, before all finders that look for files."""
        self.names.update(names)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def enter_below(self, name: str) -> None:
        """Enter the modules that have a name of their own below `name`, which need not be a package here."""
        for other, real in self.names.items():
            if other.startswith(f"{name}."):
                sys.modules.setdefault(other, importlib.import_module(real))

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """The import machinery's question: how `fullname` is loaded, None if that is no name of these."""
        known, rest = fullname, ""
        while known not in self.names:
            known, dot, last = known.rpartition(".")
            if not dot:
                return None
            rest = f".{last}{rest}"
        real = self.names[known] + rest
        if real not in sys.modules and importlib.util.find_spec(real) is None:
            return None
        # A loader by its methods: importlib.abc would bring a dozen modules.
        return ModuleSpec(fullname, _Same(real))  # type: ignore[arg-type]


FINDER = Finder()
