"""Cross-entropies of class numbers: data is read once forward, once backward, if a row fits a block.

Forward, a number for each row goes to scratch and is added up in float64, in parts of a fixed number of
rows. If an invalid label is an error, it gives nan and the next wait raises (see checks.py).
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....core.dtype import as_dtype
from .....graph.opdef import DType
from .....ops.loss.cross_entropy import cross_entropy, nll_loss, softmax_cross_entropy
from .....ops.scratch import accumulator, carve, Piece, scratch_bytes
from ....base import ChosenKernel, Request
from ...compiler.kinds import kind, known
from ...handwritten.each import addresses, blocks, launch
from ...handwritten.fill import zeros
from ...handwritten.layout import Divisor
from ...rows import answer, table
from ...runtime.checks import Checked, first_wrong
from ...runtime.device import Device, InOrder, Run
from ..nn.softmax import Cube, cube, fits, Forward, forward_run, LOSS, LOSS_GRADIENT, source

STRETCH = 16384  # rows of a part, at least
MOST_PARTS = 64


def _parts(lines: int) -> int:
    return min(MOST_PARTS, -(-lines // STRETCH))


def _pieces(lines: Cube, dtype: DType) -> list[Piece]:
    """Scratch for counts and sums of the parts, and a loss for each row."""
    n = lines[0] * lines[2]
    return [((2 * _parts(n),), as_dtype("float64")), ((n,), accumulator(dtype))]


class _Loss:
    """One cross-entropy on the shapes of a request, forward and backward."""

    def __init__(self, device: Device, r: Request) -> None:
        self.device, self.dtype = device, r.dtype
        self.lines = cube(r.inputs[0], 1)
        self.n = self.lines[0] * self.lines[2]
        op = r.op.forward_op or r.op
        self.name, self.needs = op.op_name, r.op.signature.needs
        self.checked = op is not softmax_cross_entropy
        self.picked = op is nll_loss  # from data that are logarithms
        self.reduction = r.attrs.reduction if self.checked else "sum"
        self.ignored = r.attrs.ignore_index if self.checked else 0
        self.fits = fits(self.lines, r.dtype) and known(*r.dtypes) and prod(r.inputs[0]) > 0

    def _wrong(self, words: tuple[int, int, int]) -> str:
        label = first_wrong(words)[1]
        return f"label must be in [0, {self.lines[1]}) or ignore_index={self.ignored}, got {label}."

    def nbytes(self) -> int:
        return scratch_bytes(_pieces(self.lines, self.dtype))

    def _parameters(self, label: Any, weight: Any) -> dict[str, Any]:
        fixed = {"label_kind": kind(label.dtype), "checked": self.checked, "ignored": self.ignored}
        return fixed | addresses(self.device, label=label, weight=weight)

    def _totals(self, totals: Any, losses: Any, parameters: dict[str, Any]) -> Run:
        """Partial sums of losses, and of the divisor of a mean."""
        parts, own = _parts(self.n), addresses(self.device, losses=losses)
        made = Forward(lines=self.n, length=self.lines[1], **parameters, **own)
        return self._launch("class_totals", parts, 256, made, totals, ctypes.c_int64(-(-self.n // parts)))

    def _lines(self, data: Any, out: Any, parameters: dict[str, Any]) -> Run:
        """A number for each row of `data`, or its gradient."""
        device = self.device
        if not self.picked:
            return forward_run(device, self.lines, data, out, (self.dtype, self.dtype), **parameters)
        own = addresses(device, data=data, out=out)
        made = Forward(lines=self.n, length=self.lines[1], inner=Divisor(self.lines[2]), **own, **parameters)
        run = self._launch("class_picked", blocks(device, self.n), 256, made)
        return run if out is None else InOrder([zeros(device, out), run])

    def _launch(self, name: str, grid: int, threads: int, *values: Any) -> Run:
        text = source("softmax", str(self.dtype), str(self.dtype))
        return launch(self.device, text, name, grid, threads, *values)

    def forward(self, a: Any, data: Any, label: Any, weight: Any = None, *, out: Any, work: Any) -> Run:
        device, parameters = self.device, self._parameters(label, weight)
        totals, losses = carve(work, _pieces(self.lines, self.dtype))
        made = {**parameters, "mode": LOSS, "losses": device.address(losses)}
        if self.checked:
            check = device.check(self.name, self._wrong)
            runs: list[Run] = [Checked(self._lines(data, None, {**made, "wrong": check.address}), check)]
        else:
            runs = [self._lines(data, None, made)]
        if self.reduction == "none":
            values = losses, ctypes.c_int64(self.n), out
            return InOrder([*runs, self._launch("class_losses", -(-self.n // 256), 256, *values)])
        runs.append(self._totals(totals, losses, parameters))
        numbers = _parts(self.n), int(self.reduction == "mean")
        return InOrder([*runs, self._launch("class_mean", 1, 32, totals, *numbers, out)])

    def backward(self, a: Any, *inputs: Any, d_data: Any, work: Any) -> Run:
        """The gradient's call; some losses do not read data, or have no weight."""
        have = dict(zip(self.needs, inputs))
        device, parameters = self.device, self._parameters(have["label"], have.get("weight"))
        totals, _ = carve(work, _pieces(self.lines, self.dtype))
        runs = []
        made = {**parameters, "mode": LOSS_GRADIENT, "head": device.address(have["d_out"])}
        made["each"] = self.reduction == "none"
        if self.reduction == "mean":
            runs.append(self._totals(totals, None, parameters))
            made |= {"counts": device.address(totals), "parts": _parts(self.n)}
        runs.append(self._lines(have.get("data"), d_data, made))
        return InOrder(runs)


def _row(device: Device, r: Request) -> ChosenKernel | None:
    loss = _Loss(device, r)
    if not loss.fits:
        return None
    back = r.op.forward_op is not None
    connect, name = (loss.backward, " gradient") if back else (loss.forward, "")
    return answer(r, connect, loss.nbytes(), f"cuda cross-entropy{name}")


rows = table(*((op, _row, _row) for op in (softmax_cross_entropy, cross_entropy, nll_loss)))
