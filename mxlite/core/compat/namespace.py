"""Modules whose names are looked up when asked for: `mx.nd.contrib.X` is the operator `_contrib_X`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UnknownAttributeError


def namespace(
    module: dict[str, Any],
    public: str,
    prefixes: tuple[str, ...],
    table: Mapping[str, Any],
    make: Callable[[str], Any],
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module with those globals, called `public` in errors.

    An attribute X is `make(name)`, for the first of `prefix + X` that is in `table`; it is kept.
    """

    def names() -> list[str]:
        matching = {n.removeprefix(p) for p in prefixes for n in table if n.startswith(p)}
        return sorted({*module, *(n for n in matching if not n.startswith("_"))})

    def get(name: str) -> Any:
        if not name.startswith("_"):
            for prefix in prefixes:
                if prefix + name in table:
                    module[name] = make(prefix + name)
                    return module[name]
        raise UnknownAttributeError(f"{public} has no {name!r}.", name, names)

    return get, names
