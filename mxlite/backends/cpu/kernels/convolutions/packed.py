"""Calls of convolutions and dense layers with prepacked weights, made once."""

from __future__ import annotations

from typing import Any

from ....base import ChosenKernel, connected, Request
from ...kernel_row import kernel_rows, LIBRARY
from ...onednn import Run
from ...packed import PackedConvolution, PackedDense, PackWeight


def _pack(r: Request) -> ChosenKernel | None:
    def connect(xp: Any, a: Any, weight: Any, *, out: Any, work: Any) -> Run:
        run: Run = a.way.pack(weight, out, work)
        return run

    return connected(connect, r.attrs.way.scratch, "onednn reorder")


def _convolve(r: Request) -> ChosenKernel | None:
    def connect(
        xp: Any, a: Any, data: Any, packed: Any, factor: Any, bias: Any, addend: Any, *, out: Any, work: Any
    ) -> Run:
        run: Run = a.way.connect(data, packed, bias, addend, out, work, factor)
        return run

    return connected(connect, r.attrs.way.nbytes, r.attrs.way.name)


SERVES = ("backends.cpu.packed",)
ROWS = kernel_rows(LIBRARY, {PackWeight: _pack, PackedConvolution: _convolve, PackedDense: _convolve})
