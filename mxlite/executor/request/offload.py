"""The option `offload=`: host memory for kept arrays that wait for backward."""

from __future__ import annotations

from ...core import BindError, BudgetError, parse_bytes
from ...memplan import HostLink

Offload = int | str | HostLink | None
"""None: no host memory. "auto": as much as helps. Bytes, or text such as "4GiB": at most so many. A HostLink
also gives the speed of copies."""


def host_link(offload: Offload) -> HostLink | None:
    """The planner's form of `offload`. Raises BindError or BudgetError."""
    if offload is None or isinstance(offload, HostLink):
        return offload
    if isinstance(offload, str) and offload == "auto":
        return HostLink()
    if isinstance(offload, bool) or not (isinstance(offload, str) or hasattr(offload, "__index__")):
        raise BindError(f"offload must be 'auto', bytes, a HostLink or None, got {offload!r}.")
    try:
        return HostLink(capacity=parse_bytes(offload, "host memory of offload"))
    except BudgetError as error:
        raise BudgetError(f"{error} offload='auto' takes as much as helps.") from None
