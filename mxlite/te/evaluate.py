"""What a computation means: its tensors, computed by numpy one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .computation import Computation, needed_by, REDUCTIONS, Tensor
from .steps import COMPARISONS, NUMPY


def evaluate(
    t: Computation, outputs: Sequence[Tensor], arrays: Mapping[str, Any], dtype: Any = np.float64
) -> list[Any]:
    """The values of tensors for these inputs, in `dtype`."""
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for number in sorted(needed_by(t, (x.number for x in outputs))):
            name, *rest = t.nodes[number]
            if name == "input":
                values[number] = np.asarray(arrays[rest[0]]).reshape(rest[1]).astype(dtype)
            elif name in ("constant", "number"):
                values[number] = np.asarray(rest[0], dtype)
            elif name == "index":
                values[number] = np.arange(rest[1], dtype=dtype).reshape(-1, *(1,) * (-1 - rest[0]))
            elif name in REDUCTIONS:
                values[number] = REDUCTIONS[name].reduce(values[rest[0]], axis=rest[1], keepdims=True)
            elif name == "gather":
                x, index, at = values[rest[0]], values[rest[1]], rest[2]
                rank = max(x.ndim, index.ndim)
                x, index = (v.reshape((1,) * (rank - v.ndim) + v.shape) for v in (x, index))
                one = tuple(1 if i - rank == at else n for i, n in enumerate(x.shape))
                whole = np.broadcast_shapes(one, index.shape)
                full = [x.shape[i] if i - rank == at else n for i, n in enumerate(whole)]
                places = np.broadcast_to(index, whole).astype(np.int64)
                values[number] = np.take_along_axis(np.broadcast_to(x, full), places, at)
            elif name == "broadcast":
                values[number] = np.broadcast_to(values[rest[0]], rest[1])
            else:
                kind = np.bool_ if name in COMPARISONS else dtype
                values[number] = np.asarray(NUMPY[name](*(values[x] for x in rest)), kind)
    return [np.broadcast_to(values[x.number], x.shape) for x in outputs]
