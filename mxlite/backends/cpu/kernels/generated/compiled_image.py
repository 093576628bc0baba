"""Weight gradient of the first convolution of an image network, computed without the convolution's output."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from .....core.dtype import float32
from .....graph.grouped import grouped
from .....ops.layout import first
from .....ops.nn.conv import geometry
from .....ops.nn.conv_kernels import Geometry
from .....ops.nn.image_gradient import act_attrs, ImageGradient, ImageGradientArrays, ImageSums, settle
from .....ops.nn.pool_kernels import windows
from .....ops.nn.pooled_convolution import made_shape, pooling
from .....ops.norm.norm_act import NormAct
from .....ops.scratch import carve, Piece, scratch_bytes
from .... import base
from ...convolution.images import ChosenSums, PatchSums, PatchSumsByProduct
from ...kernel_row import BOTH, kernel_rows
from ...onednn import Run
from . import compiled_norm

_byte = np.dtype("uint8")


def sums(r: base.Request) -> base.ChosenKernel | None:
    """The sums that are computed in the forward pass."""
    way = _sums_of(geometry(r.attrs, first(r.inputs[1]), r.dtype))
    if way is None or 0 in r.inputs[0]:
        return None

    def connect(
        xp: Any, a: Any, made: Any, data: Any, mean: Any, *, sums: Any, patches: Any, work: Any
    ) -> Run:
        return way.connect(made, data, mean, sums, patches, work)

    return base.connected(connect, way.nbytes, way.name)


def _sums_of(g: Geometry) -> Any:
    for way in (PatchSumsByProduct, PatchSums):
        with suppress(LookupError):
            return way(g)
    return None


def gradient(r: base.Request) -> base.ChosenKernel | None:
    """The gradients."""
    a = r.attrs
    made = made_shape(a, r.inputs[9])
    made = (r.inputs[9][0], *made[1:])
    try:
        way = ChosenSums(
            geometry(a, first(r.inputs[9]), r.dtype), windows(pooling(a), made, last=True), a.relu
        )
    except LookupError:
        return None
    pooled, weight, filters = r.inputs[0], r.outputs[0], r.outputs[0][0]
    grad_op = NormAct.grad_op
    assert grad_op is not None
    vectors = r.inputs[2:8]
    used = frozenset((*grad_op.input_names(act_attrs(a, pooled)), "d_gamma", "d_beta")) - {"out", "d_addend"}
    norm = compiled_norm.backward(
        base.Request(
            grad_op, act_attrs(a, pooled), (pooled, *(vectors[i] for i in (0, 1, 4, 5))),
            (pooled, *vectors[2:4]), r.dtype, (r.dtype, *(float32,) * 4), used, True,
        )
    )  # fmt: skip
    if norm is None:
        return None
    pieces: list[Piece] = [
        ((4, filters), float32), (weight, float32), (weight, float32),
        ((max(way.nbytes, norm.workspace),), _byte),
    ]  # fmt: skip
    scale = 1.0 / prod(made[:-1])

    @grouped
    def connect(
        xp: Any, a: Any, x: ImageGradientArrays, *, d_weight: Any, d_gamma: Any, d_beta: Any, work: Any
    ) -> Run:
        gamma, beta, mean, var = x.gamma, x.beta, x.mean, x.var
        columns, total, term, rest = carve(work, pieces)
        by_x = columns[0] if d_gamma is None else d_gamma
        by_one = columns[1] if d_beta is None else d_beta
        add_up = norm.link(
            norm.run, xp, act_attrs(a, pooled), x.grad, x.chosen, gamma, beta, *x.moments,
            d_data=None, d_gamma=by_x, d_beta=by_one, d_addend=None, work=rest[: norm.workspace], train=True,
        )  # fmt: skip
        if d_weight is None:
            return add_up
        factor = columns[2]
        gather, found = way.connect(
            x.grad, x.chosen, x.index, (gamma, beta, mean, var), x.data, rest[: way.nbytes]
        )

        def make() -> None:
            add_up()
            np.multiply(var, gamma, out=factor)
            gather()
            np.copyto(total, found)
            settle(np, (factor, var, by_x, by_one), scale, x.sums, x.patches, total, term, columns[3])
            np.copyto(d_weight, total, casting="unsafe")

        return make

    return base.connected(connect, scratch_bytes(pieces), f"{norm.name}, {way.name}", mutates=True)


SERVES = ("ops.nn.image_gradient",)
ROWS = kernel_rows(BOTH, {ImageSums: sums, ImageGradient: gradient})
