"""Updates of recurrent layers' parameters: each matrix in bands, see `product_update.py`, and biases."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....ops.rnn.rnn_layout import Sizes
from ....ops.scratch import carve, Piece, scratch_bytes
from ...base import ChosenKernel, connected, Request
from ...fused.rnn_update import biases, factor_numbers, factor_of, matrices, RnnUpdate
from ..kernel_row import BOTH, kernel_rows
from ..onednn import in_turn, Run
from .products.product_update import Bands, bands, step_kernel, Weight

_byte = np.dtype("uint8")


def _update(r: Request) -> ChosenKernel | None:
    a, data = r.attrs, r.inputs[2]
    s = Sizes.of(a.rnn, data)
    count = s.T * s.B
    kinds = r.dtypes[len(r.dtypes) - len(RnnUpdate.halves(a, r.dtypes)[1]) :]
    stride = r.inputs[0][3]
    found: dict[tuple[int, tuple[int, int]], Bands] = {}
    for part in matrices(a.rnn, s):
        key = part.pass_ % s.D, part.shape
        # Products of every width are oneDNN's, as in backward without kept gates: the bits are the same.
        weight = Weight(*part.shape, _parts(s, key[0]), stride, r.dtype, a, kinds, r.inputs[-1], True)
        made = found.get(key) or bands(weight)
        if made is None:
            return None
        found[key] = made
    of_biases = {n: step_kernel(weight, (n,)) for n in {w.stop - w.start for *_, w in biases(a.rnn, s)}}
    pieces: list[Piece] = [
        ((factor_numbers(s, r.dtypes[2] != r.dtype),), r.dtype),
        ((max(b.numbers for b in found.values()),), r.dtype),
        ((max(b.for_product for b in found.values()),), _byte),
        ((max(*(b.for_step for b in found.values()), *(k.workspace for k in of_biases.values())),), _byte),
    ]

    def connect(xp: Any, a: Any, *args: Any, work: Any) -> Run:
        given, (*own, hyper) = RnnUpdate.halves(a, args)
        factor, *room = carve(work, pieces)
        calls: list[Run] = []
        for part in matrices(a.rnn, s):
            y, copies = factor_of(given, s, part, factor)
            calls += (partial(xp.copyto, *pair, casting="unsafe") for pair in copies)
            d = given["d_gates"][part.pass_].reshape(count, stride)[:, part.column : part.column + part.rows]
            mine = [x[part.slice].reshape(part.shape) for x in own]
            key = part.pass_ % s.D, part.shape
            calls += found[key].calls(xp, d, y.reshape(count, -1), mine, hyper, room)
        for number, column, where in biases(a.rnn, s):
            size = where.stop - where.start
            step, (mine, *states) = of_biases[size], (x[where] for x in own)
            services = {"work": room[-1]} if "work" in step.signature.services else {}
            sums = given["d_biases"][number, column : column + size]
            calls.append(step.link(step.run, xp, a.attrs, mine, sums, *states, hyper, **services))
        return in_turn(calls)

    name = next(iter(found.values())).name
    return connected(connect, scratch_bytes(pieces), name, like=r.op.forward, mutates=True)


def _parts(s: Sizes, direction: int) -> tuple[slice, ...]:
    """Time steps, with all samples of each, in the order in which backward without kept gates adds them up,
    so that both give the same bits.
    """
    spans = (s.span(direction, n) for n in reversed(range(s.stretches)))
    return tuple(slice(begin * s.B, end * s.B) for begin, end in spans)


ROWS = kernel_rows(BOTH, {RnnUpdate: _update})
