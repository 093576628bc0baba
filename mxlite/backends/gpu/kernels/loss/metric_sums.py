"""Increments of a metric for a batch: one launch, or two if one block has too few threads for the rows.

Every prediction is read once, or, if only one score of a row counts, only that. The split of rows depends
on their number alone: the same bits every time.
"""

from __future__ import annotations

from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.reduce.metric_sums import MetricChosen, MetricDifference, MetricHits, MetricTop, MetricTotal
from ....base import ChosenKernel, Request
from ...compiler.kinds import FLOATS, kind, known, wide
from ...compiler.source import assembled, KernelSource, NAMES, structure, typedefs
from ...handwritten.each import addresses, launch, THREADS
from ...rows import answer, table
from ...runtime.device import Device, InOrder, Run

WARP = 32
FEW = 8 * THREADS  # rows of a block that has a thread for each
MOST_BLOCKS = 1024

_SCORES: dict[type[Op], str] = {MetricHits: "hits", MetricTop: "ranks"}
_WHOLE: dict[type[Op], str] = {MetricChosen: "chosen", MetricTotal: "total", MetricDifference: "differences"}
_MEANS = ("absolute", "square", "root")


Metric: Any = structure("metric_sums", "Metric")


def source(dtype: str) -> KernelSource:
    """All kernels for predictions of this type; see cuda/metric_sums.cuh."""
    return assembled("types", "index", "whole", typedefs(T=NAMES[dtype], A=wide(dtype)), "metric_sums")


def _row(device: Device, r: Request) -> ChosenKernel | None:
    *_, shape = r.inputs
    dtype, a = str(r.dtypes[-1]), r.attrs
    if dtype not in FLOATS or not known(*r.dtypes):
        return None
    given = Metric(rows=prod(shape), classes=1, inner=1, divisor=1.0)
    name = _WHOLE.get(r.op, "alike")
    if r.op in _SCORES and (r.op is MetricTop or r.inputs[2] != shape):
        axis = a.axis % len(shape) if r.op is MetricHits else 1
        name = _SCORES[r.op]
        given.classes, given.inner = shape[axis], max(1, prod(shape[axis + 1 :]))
    elif r.op is MetricChosen:
        given.classes = shape[-1]
    given.rows = given.rows // given.classes if given.classes else prod(r.inputs[2])
    if r.op is MetricChosen:
        given.floor, given.eps = a.floor, a.eps
        given.ignores, given.ignore = a.ignore is not None, a.ignore or 0.0
        given.clips = a.clip
    elif r.op is MetricTop:
        given.top = a.top_k
    elif r.op is MetricDifference:
        given.of, given.divisor = _MEANS.index(a.of), given.rows or float("nan")
    by_warps = name in _SCORES.values() and given.classes >= WARP
    if name in _SCORES.values() and not by_warps:
        name = f"few_{name}"
    each = max(1, FEW // WARP) if by_warps else FEW
    given.blocks = max(1, min(-(-given.rows // each), MOST_BLOCKS))

    several = given.blocks > 1

    def connect(a: Any, sums: Any, taken: Any, *arrays: Any, work: Any = None) -> Run:
        made = Metric.from_buffer_copy(given)
        own = addresses(device, label=arrays[0], pred=arrays[-1], sums=sums, taken=taken)
        for field, address in (own | addresses(device, parts=work if several else None)).items():
            setattr(made, field, address)
        made.kind = kind(arrays[0].dtype)
        listed = ((name, made.blocks), ("add_up", 1))[: 1 + several]
        return InOrder([launch(device, source(dtype), n, blocks, THREADS, made) for n, blocks in listed])

    nbytes = 16 * given.blocks if several else 0
    return answer(r, connect, nbytes, "cuda metric", mutates=True, launches=1 + several)


rows = table(*((op, _row, None) for op in (*_SCORES, *_WHOLE)))
