"""Devices as users name them: one, or several in a list."""

from __future__ import annotations

from typing import Any

from ...core import Context, current_context
from ...core.errors import ArgumentError
from ...core.wanted import wanted


def listed(ctx: Any) -> list[Context]:
    """Devices as a list; None: the current one. ArgumentError for what is no device."""
    if ctx is None:
        return [current_context()]
    devices = [ctx] if isinstance(ctx, Context) else list(ctx)
    if not devices:
        raise ArgumentError("ctx must be a device or a list of them, got an empty list.")
    for device in devices:
        wanted("ctx", device, "a device or a list of them", Context)
    return devices
