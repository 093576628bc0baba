"""Buckets in errors about memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...core.errors import MemoryBudgetError


class NamedBucket:
    """Context that adds to errors about a budget the name of the bucket, and of others that count."""

    def __init__(self, key: Any, shapes: Any, bound: Collection[Any], declared: Collection[Any]) -> None:
        self.key, self.shapes, self.bound, self.declared = key, shapes, bound, declared

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, MemoryBudgetError):
            return
        shapes = ", ".join(f"{s[0]} {tuple(s[1])}" for s in self.shapes or ())
        others = list(dict.fromkeys(k for k in (*self.bound, *self.declared) if k != self.key))
        beside = f" beside buckets {', '.join(map(repr, others))}" if others else ""
        raise MemoryBudgetError(
            f"Bucket {self.key!r} ({shapes}) does not fit{beside}.\n{error.args[0]}\n"
            f"Each bucket that comes later brings inputs and outputs of its own; one that is declared "
            f"(buckets=) counts from the start.",
            budget_bytes=error.budget_bytes,
            least_feasible_bytes=error.least_feasible_bytes,
            lower_bound_bytes=error.lower_bound_bytes,
            keep_all_peak_bytes=error.keep_all_peak_bytes,
            least_extra_time=error.least_extra_time,
            advise=error.advise,
        ) from None
