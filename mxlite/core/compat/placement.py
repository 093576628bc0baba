"""Checks of MXNet's `group2ctx` and `stype_dict`, for programs on one device with dense arrays."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..device import Context
from ..errors import MXLiteError


def on_one_device(groups: Any, device: Context, name: str = "group2ctx") -> None:
    """Check that every group lies on `device`: scripts for several devices run on one that way.

    groups: a mapping of names of groups to a device or a list of them, a list of such, or None. Several
    CPUs are one, with a warning. Raises MXLiteError for others.
    """
    elsewhere: set[str] = set()
    for one in groups if isinstance(groups, Sequence) and not isinstance(groups, str) else [groups or {}]:
        if not isinstance(one, Mapping):
            raise MXLiteError(f"{name} must be a dict of groups and devices, got {one!r}.")
        for group, place in one.items():
            for context in place if isinstance(place, Sequence) and not isinstance(place, str) else [place]:
                if (
                    context != device
                    and isinstance(context, Context)
                    and "gpu"
                    not in (
                        context.device_type,
                        device.device_type,
                    )
                ):
                    elsewhere.add(str(context))
                elif context != device:
                    raise MXLiteError(
                        f"{name} puts {group!r} on {context}, but a program runs on one device, here "
                        f"{device}: put all groups there."
                    )
    if elsewhere:
        warnings.warn(
            f"{name}: {', '.join(sorted(elsewhere))} and {device} are one CPU: all groups run on {device}.",
            stacklevel=4,
        )


def label(variables: Iterable[Any], arrays: Iterable[Mapping[str, Any]], groups: Any) -> None:
    """Name the CPU of its variable's group for each array: CPUs are one, and their numbers only labels.

    groups: as in `on_one_device`; of several devices for one group, the first.
    """
    places = (groups[0] if isinstance(groups, Sequence) and groups else groups) or {}
    for node in variables if places else ():
        place = places.get(node.annotations.get("__ctx_group__"))
        place = place[0] if isinstance(place, Sequence) else place
        for array in (named.get(node.name) for named in arrays):
            if place is not None and array is not None:
                array.context = place


def all_dense(kinds: Any) -> None:
    """Check that every argument is "default". Raises MXLiteError."""
    if not isinstance(kinds or {}, Mapping):
        raise MXLiteError(f"stype_dict must be a dict of names and kinds of storage, got {kinds!r}.")
    for name, kind in (kinds or {}).items():
        if kind != "default":
            raise MXLiteError(
                f"stype_dict wants {name!r} as {kind!r}, but in a program arrays are dense ('default')."
            )
