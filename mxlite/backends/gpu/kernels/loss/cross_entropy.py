"""Cross-entropies of class numbers: data is read once forward, once backward, if a row fits a block.

Forward, a number for each row goes to scratch and is added up in float64, in parts of a fixed number of
rows. If an invalid label is an error, it gives nan and the next wait raises (see checks.py).
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from .....core.dtype import as_dtype
from .....graph.opdef import DType, Op
from .....ops.loss.cross_entropy import cross_entropy, nll_loss, softmax_cross_entropy
from .....ops.scratch import accumulator, carve, Piece, scratch_bytes
from ....base import ChosenKernel, connected, Request
from ...compiler.kinds import kind, known
from ...handwritten.fill import zeros
from ...handwritten.layout import Divisor
from ...runtime.checks import Checked, first_wrong
from ...runtime.device import Arguments, Device, InOrder, nothing, pointer, Run
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
        self.name = op.op_name
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
        address = self.device.address
        return {
            "label": address(label),
            "label_kind": kind(label.dtype),
            "checked": self.checked,
            "ignored": self.ignored,
            "weight": None if weight is None else address(weight),
        }

    def _totals(self, totals: Any, losses: Any, parameters: dict[str, Any]) -> Run:
        """Partial sums of losses, and of the divisor of a mean."""
        device, parts = self.device, _parts(self.n)
        made = Forward(lines=self.n, length=self.lines[1], **parameters)
        made.losses = None if losses is None else device.address(losses)
        values = [made, pointer(device.address(totals)), ctypes.c_int64(-(-self.n // parts))]
        function = self._function("class_totals")
        return device.launch(function, (parts, 1, 1), (256, 1, 1), 0, Arguments(values))

    def _lines(self, data: Any, out: Any, parameters: dict[str, Any]) -> Run:
        """A number for each row of `data`, or its gradient."""
        device = self.device
        if not self.picked:
            return forward_run(device, self.lines, data, out, (self.dtype, self.dtype), **parameters)
        made = Forward(lines=self.n, length=self.lines[1], inner=Divisor(self.lines[2]), **parameters)
        made.data = None if data is None else device.address(data)
        made.out = None if out is None else device.address(out)
        blocks = min(-(-self.n // 256), device.multiprocessors * 16)
        run = device.launch(self._function("class_picked"), (blocks, 1, 1), (256, 1, 1), 0, Arguments([made]))
        return run if out is None else InOrder([zeros(device, out), run])

    def _function(self, name: str) -> Any:
        return self.device.function(source("softmax", str(self.dtype), str(self.dtype)), name)

    def forward(
        self, xp: Any, a: Any, data: Any, label: Any, weight: Any = None, *, out: Any, work: Any
    ) -> Run:
        if out is None:
            return nothing
        device, parameters = self.device, self._parameters(label, weight)
        totals, losses = carve(work, _pieces(self.lines, self.dtype))
        made = {**parameters, "mode": LOSS, "losses": device.address(losses)}
        if self.checked:
            check = device.check(self.name, self._wrong)
            runs: list[Run] = [Checked(self._lines(data, None, {**made, "wrong": check.address}), check)]
        else:
            runs = [self._lines(data, None, made)]
        into = pointer(device.address(out))
        if self.reduction == "none":
            values = [pointer(device.address(losses)), ctypes.c_int64(self.n), into]
            grid = (-(-self.n // 256), 1, 1)
            runs.append(
                device.launch(self._function("class_losses"), grid, (256, 1, 1), 0, Arguments(values))
            )
            return InOrder(runs)
        runs.append(self._totals(totals, losses, parameters))
        mean = ctypes.c_int(self.reduction == "mean")
        values = [pointer(device.address(totals)), ctypes.c_int(_parts(self.n)), mean, into]
        runs.append(device.launch(self._function("class_mean"), (1, 1, 1), (32, 1, 1), 0, Arguments(values)))
        return InOrder(runs)

    def backward(
        self,
        xp: Any,
        a: Any,
        d_out: Any,
        data: Any,
        label: Any,
        weight: Any = None,
        *,
        d_data: Any,
        work: Any,
    ) -> Run:
        """The gradient's call; `data` is None if the loss does not read it."""
        if d_data is None:
            return nothing
        device, parameters = self.device, self._parameters(label, weight)
        totals, _ = carve(work, _pieces(self.lines, self.dtype))
        runs = []
        made = {**parameters, "mode": LOSS_GRADIENT, "head": device.address(d_out)}
        made["each"] = self.reduction == "none"
        if self.reduction == "mean":
            runs.append(self._totals(totals, None, parameters))
            made |= {"counts": device.address(totals), "parts": _parts(self.n)}
        runs.append(self._lines(data, d_data, made))
        return InOrder(runs)


def rows(device: Device) -> dict[type[Op], list[Any]]:
    """Rows of the backend's table for one device."""

    def forward(r: Request) -> ChosenKernel | None:
        loss = _Loss(device, r)
        if not loss.fits:
            return None

        def like(xp: Any, a: Any, data: Any, label: Any, weight: Any, *, out: Any, work: Any) -> None: ...

        return connected(loss.forward, loss.nbytes(), "cuda cross-entropy", like=like)

    def backward(r: Request) -> ChosenKernel | None:
        loss = _Loss(device, r)
        if not loss.fits:
            return None

        def picked(
            xp: Any, a: Any, d_out: Any, label: Any, weight: Any = None, *, d_data: Any, work: Any
        ) -> Run:
            return loss.backward(xp, a, d_out, None, label, weight, d_data=d_data, work=work)

        def like(xp: Any, a: Any, d_out: Any, label: Any, weight: Any, *, d_data: Any, work: Any) -> None: ...

        name, nbytes = "cuda cross-entropy gradient", loss.nbytes()
        if loss.picked:
            return connected(picked, nbytes, name, like=like)
        return connected(loss.backward, nbytes, name, like=r.op.forward)

    table: dict[type[Op], list[Any]] = {}
    for op in (softmax_cross_entropy, cross_entropy, nll_loss):
        assert op.grad_op is not None
        table |= {op: [forward], op.grad_op: [backward]}
    return table
