"""Softmax along the last axis, and the loss after it, as generated code."""

from __future__ import annotations

from math import prod
from typing import Any

from .....ops.loss.loss import SoftmaxOutput
from .....ops.loss.softmax import log_softmax, softmax, SoftmaxActivation
from .....ops.loss.wide_losses import WideSoftmaxOutput
from .....ops.scratch import accumulator
from ....base import ChosenKernel, connected, Request
from ...compiled import call, storable, threads_for, usable
from ...compiled.softmax import backward_code, forward_code, loss_code, LossForm, slots, SoftmaxForm
from ...kernel_row import GENERATED, kernel_rows
from ...onednn import in_turn, Run
from ...onednn.primitive import address_of


def _rows_of(r: Request) -> tuple[int, int] | None:
    """Rows and columns, if the softmax goes along the contiguous axis."""
    shape, op = r.inputs[0], r.op.forward_op or r.op
    if not usable() or 0 in shape or r.dtype.name not in storable():
        return None
    if issubclass(op, SoftmaxOutput):
        if r.attrs.multi_output:
            return (shape[0], shape[1]) if prod(shape[2:]) == 1 else None
        return (prod(shape[:-1]), shape[-1]) if r.attrs.preserve_shape else (shape[0], prod(shape[1:]))
    if op is SoftmaxActivation:
        if r.attrs.mode == "channel":
            return (shape[0], shape[1]) if prod(shape[2:]) == 1 else None
        return prod(shape[:-1]), shape[-1]
    axis = r.attrs.axis % len(shape)
    if prod(shape[axis + 1 :]) != 1 or r.attrs.use_length:
        return None
    return prod(shape[:axis]), shape[axis]


def _form(r: Request) -> SoftmaxForm | None:
    op = r.op.forward_op or r.op
    out = accumulator(r.dtype).name if op is WideSoftmaxOutput else r.dtype.name
    if op in (softmax, log_softmax) and r.attrs.dtype is not None:
        out = r.attrs.dtype
    scale = 1 / (getattr(r.attrs, "temperature", None) or 1)
    return SoftmaxForm(op is log_softmax, scale, r.dtype.name, out) if out in storable() else None


def _forward(r: Request) -> ChosenKernel | None:
    size, form = _rows_of(r), None
    if size is None or (form := _form(r)) is None:
        return None
    code = forward_code(form)
    threads = threads_for(16 * prod(size))

    def run(data: Any, out: Any) -> Run:
        if out is None:
            return in_turn(())
        return call(code, "softmax", slots((data, out), *size), threads, keep=(data, out))

    def connect(xp: Any, a: Any, data: Any, *, out: Any) -> Run:
        return run(data, out)

    def labelled(xp: Any, a: Any, data: Any, label: Any, *, out: Any) -> Run:
        return run(data, out)

    kind = labelled if issubclass(r.op, SoftmaxOutput) else connect
    return connected(kind, 0, "compiled log softmax" if form.logarithm else "compiled softmax")


def _backward(r: Request) -> ChosenKernel | None:
    size, form = _rows_of(r), None
    if size is None or (form := _form(r)) is None or not r.is_used("d_out"):
        return None
    code = backward_code(form)
    threads = threads_for(16 * prod(size))

    def connect(xp: Any, a: Any, d_out: Any, out: Any, *, d_data: Any) -> Run:
        if d_data is None:
            return in_turn(())
        arrays = (d_data, out, d_out)
        return call(code, "softmax", slots(arrays, *size), threads, keep=arrays)

    return connected(connect, 0, "compiled softmax, backward")


_LABELS = ("float32", "int32", "uint8")


def _loss(r: Request) -> ChosenKernel | None:
    size, a = _rows_of(r), r.attrs
    data, label = r.inputs
    if size is None or a.out_grad or label == data or r.dtypes[1].name not in _LABELS:
        return None
    rows, columns = size
    if prod(label) < rows:
        return None
    scale, valid = a.grad_scale, a.normalization == "valid"
    if a.normalization == "batch":
        scale /= max(1, data[0] if a.multi_output else prod(label))
    if valid and prod(label) != rows:
        return None
    ignore = a.ignore_label if a.use_ignore else None
    found = _form(r)
    if found is None:
        return None
    label_kind, smooth = r.dtypes[1].name, a.smooth_alpha
    form = LossForm(found.out, r.dtype.name, label_kind, scale, smooth, ignore, valid, float(a.ignore_label))
    code = loss_code(form, columns)
    threads = threads_for(2 * r.dtype.itemsize * rows * columns)

    def connect(xp: Any, a: Any, out: Any, label: Any, *, d_data: Any) -> Run:
        if d_data is None:
            return in_turn(())
        given = [*(address_of(x) for x in (out, label, d_data)), rows, columns]
        return call(code, "loss", given, threads, keep=(out, label, d_data))

    def with_head(xp: Any, a: Any, d_out: Any, out: Any, label: Any, *, d_data: Any) -> Run:
        return connect(xp, a, out, label, d_data=d_data)

    return connected(with_head, 0, "compiled softmax loss")


SERVES = ("ops.loss.loss", "ops.loss.softmax", "ops.loss.wide_losses")
ROWS = kernel_rows(
    GENERATED,
    {
        softmax: _forward,
        log_softmax: _forward,
        SoftmaxActivation: _forward,
        SoftmaxOutput: _forward,
        WideSoftmaxOutput: _forward,
        softmax.grad_op: _backward,
        log_softmax.grad_op: _backward,
        SoftmaxActivation.grad_op: _backward,
        SoftmaxOutput.grad_op: _loss,
        WideSoftmaxOutput.grad_op: _loss,
    },
)
