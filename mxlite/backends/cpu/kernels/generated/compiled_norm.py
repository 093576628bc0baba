"""BatchNorm, alone and with its epilogue, as generated code: at the speed of memory in either layout."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .....core.machine_code import native
from .....graph.opdef import DType
from .....ops.nn.normed_convolution import NormLine
from .....ops.norm.norm import around_channels, BatchNorm, BatchNorm_v1, ContribSyncBatchNorm
from .....ops.norm.norm_act import NormAct
from .....ops.norm.norm_act_line import NormActLine
from .....ops.norm.norm_remat import NormRemat
from .....ops.norm.norm_statistics import NormStatistics
from .....ops.scratch import carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request, Row
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


def _added(r: Request) -> str:
    """Kind of the addend of a norm; see `NormForm`."""
    return getattr(r.attrs, "plus", "")


Arrays = Mapping[str, Any]
"""Arrays of a call by the operator's names, which are those of the code's slots; None for absent ones."""


def _row(
    way: str,
    facts: Callable[[Request, NormForm, _Layout, Arrays], dict[str, Any]],
    sweeps: int,
    own: tuple[str, ...] = (),
) -> Callable[[Request], ChosenKernel | None]:
    """A row for the generated code named `way`.

    `facts(request, form, layout, arrays)` are the fields of the form that follow from the arrays of a call.
    `sweeps`: how often it goes through as many bytes as the data have. `own`: outputs that it writes whether
    they are read or not.
    """

    def chosen(r: Request) -> ChosenKernel | None:
        again, back = way == "again", way == "backward"
        known = _form(r, r.train and not again)
        if known is None or (back and not r.is_used("d_out")):
            return None
        layout = _Layout(r)
        if not layout.in_rows and (r.op.forward_op or r.op) in _IN_ROWS:
            return None
        pieces, needs = layout.pieces(), r.op.signature.needs

        def connect(xp: Any, a: Any, *given: Any, work: Any, train: bool = False, **made: Any) -> Run:
            spare, scratch = carve(work, pieces)
            arrays = dict(zip(needs, given)) | made
            for name, vector in zip(own, spare):
                if name in made and made[name] is None:
                    arrays[name] = vector
            form = _form(r, train and not again)
            assert form is not None
            form = replace(form, **facts(r, form, layout, arrays))
            if layout.in_rows:
                arrays["work"] = scratch
            slots = {getattr(layout.slots, name.upper()): array for name, array in arrays.items()}
            return layout.run(way, form, a, slots, sweeps * arrays["data"].nbytes)

        nbytes = scratch_bytes(pieces)
        return connected(connect, nbytes, "compiled norm", like=r.op.forward, mutates=back, bits=())

    return chosen


def _made(r: Request, form: NormForm, layout: _Layout, arrays: Arrays) -> dict[str, Any]:
    """Facts of a pass that writes the result."""
    out = arrays.get("out")
    return {
        "addend": _added(r),
        "result": out is not None,
        "line": issubclass(r.op, (NormLine, NormActLine)),
        "past_cache": layout.is_past_cache(out, arrays["data"], arrays.get("addend")),
    }


def _gradient(r: Request, form: NormForm, layout: _Layout, arrays: Arrays) -> dict[str, Any]:
    """Facts of the pass that writes the gradients."""
    d_out, d_data, d_addend = arrays["d_out"], arrays["d_data"], arrays.get("d_addend")
    # Without a mask, the gradient of the addend equals that of the output: in place it needs no work.
    same = d_addend is None or (not form.relu and address_of(d_addend) == address_of(d_out))
    return {
        "addend": _added(r) if r.op is NormActLine.grad_op and form.relu else "",
        "stored": not same,
        "by_out": arrays.get("out") is not None,
        "result": d_data is not None,
        "past_cache": layout.is_past_cache(d_data, arrays["data"], d_out),
    }


_IN_ROWS = (NormActLine, NormLine, NormStatistics, NormRemat)  # whose code is for rows alone
_STATISTICS = ("mean", "var", "factor", "shift")

forward = _row("forward", _made, 3, _STATISTICS)


def _without_variance(row: Row) -> Row:
    """The row for a norm that shows its variance in another form than BatchNorm: where it is not shown."""
    return lambda r: None if r.attrs.output_mean_var else row(r)


backward = _row("backward", _gradient, 5, ("d_gamma", "d_beta"))
line = _row("forward", _made, 2, _STATISTICS)
again = _row("again", _made, 3)

SERVES = (
    "ops.nn.normed_convolution",
    "ops.norm.norm",
    "ops.norm.norm_act",
    "ops.norm.norm_act_line",
    "ops.norm.norm_remat",
    "ops.norm.norm_statistics",
)
ROWS = kernel_rows(
    GENERATED,
    {
        BatchNorm: forward,
        BatchNorm.grad_op: backward,
        BatchNorm_v1: forward,
        BatchNorm_v1.grad_op: backward,
        ContribSyncBatchNorm: _without_variance(forward),
        ContribSyncBatchNorm.grad_op: _without_variance(backward),
        NormAct: forward,
        NormAct.grad_op: backward,
        NormActLine: forward,
        NormActLine.grad_op: backward,
        NormLine: line,
        NormStatistics: line,
        NormRemat: again,
    },
)
