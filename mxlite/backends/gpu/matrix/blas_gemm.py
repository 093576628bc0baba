"""A product of `gemm.py` as calls of cuBLASLt: one, or one for each of a few outer batches.

Epilogues that cuBLASLt lacks (the exact GELU, the slope of a rectifier taken from its output, a bias
for each row, any for doubles) are run as a separate pass over the result.
"""

from __future__ import annotations

import functools
import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TYPE_CHECKING

from ....core import config
from ..runtime.device import one_after_other, Run
from ..vendor.cublaslt import Choice, choices, CublasError, CublasLtCall, Library, Multiplication, SIZES
from . import tiled_gemm

if TYPE_CHECKING:
    from .gemm import Product

_log = logging.getLogger("mxlite")

MOST_SCRATCH = 32 << 20
"""Bytes that one call may use, which is what NVIDIA recommends for sm_90."""
SHARE, LEAST_SCRATCH = 4, 256 << 10
"""Scratch may be a quarter of the bytes of the matrices, if that is less, but always at least this: in a
small network scratch would otherwise exceed all else."""
MOST_CALLS = 8  # of one product: more are left to our own kernel, which takes them all together
MOST_BATCH = 65535
"""Matrices of one call: algorithms that count them along a grid's third axis cannot do more, and the
heuristic does not always know (tensorflow/tensorflow, pull request 44175, 2020)."""
MOST_ALIGNED = 16  # bytes: the alignment that vector loads and hardware copies need


class Addresses(NamedTuple):
    """Addresses of a product's matrices and vectors; 0 if absent.

    `added`: the operand of beta, 0 if that is c.
    """

    a: int
    b: int
    c: int
    bias: int = 0
    known: int = 0
    sums: int = 0
    added: int = 0


@dataclass(frozen=True)
class GemmPlan:
    """`calls` products of one form, successive ones `steps` elements (of a, b, c) apart.

    `finish`: the epilogue that is left to a pass of our own.
    """

    form: Multiplication
    choice: Choice
    calls: int
    steps: tuple[int, int, int]
    finish: Product | None


def merged(p: Product) -> Product:
    """The same product with `summed` and `batch` as small as they can be: contiguous ones are merged."""
    if p.summed > 1 and p.trans_a and not p.trans_b:
        if p.more_a == p.k * p.pitch_a and p.more_b == p.k * p.pitch_b:
            p = replace(p, k=p.k * p.summed, summed=1, more_a=0, more_b=0)
    outer, inner = p.batch
    every = (p.strides_a, p.strides_b, p.strides_c)
    if outer == 1 or inner == 1:
        at = 0 if inner == 1 else 1
        a, b, c = ((0, s[at] if outer * inner > 1 else 0) for s in every)
        return replace(p, batch=(1, outer * inner), strides_a=a, strides_b=b, strides_c=c)
    if all(s[0] == inner * s[1] for s in every):
        a, b, c = ((0, s[1]) for s in every)
        return replace(p, batch=(1, outer * inner), strides_a=a, strides_b=b, strides_c=c)
    return p


def divided(p: Product) -> Product:
    """A merged product split into few equal calls of at most MOST_BATCH matrices, if that is possible."""
    calls, count = p.batch
    if calls > 1 or count <= MOST_BATCH:
        return p
    for calls in range(2, MOST_CALLS + 1):
        each, rest = divmod(count, calls)
        if not rest and each <= MOST_BATCH:
            a, b, c = ((each * s, s) for _, s in (p.strides_a, p.strides_b, p.strides_c))
            return replace(p, batch=(calls, each), strides_a=a, strides_b=b, strides_c=c)
    return p


def _aligned(item: int, *strides: int) -> int:
    """Largest power of two in bytes that divides all these distances; for an address, with item 1."""
    bits = MOST_ALIGNED
    for s in strides:
        bits |= s * item
    return bits & -bits


def _form(p: Product, fused: bool) -> Multiplication:
    """One call of a merged product; without an epilogue unless it is `fused`."""
    item, made = SIZES.get(p.dtype, 1), SIZES.get(p.made, 1)
    tf32 = config.allow_tf32() if p.tf32 is None else p.tf32
    (_, a), (_, b), (_, c) = p.strides_a, p.strides_b, p.strides_c
    return Multiplication(
        p.m, p.n, p.k, p.dtype, p.made, p.trans_a, p.trans_b, p.pitch_a, p.pitch_b, p.pitch_c, p.batch[1],
        a, b, c, p.alpha, p.beta, bool(p.bias) and fused, p.activation if fused else "",
        p.slope if fused else "", p.row_sums and fused, tf32,
        _aligned(item, p.pitch_a, *p.strides_a), _aligned(item, p.pitch_b, *p.strides_b),
        _aligned(made, p.pitch_c, *p.strides_c), MOST_ALIGNED,
    )  # fmt: skip


@functools.lru_cache(maxsize=4096)
def _choices(device: Any, form: Multiplication, limit: int) -> tuple[Choice, ...]:
    """Algorithms for a form. If the library refuses the form, our own kernel takes it, and this is logged.

    They are queried while no graph is captured: in a capture cuBLASLt 13.3 fails (mudler/vllm.cpp, issue
    1732, 2026).
    """
    if not form.is_known:
        return ()
    with getattr(device, "active", nullcontext)(), getattr(device, "between_captures", nullcontext)():
        try:
            return tuple(choices(device.blas, device.blas.handle(device.index), form, limit))
        except CublasError as error:
            _log.warning("cuBLASLt is not used for %s: %s", form, error)
            return ()


def plans(device: Any, p: Product) -> list[GemmPlan]:
    """Candidate plans, the one that should be fastest first; none if cuBLASLt cannot compute it."""
    lib: Library | None = getattr(device, "blas", None)  # only a real GPU has it, and not each of those
    if lib is None or p.dtype not in SIZES or not (p.m and p.n and p.k and p.batch[0] and p.batch[1]):
        return []
    q = divided(merged(p))
    calls, count = q.batch
    if q.summed > 1 or calls > MOST_CALLS or count > MOST_BATCH:
        return []
    steps = (q.strides_a[0], q.strides_b[0], q.strides_c[0])
    form = _form(q, fused=True)
    made = (
        []
        if p.bias == "rows"
        else [GemmPlan(form, choice, calls, steps, None) for choice in _found(device, form)]
    )
    finishes = bool(p.bias or p.activation or p.slope)
    if (made and not p.row_sums) or not (finishes or p.row_sums):
        return made
    # Measurements decide if sums are better fused with the product or computed apart.
    form = _form(q, fused=False)
    return made + [GemmPlan(form, c, calls, steps, p if finishes else None) for c in _found(device, form)]


def _found(device: Any, form: Multiplication) -> tuple[Choice, ...]:
    a, b, c = form.m * form.k, form.k * form.n, form.m * form.n
    nbytes = form.count * ((a + b) * SIZES[form.dtype] + c * SIZES[form.made])
    return _choices(device, form, min(MOST_SCRATCH, max(LEAST_SCRATCH, nbytes // SHARE)))


def connect(device: Any, plan: GemmPlan, where: Addresses, work: int, room: int) -> Run | None:
    """The call for matrices at these addresses; `work` is `room` bytes, at least the plan's.

    None if they are less aligned than required, and no algorithm accepts them. Sums of rows are
    computed if the plan's form includes them.
    """
    lib: Library = device.blas
    handle = lib.handle(device.index)
    form, choice = plan.form, plan.choice
    a, b, c, bias, known, sums, added = where
    added = added or c
    beside = sums if form.row_sums else bias
    aligned = [_aligned(1, *x) for x in ((a,), (b,), (c, added), (beside,))]
    if form.slope:
        aligned[2] = min(aligned[2], _aligned(1, known))
    promised = (form.align_a, form.align_b, form.align_c, form.align_bias if form.has_vector else 0)
    if aligned[3] < promised[3] or (form.slope and _aligned(1, known) < MOST_ALIGNED):
        return None  # for vectors, some algorithms do not keep what the heuristic promised
    if any(x < y for x, y in zip(aligned, promised)):
        least = [min(x, y) if y else MOST_ALIGNED for x, y in zip(aligned, promised)]
        form = replace(form, align_a=least[0], align_b=least[1], align_c=least[2], align_bias=least[3])
        found = _choices(device, form, room)
        if not found:
            return None
        choice = found[0]
    item, made = SIZES[form.dtype], SIZES[form.made]
    runs: list[Run] = []
    for i in range(plan.calls):
        x, y, z = (s * i for s in plan.steps)
        addresses = (a + x * item, b + y * item, c + z * made, beside, known + z * made, added + z * made)
        runs.append(CublasLtCall(device, lib, handle, form, choice, addresses, work))
    if plan.finish is not None:
        runs.append(tiled_gemm.finish(device, plan.finish, c, bias, known))
    return one_after_other(runs)
