"""Environment variables and the error stream, changed for the length of a test."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..core.errors import ArgumentError


@contextmanager
def environment(*args: Any) -> Iterator[None]:
    """`with environment(name, value):` or `with environment({name: value, ...}):` variables have those
    values.

    None stands for a variable that is not set; other values are written as text. After the block, however it
    ends, each has its old value. ArgumentError for other arguments.
    """
    if len(args) == 2:
        values: Mapping[str, Any] = {args[0]: args[1]}
    elif len(args) == 1 and isinstance(args[0], Mapping):
        values = args[0]
    else:
        raise ArgumentError(f"environment takes a name and a value, or a dict of them, got {args!r}.")
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = str(value)


def set_env_var(key: str, val: str, default_val: str = "") -> str:
    """Set an environment variable; returns its previous value, `default_val` if it was not set."""
    before = os.environ.get(key, default_val)
    os.environ[key] = val
    return before


@contextmanager
def discard_stderr() -> Iterator[None]:
    """A context that discards the error stream of this process, also that of native code."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
