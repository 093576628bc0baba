"""Reference kernels that draw from a random stream, whose numbers come from generated code."""

from __future__ import annotations

from math import prod
from typing import Any

from .....graph.opdef import Op
from .....ops.nn.attention import scaled_dot_product_attention
from .....ops.random import random, sampling
from ....base import Backend, ChosenKernel, Request
from ...compiled import storable, threads_for, usable
from ...compiled.calls.team import LEAST_NBYTES
from ...compiled.random.parameters import Parameters
from ...compiled.random.samplers import can_draw, code
from ...compiled.random.streams import FastStream
from ...kernel_row import GENERATED, kernel_rows, LATER

_WITHOUT_SCRATCH = (random.RandomUniform, random.RandomUniformLike)
"""Operators whose scratch is only the generator's."""


def _row(r: Request) -> ChosenKernel | None:
    is_attention = (r.op.forward_op or r.op) is scaled_dot_product_attention
    draws = not is_attention or (r.attrs.p > 0 and r.train)
    if not usable() or "float16" not in storable() or not draws:
        return None
    nbytes = 0 if r.op in _WITHOUT_SCRATCH else _reference(r).workspace
    return _with_fast_stream(r, nbytes)


def _law_row(r: Request) -> ChosenKernel | None:
    """Kernel of a distribution; it needs no scratch if generated code draws all numbers."""
    _, (made,) = r.op.infer_type(r.attrs, *r.dtypes)
    assert made is not None
    if not usable() or not can_draw(prod(r.outputs[0]), {d.name for d in (made, *r.dtypes)}):
        return None
    op: Any = r.op
    code(op.law, made.name, _parameters(r))  # compile now, while plans are made
    return _with_fast_stream(r, 0)


def _parameters(r: Request) -> Parameters:
    """Parameters of a distribution: numbers among the attributes, or the inputs."""
    if names := getattr(r.op, "parameters", ()):
        return Parameters(("",) * len(names), False)
    return Parameters(tuple(d.name for d in r.dtypes), prod(r.inputs[0]) == prod(r.outputs[0]))


def _reference(r: Request) -> ChosenKernel:
    return Backend.reference(r.op, r.attrs, r.inputs, r.outputs, r.dtype)


def _with_fast_stream(r: Request, nbytes: int) -> ChosenKernel:
    """The reference kernel with `nbytes` of scratch and another generator."""
    reference = _reference(r)
    forward, threads = reference.run, threads_for(LEAST_NBYTES)

    def run(*args: Any, rng: Any, **rest: Any) -> None:
        forward(*args, rng=rng and FastStream(rng.state, rng.stream, threads), **rest)

    return ChosenKernel(run, nbytes, "compiled random numbers", reference.signature)


_STREAMS: tuple[type[Op] | None, ...] = (
    random.RandomUniform,
    random.RandomNormal,
    random.RandomRandint,
    random.RandomUniformLike,
    random.RandomNormalLike,
    scaled_dot_product_attention,
    scaled_dot_product_attention.grad_op,
)
_LAWS = [
    op
    for module in (random, sampling)
    for op in vars(module).values()
    if isinstance(op, type) and hasattr(op, "law")
]
SERVES = ("ops.random", "ops.nn.attention")
ROWS = kernel_rows(
    GENERATED,
    {
        **{op: _row for op in _STREAMS if op is not None},
        **dict.fromkeys(_LAWS, _law_row),
    },
    priority=LATER,
)
