"""Losses that read 16-bit data themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite import ops
from mxlite.core import bfloat16
from mxlite.graph.attrs import parse_attrs
from tests.backends.passes.pass_lists import left_out

WORDS, ROWS = 500, 24


def scores() -> Any:
    return mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=WORDS, name="score")


def likelihood(x: Any) -> Any:
    return mx.sym.MakeLoss(-mx.sym.pick(mx.sym.log_softmax(x, name="loss"), mx.sym.var("label")))


LOSSES = {
    "SoftmaxOutput": lambda x: mx.sym.SoftmaxOutput(x, mx.sym.var("label"), name="loss", grad_scale=0.5),
    "softmax_cross_entropy": lambda x: mx.sym.softmax_cross_entropy(x, mx.sym.var("label"), name="loss"),
    "cross_entropy": lambda x: mx.sym.cross_entropy(x, mx.sym.var("label"), name="loss"),
    "log_softmax": likelihood,
}


def trained(symbol: Any, **how: Any) -> tuple[Any, list[np.ndarray]]:
    """An executor that has made a step, with its outputs and gradients."""
    exe = symbol.simple_bind(mx.cpu(), data=(ROWS, 16), label=(ROWS,), amp="bfloat16", **how)
    rng = np.random.default_rng(0)
    for name, x in sorted(exe.arg_dict.items()):
        x[:] = rng.integers(0, WORDS, ROWS) if name == "label" else rng.standard_normal(x.shape)
    exe.forward(is_train=True)
    exe.backward([mx.nd.ones(o.shape) for o in exe.outputs])
    grads = [g for n, g in sorted(exe.grad_dict.items()) if g is not None and n != "label"]
    return exe, [a.asnumpy() for a in (*exe.outputs, *grads)]


def large(exe: Any) -> int:
    """Arrays within the step that have a float32 for each word of each row."""
    return sum(1 for v in exe.memory_plan.problem.values if not v.fixed and v.nbytes == 4 * ROWS * WORDS)


def without(monkeypatch: Any) -> None:
    left_out(monkeypatch, "inline_loss_casts")


@pytest.mark.parametrize("kernels", ["onednn,compiled", "reference"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_reads_16_bits_itself_and_gives_the_same_bits(name, kernels, monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", kernels)
    left_out(monkeypatch, "reductions")  # which inlines casts of those that are loop nests
    symbol = LOSSES[name](scores())
    exe, got = trained(symbol)
    wide = large(exe)
    assert exe.memory_plan.peak_bytes == exe.measured_bytes
    without(monkeypatch)
    exe, want = trained(symbol)
    assert wide < large(exe)
    for x, y in zip(got, want, strict=True):
        assert x.dtype == y.dtype == np.float32
        np.testing.assert_array_equal(x, y)


def test_a_cast_that_others_read_stays():
    cast = mx.sym.cast(mx.sym.var("x"), dtype="float32", name="wide")
    loss = mx.sym.SoftmaxOutput(cast, mx.sym.var("label"), name="loss")
    exe = mx.sym.Group([loss, mx.sym.tanh(cast)]).simple_bind(
        mx.cpu(), x=(3, 4), label=(3,), type_dict={"x": "bfloat16"}
    )
    assert [t.op for t in exe.memory_plan.problem.tasks][:2] == ["Cast", "SoftmaxOutput"]


FORMS = {
    "probabilities": ((7, 300), (7, 300), {}),
    "head gradients": ((7, 300), (7,), {"out_grad": True}),
    "positions": ((3, 40, 5), (3, 5), {"multi_output": True, "use_ignore": True, "ignore_label": 3}),
    "many rows": ((900, 200), (900,), {"normalization": "batch"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_softmax_output_is_that_of_float32_rounded_once(form):
    shape, label, given = FORMS[form]
    attrs = parse_attrs(ops.WideSoftmaxOutput, given)
    rng = np.random.default_rng(1)
    data = rng.standard_normal(shape).astype(bfloat16)
    labels = rng.random(label) if label == shape else rng.integers(0, shape[1], label)
    labels, head = labels.astype(np.float32), rng.standard_normal(shape).astype(np.float32)
    made = {}
    for op, x in ((ops.SoftmaxOutput, data.astype(np.float32)), (ops.WideSoftmaxOutput, data)):
        out, d_data = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, x.dtype)
        shapes = (shape, label), (shape,)
        work = np.empty(op.workspace(attrs, *shapes, x.dtype), np.uint8)
        op.forward(np, attrs, x, labels, out=out, work=work, shapes=shapes)
        work = np.empty(op.backward_workspace(attrs, *shapes, x.dtype), np.uint8)
        given_head = head if given.get("out_grad") else None
        op.backward(np, attrs, given_head, out, labels, d_data=d_data, work=work, shapes=shapes)
        made[op] = out, d_data
    (out, wide), (same, narrow) = made.values()
    np.testing.assert_array_equal(same, out)
    np.testing.assert_array_equal(narrow, wide.astype(bfloat16))
