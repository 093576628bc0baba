"""A check of MXNet's `stype_dict`, for programs with dense arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import MXLiteError


def all_dense(kinds: Any) -> None:
    """Check that every argument is "default". Raises MXLiteError."""
    if not isinstance(kinds or {}, Mapping):
        raise MXLiteError(f"stype_dict must be a dict of names and kinds of storage, got {kinds!r}.")
    for name, kind in (kinds or {}).items():
        if kind != "default":
            raise MXLiteError(
                f"stype_dict wants {name!r} as {kind!r}, but in a program arrays are dense ('default')."
            )
