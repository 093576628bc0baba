"""Merging of adjacent calls of a schedule into one launch."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.optim.update import Updates
from ..runtime.device import Run


def join(calls: Sequence[Run]) -> list[tuple[int, Run]]:
    """`calls` with adjacent updates of one kind merged; see `Backend.join`. Calls that share an array
    are not merged: a launch has no order within it.
    """
    result: list[tuple[int, Run]] = []
    run: list[Updates] = []
    first, taken = 0, set[int]()

    def close() -> None:
        if run:
            result.append((first, run[0] if len(run) == 1 else Updates.joined(run)))
        run.clear()
        taken.clear()

    for i, call in enumerate(calls):
        if not isinstance(call, Updates):
            close()
            result.append((i, call))
            continue
        if run and (call.kind != run[0].kind or taken & call.addresses):
            close()
        if not run:
            first = i
        run.append(call)
        taken |= call.addresses
    close()
    return result
