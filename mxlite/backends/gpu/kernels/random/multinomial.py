"""Random classes, and rows in random order: equal to the CPU's to the bit."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from .....graph.opdef import Op
from .....ops.index.sorting import argsort
from .....ops.random.multinomial import multinomial_pieces, SampleMultinomial, Shuffle
from ....base import ChosenKernel, Request
from ...compiler.kinds import floating, kind, known
from ...compiler.source import assembled
from ...handwritten.each import each, launch
from ...handwritten.fill import zeros
from ...handwritten.layout import MOST
from ...rows import answer, gradient_of
from ...runtime.device import Device, InOrder, nothing, Run
from ...runtime.scratch import padded
from ..index.lookups import Rows
from ..reduce.sorting import Sorting

_INT64 = np.dtype("int64")


SOURCE = assembled("types", "index", "whole", "philox", "multinomial")


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def draw(r: Request) -> ChosenKernel | None:
        (data,), classes = r.inputs, r.inputs[0][-1]
        table, numbers = prod(data[:-1]), prod(r.attrs.shape)
        if not floating(r.dtype) or prod(data) > MOST or table * numbers > MOST:
            return None

        def connect(a: Any, data: Any, *, out: Any, rng: Any, work: Any, prob: Any = None) -> Run:
            n = table * numbers
            if not n or (out is None and prob is None):
                return nothing
            sums = launch(device, SOURCE, "cumulate", table, 128, data, work, kind(data.dtype), classes)
            searched = multinomial_pieces(classes)[0][0][0]  # rows of one search on the CPU
            kinds = kind(data.dtype), 0 if out is None else kind(out.dtype)
            arrays = work, data, out, prob, rng.state, ctypes.c_uint32(rng.stream)
            last = classes, numbers, searched, *kinds
            return InOrder([sums, each(device, SOURCE, "choose_classes", n, *arrays, *last)])

        return answer(r, connect, 8 * prod(data), "cuda random classes")

    def gradient(r: Request) -> ChosenKernel | None:
        (data,), numbers = r.inputs, prod(r.attrs.shape)
        if not floating(r.dtype) or prod(data) > MOST:
            return None

        def connect(a: Any, d_prob: Any, data: Any, out: Any, *, d_data: Any) -> Run:
            if d_prob is None:
                return zeros(device, d_data)
            last = data.shape[-1], numbers, kind(data.dtype), kind(out.dtype)
            return each(device, SOURCE, "chosen_gradient", d_data.size, d_prob, data, out, d_data, *last)

        return answer(r, connect, 0, "cuda random classes gradient")

    def shuffle(r: Request) -> ChosenKernel | None:
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

    return {
        SampleMultinomial: [draw],
        gradient_of(SampleMultinomial): [gradient],
        Shuffle: [shuffle],
    }
