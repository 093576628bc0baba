"""scaled_dot_product_attention as generated code."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log2
from typing import Any

import numpy as np

from .....graph.grouped import grouped
from .....ops.nn.attention import scaled_dot_product_attention as attention
from .....ops.nn.attention_kernels import AttentionArrays, AttentionGradients, AttentionPlan
from ....base import ChosenKernel, connected, Knobs, Request
from ....composed_space import ComposedSpace
from ...compiled import attention_block as generated, call, storable, usable
from ...compiled.attention import code
from ...compiled.attention_block import AttentionForm
from ...compiled.codegen.tile import most_vectors
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn
from ...onednn.primitive import address_of, Run
from ...runtime.threads import num_threads

_GRADIENTS_OVER = {
    "d_query": ("query", "d_out", "out"),
    "d_key": ("key",),
    "d_value": ("value",),
}
"""See `compiled/attention.py`."""

_FLOATS = frozenset(("float32", "float16", "bfloat16"))


def _form(r: Request) -> AttentionForm | None:
    """Form of the code for a request; None if it cannot be generated."""
    a, (query, key, value, *more) = r.attrs, r.inputs
    if not usable() or r.dtype.name not in _FLOATS & storable() or (a.p and r.train):
        return None
    if 0 in query or 0 in key or 0 in value:
        return None
    mask, repeats = "", True
    if a.use_mask:
        shape = _full(more[0])
        mask = r.dtypes[3].name
        repeats = shape[2] == 1
        if not repeats and shape[3] == 1 and key[2] > 1:
            return None
        if r.op.forward_op and r.is_used("d_mask") and mask != "bool":
            return None
    lanes = generated.vectors_for(query[2])
    return AttentionForm(query[3], value[3], r.dtype.name, a.causal, mask, repeats, lanes)


def _full(mask: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (4 - len(mask)) + tuple(mask)


def _numbers(r: Request, own: int) -> dict[int, int]:
    """Number arguments by slot."""
    plan = AttentionPlan.of(r.attrs, r.inputs)
    (scale,) = struct.unpack("<i", struct.pack("<f", plan.scale))
    found = {
        generated.BATCH: plan.batch,
        generated.HEADS: plan.groups * plan.shared,
        generated.SHARED: plan.shared,
        generated.QUERIES: plan.queries,
        generated.NUM_KEYS: plan.keys,
        generated.SCALE: scale & 0xFFFFFFFF,
        generated.OWN: own,
    }
    if r.attrs.use_mask:
        shape = _full(r.inputs[3])
        stride = 1
        for slot, length in zip(range(generated.MASK_KEY, generated.MASK_BATCH - 1, -1), shape[::-1]):
            found[slot] = stride if length > 1 else 0
            stride *= length
    return found


@dataclass(eq=False)
class _Lanes:
    """The vectors of queries in a block, as the one part of a kernel's space: sums are cut by them."""

    form: AttentionForm
    work: float

    @property
    def default(self) -> Knobs:
        return (self.form.lanes,)

    def legal(self) -> Iterator[Knobs]:
        yield from ((n,) for n in generated.LANES if n <= most_vectors())

    def allows(self, knobs: Knobs) -> bool:
        return knobs in self.legal()

    def features(self, knobs: Knobs) -> list[float]:
        sizes = self.form.width, self.form.values, self.form.nbytes, self.work
        return [float(knobs[0]), *(log2(1 + x) for x in sizes)]


def _kernel(r: Request, backward: bool) -> ChosenKernel | None:
    form = _form(r)
    if form is None:
        return None
    part = _Lanes(form, AttentionPlan.of(r.attrs, r.inputs).queries)

    def kernel(knobs: Sequence[Knobs]) -> ChosenKernel:
        return _of_form(r, form._replace(lanes=knobs[0][0]), backward)

    return replace(kernel([part.default]), space=ComposedSpace([part], kernel))


def _of_form(r: Request, form: AttentionForm, backward: bool) -> ChosenKernel:
    """The kernel with the code of a form."""
    (batch, groups, keys), threads = r.inputs[1][:3], num_threads()
    if backward:
        threads = min(threads, batch * groups)
    own = generated.work_bytes(form, backward, keys)
    lengths = -(-8 * r.inputs[0][0] // 64) * 64 if r.attrs.use_length else 0
    numbers = _numbers(r, own)
    if not form.mask:
        code(form, backward)  # with a mask, its array tells the type

    def run(work: Any, length: Any, arrays: dict[int, Any]) -> Run:
        given = {slot: address_of(x) for slot, x in arrays.items() if x is not None} | numbers
        given[generated.WORK] = address_of(work) + lengths
        calls = []
        if length is not None:  # of whatever type
            whole = work[: 8 * length.size].view(np.int64)
            given[generated.LENGTH] = address_of(whole)
            calls.append(partial(np.copyto, whole, length, casting="unsafe"))
        mask = arrays[generated.MASK]
        own_code = code(form if mask is None else form._replace(mask=mask.dtype.name), backward)
        args = [given.get(i, 0) for i in range(generated.COUNT)]
        return in_turn([*calls, call(own_code, "attention", args, threads, keep=(work, length, arrays))])

    def common(x: AttentionArrays, out: Any, log_sum: Any) -> dict[int, Any]:
        slots = generated
        return {
            slots.QUERY: x.query, slots.KEY: x.key, slots.VALUE: x.value, slots.MASK: x.mask, slots.OUT: out,
            slots.LOG_SUM: log_sum,
        }  # fmt: skip

    @grouped
    def forward(xp: Any, a: Any, x: AttentionArrays, *, out: Any, log_sum: Any, work: Any) -> Run:
        return run(work, x.length, common(x, out, log_sum))

    @grouped
    def back(
        xp: Any, a: Any, d_out: Any, x: AttentionArrays, out: Any, log_sum: Any, *, made: AttentionGradients,
        work: Any,
    ) -> Run:  # fmt: skip
        slots = generated
        arrays = common(x, out, log_sum) | {
            slots.D_OUT: d_out, slots.D_QUERY: made.d_query, slots.D_KEY: made.d_key,
            slots.D_VALUE: made.d_value,
        }  # fmt: skip
        call = run(work, x.length, arrays)
        return call if made.d_mask is None else in_turn([call, partial(made.d_mask.fill, 0)])

    nbytes = lengths + threads * own
    if backward:
        return connected(back, nbytes, "compiled attention", in_place=_GRADIENTS_OVER, bits=())
    return connected(forward, nbytes, "compiled attention", bits=())


def _forward(r: Request) -> ChosenKernel | None:
    return _kernel(r, False)


def _backward(r: Request) -> ChosenKernel | None:
    return _kernel(r, True)


SERVES = ("ops.nn.attention",)
ROWS = kernel_rows(GENERATED, {attention: _forward, attention.grad_op: _backward})
