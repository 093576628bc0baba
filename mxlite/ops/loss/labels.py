"""Labels beside the data of a loss."""

from __future__ import annotations

from typing import Any

from ...graph.opdef import DType, Op, require_kind, Types


def label_types(op: type[Op], a: Any, *dtypes: DType | None) -> tuple[Types, Types]:
    """`Op.infer_type` of data and labels; labels may be of any type, by default data's."""
    data, label = dtypes
    require_kind(op, data)
    return (data, label or data), (data,)


def unchanged(xp: Any, a: Any, data: Any, label: Any, *, out: Any) -> None:
    """`Op.forward` of a loss whose output is its data."""
    if out is not None:
        xp.copyto(out, data)
