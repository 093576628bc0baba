"""Initializers that look at names alone: values from a file, and one initializer for each kind of name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ... import ndarray as nd
from ...core.errors import nearest, RangeError, ShapeError, UnknownNameError
from ...core.log import Log
from ...core.wanted import wanted, wanted_function, wanted_names
from ...ndarray import NDArray

_log = Log(__name__)


class Load:
    """Values from a dict of arrays or a parameter file; what is missing there comes from `default_init`.

    Prefixes `arg:` and `aux:` of the names are dropped, as in the files that checkpoints write.
    """

    def __init__(
        self, param: str | Mapping[str, NDArray], default_init: Any = None, verbose: bool = False
    ) -> None:
        loaded: Any = nd.load(param) if isinstance(param, str) else param
        wanted("Load: param", loaded, "a dict of names and arrays, or a file of one", Mapping)
        self.param = {n[4:] if n.startswith(("arg:", "aux:")) else n: a for n, a in loaded.items()}
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, arr: NDArray) -> None:
        found = self.param.get(str(name))
        if found is not None:
            if tuple(found.shape) != tuple(arr.shape):
                raise ShapeError(f"{str(name)!r} must be {arr.shape}, but the loaded one is {found.shape}.")
            arr[:] = found
        elif self.default_init is None:
            raise UnknownNameError(
                f"The loaded parameters have no {str(name)!r}.{nearest(str(name), self.param)} "
                f"Give Load a default_init for what is missing."
            )
        else:
            self.default_init(name, arr)
        if self.verbose:
            _log.info("Initialized %s by %s", name, "default" if found is None else "loading")


class Mixed:
    """The first of several initializers whose regular expression matches the start of the name."""

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Any]) -> None:
        patterns = wanted_names("Mixed: patterns", patterns)
        wanted("Mixed: initializers", initializers, "a list of initializers", list, tuple)
        for initializer in initializers:
            wanted_function("Mixed: initializers", initializer, "a list of initializers")
        if len(patterns) != len(initializers):
            raise RangeError(f"{len(patterns)} patterns need as many initializers, got {len(initializers)}.")
        self.map = [(re.compile(p), i) for p, i in zip(patterns, initializers)]

    def __call__(self, name: str, arr: NDArray) -> None:
        for pattern, initializer in self.map:
            if pattern.match(name):
                initializer(name, arr)
                return
        raise UnknownNameError(
            f"{str(name)!r} matches none of {[p.pattern for p, _ in self.map]}; "
            f'add the pattern ".*" at the end with an initializer for the rest.'
        )
