"""Rows of `conformance.py` for local response normalization with channels last. See `cases.py`."""

from __future__ import annotations

from typing import Any

from mxlite import ops
from tests.conformance.case import Case


def _torch(a: Any, data: Any) -> Any:
    import torch

    found = torch.nn.functional.local_response_norm(data.movedim(-1, 1), a.nsize, a.alpha, a.beta, a.knorm)
    return found.movedim(1, -1)


def _lrn(shape: tuple[int, ...], peer: bool = True, **attrs: Any) -> Case:
    return Case(ops.LrnChannelsLast, attrs, [shape], torch=_torch if peer else None, tolerance32=2e-4)


_ROWS = {
    "5": _lrn((2, 3, 2, 9), nsize=5, alpha=0.5, knorm=1.5),
    "wide": _lrn((3, 5, 4), nsize=9, alpha=0.8),
    "one": _lrn((3, 2, 4), nsize=1, alpha=0.8),
    "even": _lrn((3, 2, 5), False, nsize=4, alpha=0.8),
    "channels": _lrn((2, 3, 3, 70), nsize=5, alpha=0.3, beta=0.6),
}

ROWS = {f"_lrn_channels_last-{name}": row for name, row in _ROWS.items()}
