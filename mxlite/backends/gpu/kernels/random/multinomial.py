"""Random classes, and rows in random order: equal to the CPU's to the bit."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from .....ops.index.sorting import argsort
from .....ops.random.multinomial import multinomial_pieces, SampleMultinomial, Shuffle
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, kind, known
from ...compiler.source import assembled
from ...handwritten.each import each, launch
from ...handwritten.fill import zeros
from ...handwritten.layout import MOST
from ...rows import answer, At, row, table, where
from ...runtime.device import Device, InOrder, nothing, Run
from ...runtime.scratch import padded
from ..index.lookups import Rows
from ..reduce.sorting import Sorting

_INT64 = np.dtype("int64")


SOURCE = assembled("types", "index", "whole", "philox", "multinomial")


def _fits(r: Request) -> bool:
    *outer, classes = r.inputs[0]
    most = prod(outer) * max(classes, prod(r.attrs.shape) if r.op.forward_op is None else 0)
    return floating(r.dtype) and most <= MOST


@row(where(_fits), "cuda random classes", lambda at: 8 * prod(at.r.inputs[0]))
def _draw(at: At, a: Any, data: Any, *, out: Any, rng: Any, work: Any, prob: Any = None) -> Run:
    device, classes, numbers = at.device, data.shape[-1], prod(a.shape)
    lines = prod(data.shape[:-1])
    if not lines * numbers:
        return nothing
    sums = launch(device, SOURCE, "cumulate", lines, 128, data, work, kind(data.dtype), classes)
    searched = multinomial_pieces(classes)[0][0][0]  # rows of one search on the CPU
    kinds = kind(data.dtype), 0 if out is None else kind(out.dtype)
    arrays = work, data, out, prob, rng.state, ctypes.c_uint32(rng.stream)
    last = classes, numbers, searched, *kinds
    return InOrder([sums, each(device, SOURCE, "choose_classes", lines * numbers, *arrays, *last)])


@row(where(_fits), "cuda random classes gradient")
def _gradient(at: At, a: Any, d_prob: Any, data: Any, out: Any, *, d_data: Any) -> Run:
    if d_prob is None:
        return zeros(at.device, d_data)
    last = data.shape[-1], prod(a.shape), kind(data.dtype), kind(out.dtype)
    return each(at.device, SOURCE, "chosen_gradient", d_data.size, d_prob, data, out, d_data, *last)


def _shuffle(device: Device, r: Request) -> ChosenKernel | None:
    (shape,) = r.inputs
    n, rest = shape[0], prod(shape[1:])
    if not known(r.dtype) or not 0 < n * rest <= MOST:
        return None
    lines = replace(r, attrs=argsort.Attrs(axis=0), inputs=((n,),), dtype=_INT64)
    order, table = Sorting(device, lines), Rows(device, r.dtype, 1, n, n, rest, False)
    if not order.fits or not table.fits:
        return None
    size = padded(8 * n)
    mask = ctypes.c_uint64((1 << (n - 1).bit_length()) - 1)

    def connect(a: Any, data: Any, *, out: Any, rng: Any, work: Any) -> Run:
        keys, places = (work[i * size : i * size + 8 * n].view(_INT64) for i in (0, 1))
        draw = each(device, SOURCE, "shuffle_keys", n, keys, rng.state, ctypes.c_uint32(rng.stream), mask)
        sort = order.call(keys, True, work[2 * size :], positions=places)
        return InOrder([draw, sort, table.call(data, places, out)])

    return answer(r, connect, 2 * size + order.nbytes, "cuda shuffle")


rows = table((SampleMultinomial, _draw, _gradient), (Shuffle, _shuffle, None))
