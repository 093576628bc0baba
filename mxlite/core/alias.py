"""`import mxnet` that gives mxlite: the same module objects under a second name.

`stand_in("mxnet")` puts mxlite and its modules into `sys.modules` under that name, and a finder that answers
for those imported later. A module is loaded once, so `mxnet.io.NDArrayIter is mxlite.io.NDArrayIter`.

`python -m mxlite alias` writes a package of two lines that calls it (`write`): programs then run unchanged.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from .errors import StateError

NAME = "mxnet"
MARK = "Written by `python -m mxlite alias`"
TEXT = f'''"""`import {NAME}` gives mxlite. {MARK}; `python -m mxlite alias --remove` takes it away."""

from mxlite.core.alias import stand_in

stand_in("{NAME}")
'''
_REAL = __name__.partition(".")[0]


class _Same(Loader):
    """A loader that returns the mxlite module of the same dotted name and leaves it as it is."""

    def __init__(self, real: str) -> None:
        self._real = real
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import machinery has put the second name's there


class _Finder(MetaPathFinder):
    """A finder that answers for `<name>.x` if `mxlite.x` exists."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{self.name}."):
            return None
        real = _REAL + fullname[len(self.name) :]
        if real not in sys.modules and importlib.util.find_spec(real) is None:
            return None
        return ModuleSpec(fullname, _Same(real))


def stand_in(name: str = NAME) -> ModuleType:
    """Make mxlite answer to `name` too, in this process; returns mxlite."""
    package = importlib.import_module(_REAL)
    sys.modules[name] = package
    if not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name))
    for full, module in list(sys.modules.items()):
        if full.startswith(f"{_REAL}."):
            sys.modules.setdefault(name + full[len(_REAL) :], module)
    return package


def package_in(folder: Path) -> Path:
    """The file that `write` creates below `folder`."""
    return folder / NAME / "__init__.py"


def is_ours(file: Path) -> bool:
    """True if `write` made that file."""
    return MARK in file.read_text(errors="replace")


def write(folder: Path) -> Path:
    """Write the package into `folder`, for a `sys.path` with it; the file.

    StateError: MXNet itself is there, or can be imported from elsewhere on this `sys.path`.
    """
    file = package_in(folder)
    if file.parent.exists() and not (file.exists() and is_ours(file)):
        raise StateError(
            f"{file.parent} is there already and is not of mxlite: the alias would replace an installed "
            f"MXNet. "
            f"Uninstall it first (`python -m pip uninstall mxnet`), or use an environment without it."
        )
    elsewhere = _installed()
    if elsewhere is not None and elsewhere != file.resolve():
        raise StateError(
            f"An MXNet that is not of mxlite is installed at {elsewhere.parent}: which of the two a "
            f"program imports "
            f"would depend on the order of sys.path. Uninstall it first, or use an environment without it."
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TEXT)
    return file


def remove(folder: Path) -> Path | None:
    """Delete the package that `write` put into `folder`; returns the deleted folder, None if there was none.

    StateError: the package there is not mxlite's.
    """
    file = package_in(folder)
    if not file.parent.exists():
        return None
    if not (file.exists() and is_ours(file)):
        raise StateError(f"{file.parent} is not of mxlite; it stays.")
    file.unlink()
    cache = file.parent / "__pycache__"
    for kept in cache.glob("*") if cache.exists() else ():
        kept.unlink()
    if cache.exists():
        cache.rmdir()
    file.parent.rmdir()
    return file.parent


def _installed() -> Path | None:
    """The file of a package `mxnet` on this `sys.path` that `write` did not make."""
    for entry in sys.path:
        file = package_in(Path(entry or "."))
        if file.exists() and not is_ours(file):
            return file.resolve()
    return None
