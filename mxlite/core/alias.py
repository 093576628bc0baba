"""`import mxnet` that gives mxlite: the same module objects under a second name.

`stand_in("mxnet")` puts mxlite's modules into `sys.modules` under that name, and `core/finder.py` answers for
those imported later. A module is loaded once, so `mxnet.io.NDArrayIter is mxlite.io.NDArrayIter`. The package
itself is a `StandIn`, which has a version of its own.

`python -m mxlite alias` writes a package of two lines that calls it (`write`): programs then run unchanged.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from .errors import StateError
from .finder import FINDER

NAME = "mxnet"
MARK = "Written by `python -m mxlite alias`"
TEXT = f'''"""`import {NAME}` gives mxlite. {MARK}; `python -m mxlite alias --remove` takes it away."""

from mxlite.core.alias import stand_in

stand_in("{NAME}")
'''
_REAL = __name__.partition(".")[0]
INTERFACE = "1.9.1"
"""The release of MXNet whose interface mxlite has."""
Value = TypeVar("Value")


class StandIn(ModuleType):
    """A package under another name: it has all that the package has, and is changed with it.

    Only `__version__` is its own, `INTERFACE`: programs such as GluonCV run with certain releases of MXNet
    alone.
    """

    def __init__(self, name: str, package: ModuleType) -> None:
        super().__init__(name, package.__doc__)
        own = {n: getattr(package, n, None) for n in ("__path__", "__file__", "__spec__")}
        self.__dict__.update(own, _package=package, __version__=INTERFACE)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_package"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["_package"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__dict__["_package"], name)

    def __dir__(self) -> list[str]:
        return dir(self.__dict__["_package"])


def stand_in(name: str = NAME) -> ModuleType:
    """Make mxlite answer to `name` too, in this process; returns what `import` of that name gives."""
    package = sys.modules[name] = StandIn(name, importlib.import_module(_REAL))
    for full, module in _renamed(sys.modules, name).items():
        sys.modules.setdefault(full, module)
    FINDER.add({name: _REAL, **_renamed(FINDER.names, name)})
    return package


def _renamed(found: Mapping[str, Value], name: str) -> dict[str, Value]:
    """What `found` has below mxlite, below `name`."""
    return {name + n[len(_REAL) :]: v for n, v in list(found.items()) if n.startswith(f"{_REAL}.")}


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
