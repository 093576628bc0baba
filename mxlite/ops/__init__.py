"""Every operator, and the table from names to them.

A new operator is a class in a module of one of the folders; nothing else names it. `ops.Convolution` is that
class, `mx.sym.Convolution` and `mx.nd.Convolution` are made from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from ..core.errors import DefinitionError, nearest, UnknownAttributeError, UnknownNameError
from ..graph.opdef import Op

_NAMES = [m.name for m in walk_packages(__path__, f"{__name__}.") if not m.ispkg]
FAMILIES: tuple[ModuleType, ...] = tuple(
    map(import_module, sorted(_NAMES, key=lambda n: n.rpartition(".")[2]))
)
"""The modules of this package and of its folders, in the order of their own names."""


def _declared(module: ModuleType) -> Iterator[type[Op]]:
    """The operators that `module` declares, in its order, without base classes and imported ones."""
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Op) and value.__module__ == module.__name__:
            if hasattr(value, "forward") and not value.__dict__.get("abstract"):
                yield value


ALL: tuple[type[Op], ...] = tuple(op for family in FAMILIES for op in _declared(family))
"""Every operator; no two share a name."""


def _table(operators: tuple[type[Op], ...]) -> dict[str, type[Op]]:
    table: dict[str, type[Op]] = {}
    for op in operators:
        for name in (op.op_name, *op.aliases):
            if table.setdefault(name, op) is not op:
                raise DefinitionError(f"both {table[name].__name__} and {op.__name__} are called {name!r}.")
    return table


TABLE: dict[str, type[Op]] = _table(ALL)
"""Public names and aliases to operators."""


def find_op(name: str) -> type[Op]:
    """The operator of that name or alias. Raises UnknownNameError, with the nearest name."""
    op = TABLE.get(name)
    if op is None:
        raise UnknownNameError(f"There is no operator {name!r}.{nearest(name, TABLE)}")
    return op


_CLASSES: dict[str, type[Op]] = {op.__name__: op for op in ALL}
globals().update(_CLASSES)  # overrides modules of the same name: `ops.norm` is the operator


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise UnknownAttributeError(f"mxlite.ops declares no {name!r}.", name, lambda: _CLASSES)
    return _CLASSES[name]
