"""Reference kernels that draw from a stream, with its numbers made by generated code."""

from __future__ import annotations

from typing import Any

from ....graph.opdef import Op
from ....ops.attention import scaled_dot_product_attention
from ....ops.random import _random_normal, _random_randint, _random_uniform
from ....ops.random_like import _random_normal_like, _random_uniform_like
from ...base import Backend, ChosenKernel, Request
from ..compiled import storable, threads_for, usable
from ..compiled.philox import FastStream
from ..compiled.team import LEAST_NBYTES

_WITHOUT_SCRATCH = (_random_uniform, _random_uniform_like)
"""Their scratch is the generator's alone."""


def _row(r: Request) -> ChosenKernel | None:
    is_attention = (r.op.forward_op or r.op) is scaled_dot_product_attention
    draws = not is_attention or (r.attrs.p > 0 and r.train)
    if not usable() or "float16" not in storable() or not draws:
        return None
    reference = Backend.reference(r.op, r.attrs, r.inputs, r.outputs, r.dtype)
    forward, threads = reference.run, threads_for(LEAST_NBYTES)

    def run(*args: Any, rng: Any, **rest: Any) -> None:
        forward(*args, rng=rng and FastStream(rng.state, rng.stream, threads), **rest)

    nbytes = 0 if r.op in _WITHOUT_SCRATCH else reference.workspace
    return ChosenKernel(run, nbytes, "compiled random numbers", reference.signature)


_OPS: tuple[type[Op] | None, ...] = (
    _random_uniform,
    _random_uniform_like,
    _random_normal,
    _random_normal_like,
    _random_randint,
    scaled_dot_product_attention,
    scaled_dot_product_attention.grad_op,
)
ROWS = {op: [_row] for op in _OPS if op is not None}
