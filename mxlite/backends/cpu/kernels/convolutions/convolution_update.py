"""Updates of convolution weights that compute their gradient some filters at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .....ops.layout import first
from .....ops.nn.conv import geometry
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ....fused.convolution_update import ConvolutionUpdate
from ... import convolution
from ...kernel_row import BOTH, kernel_rows
from ...onednn import in_turn, Run
from ...runtime.threads import num_threads
from ..products.product_update import step_of

BAND_BYTES, THREAD_BYTES = 1024 * 1024, 144 * 1024
"""Bytes of a band's gradient in float32, about, and for each thread: one part of Winograd's sums."""
MULTIPLE = 64  # filters of a band: what such a part has

_byte = np.dtype("uint8")


def _filters(weight: tuple[int, ...], threads: int) -> int | None:
    """Filters of a band; None if bands cannot all be of one size."""
    each = 4 * int(np.prod(weight[1:]))
    count = -(-max(BAND_BYTES, THREAD_BYTES * threads) // each)
    found = [b for b in range(MULTIPLE, weight[0] // 2 + 1, MULTIPLE) if weight[0] % b == 0 and b >= count]
    return found[0] if found else None


def _update(r: Request) -> ChosenKernel | None:
    a, count = r.attrs, len(r.attrs.made_of)
    made_of, weight, kinds = r.inputs[:count], r.inputs[count], r.dtypes[count:]
    band = _filters(weight, num_threads())
    small = {x for n, x in zip(a.made_of, r.dtypes) if not n.endswith(("factor", "shift"))}
    if band is None or len(small) != 1 or a.of_maker.num_group != 1 or 0 in made_of[0] or 0 in made_of[1]:
        return None
    g = replace(geometry(a.of_maker, first(made_of[1]), r.dtype), f=band)
    if a.is_normed:
        way = convolution.normed_by_weight(g, r.dtype, False, a.of_maker.relu, a.of_maker.plus)
    else:
        way = convolution.by_weight(g, r.dtype, False)
    if way is None:
        return None
    part = (band, *weight[1:])
    step = step_of(a, part, r.dtype, kinds, r.inputs[-1])
    head = (*made_of[0][:-1], band)
    pieces: list[Piece] = [
        (head, r.dtype), (part, r.dtype), ((max(way.nbytes, step.workspace),), _byte)
    ]  # fmt: skip

    def connect(xp: Any, a: Any, grad: Any, data: Any, *arrays: Any, work: Any) -> Run:
        more, (*own, hyper) = arrays[: count - 2], arrays[count - 2 :]
        some, made, rest = carve(work, pieces)
        lines = (more[:2], *([more[2]] if more[2:] else []), *([more[3:]] if more[3:] else []))
        way_call = way.connect(some, data, made, None, rest[: way.nbytes], *(lines if more else ()))
        services = {"work": rest[: step.workspace]} if "work" in step.signature.services else {}
        calls: list[Run] = []
        for begin in range(0, weight[0], band):
            mine, *states = (z[begin : begin + band] for z in own)
            calls.append(partial(np.copyto, some, grad[..., begin : begin + band]))
            calls.append(way_call)
            calls.append(step.link(step.run, xp, a.attrs, mine, made, *states, hyper, **services))
        return in_turn(calls)

    name = f"{way.name}, {step.name}, {band} filters at a time"
    return connected(connect, scratch_bytes(pieces), name, like=r.op.forward, mutates=True)


ROWS = kernel_rows(BOTH, {ConvolutionUpdate: _update})
