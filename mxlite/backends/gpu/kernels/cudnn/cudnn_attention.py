"""Attention on cuDNN, for two-byte floats: no masks of numbers, no lengths, no dropout (drawn otherwise).

Statistics are the logarithm of each softmax's denominator, as the operator keeps it. The gradient is the
deterministic one, which needs scratch for d_query once for every 128 keys: if that is too much, some
samples are processed at a time. Nothing is measured, so a plan is run once before it is taken: if
that fails, the next rows of the table are tried.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from math import prod, sqrt
from typing import Any

from .....core.dtype import float32
from .....core.errors import DeviceError, OutOfMemoryError
from .....graph.ir import Shape
from .....graph.opdef import DType, Op
from .....ops.nn.attention import scaled_dot_product_attention
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, Request
from ...rows import answer, gradient_of
from ...runtime.device import Device, InOrder, Run
from ...runtime.rates import precision_of
from ...runtime.scratch import begin, room
from ...vendor.cudnn import CudnnError, CudnnPlan, dense, Maker, Session, session, Tensor

_log = logging.getLogger("mxlite")

ALIGN = 16  # bytes: of addresses
MOST_WIDTH, WIDTHS = 128, 8  # of a head: the most, and a divisor
NAMES = ("query", "key", "value", "out", "log_sum", "d_out", "d_query", "d_key", "d_value")


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""
    cudnn = session(device)
    if cudnn is None:
        return {}

    def row(r: Request) -> ChosenKernel | None:
        back = r.op.forward_op is not None
        if not _fits(r) or not r.is_used("d_out" if back else "out"):
            return None
        shapes, dtype = _shapes(r), str(r.dtype)
        if back:
            plan = _within_limit(cudnn, r.attrs, shapes, dtype)
        else:
            plan = forward_plan(cudnn, r.attrs, shapes, dtype, r.is_used("log_sum"))
        if plan is None or not _is_run(device, plan, shapes, r):
            return None
        always = ("d_query", "d_key", "d_value") if back else ("out", "log_sum")
        names = ("d_out", "query", "key", "value", "mask", "length", "out", "log_sum") if back else NAMES[:3]
        own = {n: shapes[n] for n in always}

        def connect(a: Any, *inputs: Any, work: Any, **rest: Any) -> Run:
            given = {n: x for n, x in zip(names, inputs) if n in NAMES}
            return _call(device, plan, given | {n: rest[n] for n in always}, own, r, work)

        nbytes = scratch_bytes(_pieces(own, r)) + room(plan.workspace)
        return answer(r, connect, nbytes, plan.name, always=always, precision=precision_of(r.dtype))

    op = scaled_dot_product_attention
    return {op: [row], gradient_of(op): [row]}


def _fits(r: Request) -> bool:
    a, (query, key, value, *more) = r.attrs, r.inputs
    if more or len({*r.dtypes[:3]}) != 1 or str(r.dtypes[0]) not in ("float16", "bfloat16"):
        return False
    if (a.p and r.train) or 0 in (*query, *key, *value):
        return False
    return all(w % WIDTHS == 0 and w <= MOST_WIDTH for w in (query[3], value[3]))


def _shapes(r: Request) -> dict[str, Shape]:
    """Shape of every array by name; the sums have a last axis of one for cuDNN."""
    found = dict(zip(NAMES, r.inputs[:3])) | {"out": r.outputs[0], "log_sum": (*r.outputs[1], 1)}
    return found | {f"d_{n}": s for n, s in found.items()}


def _pieces(made: Mapping[str, Shape], r: Request) -> list[Piece]:
    """Scratch in place of outputs that are not requested: cuDNN computes all of them."""
    return [((prod(s) if not r.is_used(n) else 0,), _dtype(n, r)) for n, s in made.items()]


def _dtype(name: str, r: Request) -> DType:
    return float32 if name.endswith("log_sum") else r.dtype


def _is_run(device: Device, plan: CudnnPlan, shapes: Mapping[str, Shape], r: Request) -> bool:
    """True if cuDNN runs the plan, on arrays of its own; assumed if there is no device."""
    if not hasattr(device, "time"):
        return True
    key: Any = device
    return _tried(key, plan, tuple(prod(shapes[n]) * _dtype(n, r).itemsize for n in plan.names))


@functools.lru_cache(maxsize=256)
def _tried(device: Any, plan: CudnnPlan, nbytes: tuple[int, ...]) -> bool:
    try:
        arrays = [device.empty(n) for n in (*nbytes, plan.workspace)]
    except OutOfMemoryError:
        return True
    *at, work = map(device.address, arrays)
    call = plan.call({NAMES.index(n) + 1: a for n, a in zip(plan.names, at)}, work if plan.workspace else 0)
    try:
        device.time(call, 1)
    except CudnnError as error:
        _log.warning("%s is not used: %s", plan.name, error)
        return False
    return True


def _call(
    device: Device,
    plan: CudnnPlan,
    arrays: Mapping[str, Any],
    made: Mapping[str, Shape],
    r: Request,
    work: Any,
) -> Run:
    pieces = _pieces(made, r)
    spare = dict(zip(made, carve(work, pieces)))
    at, of_sample = {}, {}
    samples = r.inputs[0][0]
    for name in plan.names:
        x = arrays[name] if arrays[name] is not None else spare[name]
        at[name], of_sample[name] = device.address(x), x.nbytes // samples
    rest = begin(device, work[scratch_bytes(pieces) :]) if plan.workspace else 0
    for name, address in at.items():
        if address % ALIGN:
            raise DeviceError(
                f"Attention on cuDNN needs {name!r} to begin at a multiple of {ALIGN} bytes, but it begins "
                f"at {address:#x}: copy it first."
            )
    runs = []
    for first in range(0, samples, plan.samples):
        shifted = {NAMES.index(n) + 1: a + first * of_sample[n] for n, a in at.items()}
        runs.append(plan.call(shifted, rest))
    return InOrder(runs)


def _within_limit(cudnn: Session, a: Any, shapes: Mapping[str, Shape], dtype: str) -> CudnnPlan | None:
    """The plan of the gradients for as many samples at a time as scratch allows."""
    every = samples = shapes["query"][0]
    while samples:
        some = {n: (samples, *s[1:]) for n, s in shapes.items()}
        whole = all(prod(s) * 2 % ALIGN == 0 for s in some.values())
        if every % samples == 0 and (whole or samples == every):
            plan = backward_plan(cudnn, a, some, dtype)
            if plan is not None:
                return plan
        samples //= 2
    return None


def forward_plan(
    cudnn: Session, a: Any, shapes: Mapping[str, Shape], dtype: str, with_sums: bool
) -> CudnnPlan | None:
    """The plan of out, and of the sums if they are requested."""
    names = ("query", "key", "value", "out", *(("log_sum",) if with_sums else ()))

    def build(m: Maker) -> None:
        q, k, v = (m.input(_tensor(n, shapes, dtype)) for n in names[:3])
        how = {"attn_scale": _scale(a, shapes), "use_causal_mask": a.causal}
        out, sums = m.graph.sdpa(q=q, k=k, v=v, generate_stats=with_sums, **how)
        m.output(out, _tensor("out", shapes, dtype))
        if with_sums:
            m.output(sums, _tensor("log_sum", shapes, dtype))

    key = ("attention", with_sums, a.causal, _scale(a, shapes), tuple(shapes[n] for n in names))
    return _for_samples(cudnn.plan(key, "cudnn attention", dtype, build, names=names), shapes)


def backward_plan(cudnn: Session, a: Any, shapes: Mapping[str, Shape], dtype: str) -> CudnnPlan | None:
    """The plan of the three gradients."""
    given, made = ("query", "key", "value", "out", "d_out", "log_sum"), ("d_query", "d_key", "d_value")

    def build(m: Maker) -> None:
        q, k, v, out, d_out, sums = (m.input(_tensor(n, shapes, dtype)) for n in given)
        how = {"attn_scale": _scale(a, shapes), "use_causal_mask": a.causal}
        found = m.graph.sdpa_backward(
            q=q, k=k, v=v, o=out, dO=d_out, stats=sums, use_deterministic_algorithm=True, **how
        )
        for gradient, name in zip(found, made):
            m.output(gradient, _tensor(name, shapes, dtype))

    key = ("attention backward", a.causal, _scale(a, shapes), tuple(shapes[n] for n in given))
    return _for_samples(cudnn.plan(key, "cudnn attention", dtype, build, names=(*given, *made)), shapes)


def _for_samples(plan: CudnnPlan | None, shapes: Mapping[str, Shape]) -> CudnnPlan | None:
    if plan is not None:
        plan.samples = shapes["query"][0]
    return plan


def _scale(a: Any, shapes: Mapping[str, Shape]) -> float:
    return 1 / sqrt(shapes["query"][3]) if a.scale is None else a.scale


def _tensor(name: str, shapes: Mapping[str, Shape], dtype: str) -> Tensor:
    shape = shapes[name]
    kind = "float32" if name.endswith("log_sum") else dtype
    return Tensor(NAMES.index(name) + 1, shape, dense(shape), kind)
