"""BatchNorm, alone and with its epilogue, as generated code: at the speed of memory in either layout."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from .....core.machine_code import native
from .....graph.grouped import grouped
from .....graph.opdef import DType
from .....ops.nn.normed_convolution import NormLine
from .....ops.norm.norm import around_channels, BatchNorm
from .....ops.norm.norm_act import NormAct
from .....ops.norm.norm_act_line import NormActLine
from .....ops.norm.norm_arrays import NormAddend, NormGradients, NormMoments, NormResults, NormVectors
from .....ops.norm.norm_remat import NormRemat
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ...compiled import call, load, parts_for, storable, threads_for, usable
from ...compiled.codegen.doubles import slot
from ...compiled.norm import norm_planes, norm_rows
from ...compiled.norm.norm_form import NormForm
from ...kernel_row import GENERATED, kernel_rows
from ...onednn.primitive import address_of, Run
from ...runtime.threads import num_threads

PAST_CACHE = 8 * 2**20
"""Bytes from which on a result is written by non-temporal stores: it would be evicted before it is read, and
ordinary stores would first read each cache line. Measured on 48 MiB of shared third-level cache."""

_FLOATS = frozenset(("float32", "float16", "bfloat16"))
_float32, _byte = np.dtype("float32"), np.dtype("uint8")


class _Layout:
    """(N, C, P) as rows of channels or as planes, with the arguments of the generated code."""

    def __init__(self, r: Request) -> None:
        n, self.channels, p = around_channels(r.attrs, r.inputs[0])
        self.count = n * p
        self.numbers = self.count * self.channels
        # Planes of one element are rows; so is a single channel, which only one thread would have otherwise.
        self.in_rows = p == 1 or self.channels == 1
        self.samples, self.plane = n, p
        self.copies = norm_rows.copies(self.channels, self.numbers, r.dtype.itemsize)
        self.length = self.copies * self.channels
        self.parts = parts_for(2 * self.numbers * r.dtype.itemsize)
        self.slots: Any = norm_rows if self.in_rows else norm_planes

    def pieces(self) -> list[Piece]:
        """Four vectors for results that are not requested, and the scratch of the passes."""
        own = norm_rows.work_bytes(self.length, num_threads(), self.parts) if self.in_rows else 0
        return [((4, self.channels), _float32), ((own,), _byte)]

    def numbers_of(self, attrs: Any) -> dict[int, int]:
        """Number arguments by slot."""
        s = self.slots
        common = {
            s.CHANNELS: self.channels,
            s.PER_COUNT: slot(1.0 / self.count),
            s.EPS: slot(attrs.eps),
            s.MOMENTUM: slot(attrs.momentum),
            s.NEW: slot(1.0 - attrs.momentum),
        }
        if not self.in_rows:
            return common | {s.SAMPLES: self.samples, s.PLANE: self.plane}
        return common | {
            s.ROWS: self.numbers // self.length,
            s.LENGTH: self.length,
            s.REST: self.numbers % self.length,
            s.COPIES: self.copies,
            s.STRIDE: norm_rows.stride(self.length),
            s.PARTS: self.parts,
        }

    def is_past_cache(self, result: Any, *read: Any) -> bool:
        """True if `result` bypasses the cache: it is large, not in place, and of whole vectors."""
        if result is None or result.nbytes < PAST_CACHE or not self.in_rows:
            return False
        at = address_of(result)
        whole = self.length % norm_rows.width() == 0 and at % 64 == 0
        return whole and not any(x is not None and address_of(x) == at for x in read)

    def run(self, way: str, form: NormForm, attrs: Any, arrays: dict[int, Any], nbytes: int) -> Run:
        """A call; `arrays` are by slot, None where the code does not read."""
        given = {i: address_of(x) for i, x in arrays.items() if x is not None} | self.numbers_of(attrs)
        args = [given.get(i, 0) for i in range(max(given) + 1)]
        return call(_code(way, self.in_rows, form), "norm", args, threads_for(nbytes), keep=arrays)


@functools.lru_cache(maxsize=1024)
def _code(way: str, in_rows: bool, form: NormForm) -> native.Code:
    return load(getattr(norm_rows if in_rows else norm_planes, way)(form))


def fits(dtype: DType) -> bool:
    """True if code for norms of data of that type can be generated."""
    return usable() and dtype.name in _FLOATS & storable()


def _form(r: Request, train: bool) -> NormForm | None:
    """The normalization of `r`, as far as forward and backward agree; None if it cannot be generated."""
    if not fits(r.dtype) or 0 in r.inputs[0]:
        return None
    a = r.attrs
    if getattr(a, "slope", 0.0) or _added(r) == "behind":
        return None
    batch = train and not a.use_global_stats
    return NormForm(r.dtype.name, batch, gamma=not a.fix_gamma, relu=getattr(a, "relu", False))


def forward(r: Request) -> ChosenKernel | None:
    """A norm with its epilogue."""
    form = _form(r, r.train)
    if form is None:
        return None
    layout = _Layout(r)
    added, leaves_line = _added(r), r.op is NormActLine
    if leaves_line and not layout.in_rows:
        return None
    pieces = layout.pieces()

    @grouped
    def connect(
        xp: Any,
        a: Any,
        data: Any,
        vectors: NormVectors,
        more: NormAddend,
        *,
        made: NormResults,
        work: Any,
        train: bool,
    ) -> Run:
        spare, own = carve(work, pieces)
        form = _form(r, train)
        assert form is not None
        s = layout.slots
        arrays = {
            s.DATA: data, s.ADDEND: more.addend, s.OUT: made.out, s.GAMMA: vectors.gamma,
            s.BETA: vectors.beta, s.MOVING_MEAN: vectors.moving_mean, s.MOVING_VAR: vectors.moving_var,
            s.MEAN: spare[0] if made.mean is None else made.mean,
            s.VAR: spare[1] if made.var is None else made.var,
        }  # fmt: skip
        if layout.in_rows:
            arrays[s.WORK] = own
        if leaves_line:
            arrays |= {
                s.FACTOR: spare[2] if made.factor is None else made.factor,
                s.SHIFT: spare[3] if made.shift is None else made.shift,
                s.ADDEND_FACTOR: more.addend_factor, s.ADDEND_SHIFT: more.addend_shift,
            }  # fmt: skip
        form = replace(
            form,
            addend=added,
            result=made.out is not None,
            line=leaves_line,
            past_cache=layout.is_past_cache(made.out, data, more.addend),
        )
        return layout.run("forward", form, a, arrays, 3 * data.nbytes)

    return connected(connect, scratch_bytes(pieces), "compiled norm", bits=())


def backward(r: Request) -> ChosenKernel | None:
    """The gradients of a norm with its epilogue."""
    form = _form(r, r.train)
    if form is None or not r.is_used("d_out"):
        return None
    layout = _Layout(r)
    of_line = r.op is NormActLine.grad_op
    added = _added(r) if of_line and form.relu else ""
    if of_line and not layout.in_rows:
        return None
    pieces = layout.pieces()

    @grouped
    def connect(
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        gamma: Any,
        beta: Any,
        moments: NormMoments,
        more: NormAddend,
        out: Any = None,
        *,
        made: NormGradients,
        work: Any,
        train: bool,
    ) -> Run:
        spare, own = carve(work, pieces)
        d_addend = made.d_addend
        form = _form(r, train)
        assert form is not None
        s = layout.slots
        arrays = {
            s.DATA: data, s.OUT: out, s.GAMMA: gamma, s.BETA: beta, s.MEAN: moments.mean,
            s.VAR: moments.var, s.MOVING_MEAN: moments.moving_mean,
            s.MOVING_VAR: moments.moving_var, s.D_OUT: d_out, s.D_DATA: made.d_data,
            s.D_GAMMA: spare[0] if made.d_gamma is None else made.d_gamma,
            s.D_BETA: spare[1] if made.d_beta is None else made.d_beta, s.D_ADDEND: d_addend,
        }  # fmt: skip
        if layout.in_rows:
            arrays[s.WORK] = own
        if of_line:
            arrays |= {
                s.ADDEND: more.addend, s.ADDEND_FACTOR: more.addend_factor, s.ADDEND_SHIFT: more.addend_shift,
            }  # fmt: skip
        # Without a mask, the gradient of the addend equals that of the output: in place it needs no work.
        same = d_addend is None or (not form.relu and address_of(d_addend) == address_of(d_out))
        form = replace(
            form,
            addend=added,
            stored=not same,
            by_out=out is not None,
            result=made.d_data is not None,
            past_cache=layout.is_past_cache(made.d_data, data, d_out),
        )
        return layout.run("backward", form, a, arrays, 5 * data.nbytes)

    return connected(connect, scratch_bytes(pieces), "compiled norm", mutates=True, bits=())


def _added(r: Request) -> str:
    """Kind of the addend of a norm; see `NormForm`."""
    return getattr(r.attrs, "plus", "array" if getattr(r.attrs, "add", False) else "")


def line(r: Request) -> ChosenKernel | None:
    """Kernel that computes a norm's factor and shift for each channel."""
    form = _form(r, r.train)
    if form is None:
        return None
    layout = _Layout(r)
    if not layout.in_rows:
        return None
    pieces = layout.pieces()

    @grouped
    def connect(
        xp: Any,
        a: Any,
        data: Any,
        vectors: NormVectors,
        *,
        factor: Any,
        shift: Any,
        mean: Any,
        var: Any,
        work: Any,
        train: bool,
    ) -> Run:
        spare, own = carve(work, pieces)
        form = _form(r, train)
        assert form is not None
        s = norm_rows
        made = [x if w is None else w for w, x in zip((factor, shift, mean, var), spare)]
        arrays = {
            s.DATA: data, s.GAMMA: vectors.gamma, s.BETA: vectors.beta, s.MOVING_MEAN: vectors.moving_mean,
            s.MOVING_VAR: vectors.moving_var, s.WORK: own,
            **dict(zip((s.FACTOR, s.SHIFT, s.MEAN, s.VAR), made)),
        }  # fmt: skip
        return layout.run("forward", replace(form, result=False, line=True), a, arrays, 2 * data.nbytes)

    return connected(connect, scratch_bytes(pieces), "compiled norm", bits=())


def again(r: Request) -> ChosenKernel | None:
    """Kernel that recomputes the result of a norm from its known statistics."""
    form = _form(r, train=False)
    if form is None:
        return None
    layout = _Layout(r)
    if not layout.in_rows:
        return None
    pieces = layout.pieces()

    def connect(
        xp: Any,
        a: Any,
        data: Any,
        gamma: Any,
        beta: Any,
        mean: Any,
        var: Any,
        addend: Any = None,
        addend_factor: Any = None,
        addend_shift: Any = None,
        *,
        out: Any,
        work: Any,
    ) -> Run:
        s = norm_rows
        arrays = {
            s.DATA: data, s.ADDEND: addend, s.OUT: out, s.GAMMA: gamma, s.BETA: beta, s.MEAN: mean,
            s.VAR: var, s.WORK: carve(work, pieces)[1], s.ADDEND_FACTOR: addend_factor,
            s.ADDEND_SHIFT: addend_shift,
        }  # fmt: skip
        own = replace(form, addend=_added(r), past_cache=layout.is_past_cache(out, data, addend))
        return layout.run("again", own, a, arrays, 3 * data.nbytes)

    return connected(connect, scratch_bytes(pieces), "compiled norm", bits=())


SERVES = (
    "ops.nn.normed_convolution",
    "ops.norm.norm",
    "ops.norm.norm_act",
    "ops.norm.norm_act_line",
    "ops.norm.norm_remat",
)
ROWS = kernel_rows(
    GENERATED,
    {
        BatchNorm: forward,
        BatchNorm.grad_op: backward,
        NormAct: forward,
        NormAct.grad_op: backward,
        NormActLine: forward,
        NormActLine.grad_op: backward,
        NormLine: line,
        NormRemat: again,
    },
)
