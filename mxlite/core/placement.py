"""MXNet's `group2ctx` and `stype_dict` for programs on one device with dense arrays: what they may say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .device import Context
from .errors import MXLiteError


def on_one_device(groups: Any, device: Context, name: str = "group2ctx") -> None:
    """Nothing, if every group lies on `device`: scripts for several devices are run on one so.

    groups: a mapping of names of groups to a device or a list of them, a list of such, or None. Raises
    MXLiteError.
    """
    for one in groups if isinstance(groups, Sequence) and not isinstance(groups, str) else [groups or {}]:
        if not isinstance(one, Mapping):
            raise MXLiteError(f"{name} must be a dict of groups and devices, got {one!r}.")
        for group, place in one.items():
            for context in place if isinstance(place, Sequence) and not isinstance(place, str) else [place]:
                if context != device:
                    raise MXLiteError(
                        f"{name} puts {group!r} on {context}, but a program runs on one device, here "
                        f"{device}: put all groups there."
                    )


def all_dense(kinds: Any) -> None:
    """Nothing, if every argument is "default". Raises MXLiteError."""
    if not isinstance(kinds or {}, Mapping):
        raise MXLiteError(f"stype_dict must be a dict of names and kinds of storage, got {kinds!r}.")
    for name, kind in (kinds or {}).items():
        if kind != "default":
            raise MXLiteError(
                f"stype_dict wants {name!r} as {kind!r}, but in a program arrays are dense ('default')."
            )
