"""Convolutions that read float32 weights in mixed precision: no copies of 16 bits, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.convolution import choice, direct
from mxlite.backends.cpu.onednn import library
from mxlite.memplan import check
from tests.backends.passes.pass_lists import left_out
from tests.networks.small_networks import fill_by_kind

pytestmark = pytest.mark.skipif(library() is None or not usable(), reason="oneDNN or llvmlite is not there")
SHAPES = dict(data=(4, 3, 12, 10), softmax_label=(4,))


def conv(x: Any, name: str, filters: int = 32, size: int = 3, **how: Any) -> Any:
    how = dict(no_bias=True, pad=(size // 2,) * 2) | how
    return mx.sym.Convolution(x, kernel=(size, size), num_filter=filters, name=name, **how)


def network(bias: bool = False, reader: Any = None) -> Any:
    """A 3x3 of stride 1 (Winograd's), one with a stride, a 1x1, one of each channel; norms read by some."""
    x = conv(mx.sym.var("data"), "first")
    x = mx.sym.relu(mx.sym.BatchNorm(x, fix_gamma=False, name="bn1"))
    x = conv(x, "same", no_bias=not bias)
    x = mx.sym.relu(mx.sym.BatchNorm(x, fix_gamma=False, name="bn2"))
    x = conv(x, "plain", no_bias=not bias)
    x = mx.sym.tanh(conv(mx.sym.tanh(x), "stride", stride=(2, 2), no_bias=not bias))
    x = mx.sym.tanh(conv(mx.sym.tanh(conv(x, "one", 48, 1)), "each", 48, num_group=48))
    made = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")
    return mx.sym.Group([made, mx.sym.BlockGrad(reader)]) if reader is not None else made


WEIGHTS = [f"{n}_weight" for n in ("first", "same", "plain", "stride", "one", "each")]


def learned(net: Any, steps: int = 2, **how: Any) -> tuple[dict[str, Any], Any]:
    """Weights after some steps, and the plan."""
    sgd = mx.optimizer.SGD(momentum=0.9)
    exe = net.simple_bind(mx.cpu(), optimizer=sgd, **{"amp": "bfloat16", **SHAPES, **how})
    fill_by_kind(exe, 0.2)
    for _ in range(steps):
        out = exe.step([[0.05, 0.0]] * len(exe.updated))[0].asnumpy()
    check(exe.memory_plan)
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    found = {n: a.asnumpy() for n, a in exe.arg_dict.items()} | {"out": out}
    exe.forward(is_train=False)
    return found | {"inference": exe.outputs[0].asnumpy()}, exe.memory_plan


def apart(monkeypatch: Any) -> None:
    left_out(monkeypatch, "inline_convolution_casts")


def copies(plan: Any) -> set[str]:
    """Weights of which the step makes copies."""
    return {n for n in WEIGHTS for t in plan.problem.tasks if t.op == "Cast" and t.name.startswith(n)}


@pytest.mark.parametrize("bias", [False, True])
def test_training_goes_as_with_copies_in_fewer_bytes(bias, monkeypatch):
    after, plan = learned(network(bias))
    apart(monkeypatch)
    before, old = learned(network(bias))
    assert copies(plan) == set() and copies(old) == set(WEIGHTS)
    assert plan.peak_bytes < old.peak_bytes
    exact, _ = learned(network(bias), amp=None)
    assert away(after, exact) < 1.3 * away(before, exact) < 0.02


def away(found: Any, exact: Any) -> float:
    """How far numbers are from those of float32, as a share of them."""
    of = [np.concatenate([x[n].ravel() for n in exact if n not in SHAPES]) for x in (found, exact)]
    return float(np.linalg.norm(of[0] - of[1]) / np.linalg.norm(of[1]))


def test_every_budget_gives_the_same_bits():
    usual, _ = learned(network(True))
    with pytest.raises(mx.MemoryBudgetError) as error:
        learned(network(True), memory_budget=1)
    least, tight = learned(network(True), memory_budget=error.value.least_feasible_bytes)
    assert copies(tight) == set()
    assert [n for n in usual if n != "inference" and usual[n].tobytes() != least[n].tobytes()] == []


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_that_are_kept_are_made_where_they_are_kept(bias, monkeypatch):
    net, found = network(bias), []
    requests = {n: "null" if n in SHAPES else "write" for n in net.list_arguments()}
    for kind in ("bfloat16", "bfloat16", None):
        exe = net.simple_bind(mx.cpu(), amp=kind, grad_req=requests, **SHAPES)
        fill_by_kind(exe, 0.2)
        exe.forward(is_train=True)
        exe.backward()
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        widened = [t.name for t in exe.memory_plan.problem.tasks if t.op == "_backward_Cast"]
        found.append(({n: g.asnumpy() for n, g in exe.grad_dict.items() if g is not None}, len(widened)))
        apart(monkeypatch) if len(found) == 1 else None
    (after, few), (before, many), (exact, _) = found
    assert few <= many - 5
    assert away(after, exact) < 1.3 * away(before, exact) < 0.05


def test_a_weight_that_somebody_else_reads_in_16_bits_has_its_copy():
    weight = mx.sym.var("plain_weight")
    x = conv(mx.sym.var("data"), "first")
    x = mx.sym.Convolution(x, weight, kernel=(3, 3), pad=(1, 1), num_filter=32, no_bias=True, name="plain")
    other = mx.sym.Deconvolution(x, weight, kernel=(3, 3), num_filter=32, no_bias=True, name="back")
    made = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")
    net = mx.sym.Group([made, mx.sym.BlockGrad(other)])
    assert copies(learned(net)[1]) == {"plain_weight"}


def test_a_batch_with_its_channels_last_is_still_read_in_16_bits(monkeypatch):
    """The transposition goes, and the first convolution reads a copy of the batch itself."""
    images = mx.sym.transpose(mx.sym.var("data"), axes=(0, 3, 1, 2))
    x = mx.sym.tanh(conv(mx.sym.tanh(conv(images, "first")), "same"))
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")
    shapes = dict(data=(4, 12, 10, 16))
    after, plan = learned(net, **shapes)
    apart(monkeypatch)
    before, old = learned(net, **shapes)
    exact, _ = learned(net, amp=None, **shapes)
    assert copies(plan) == set() and copies(old) == {"first_weight", "same_weight"}
    assert away(after, exact) < 1.3 * away(before, exact) < 0.02


def test_a_residual_network_of_small_images_takes_less_than_in_float32():
    """Its weights are most of what it owns; of each there was a copy, and that was widened again."""
    net, sgd = mx.models.get("resnet18"), mx.optimizer.SGD(momentum=0.9)
    shapes = dict(data=(4, 3, 64, 64), softmax_label=(4,))
    full, mixed = (
        net.memory_plan(mx.cpu(), optimizer=sgd, amp=kind, **shapes) for kind in (None, "bfloat16")
    )
    assert mixed.peak_bytes < full.peak_bytes


@pytest.mark.skipif(library() is None or not library().has_bf16, reason="16 bits are widened, not multiplied")
def test_a_large_weight_is_narrowed_some_filters_at_a_time(monkeypatch):
    """Of the convolution with a stride, 192 filters in parts of 64; the bits are oneDNN's reorder's."""
    x = mx.sym.tanh(conv(mx.sym.var("data"), "first", 64))
    x = mx.sym.tanh(conv(x, "large", 192, stride=(2, 2)))
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")
    made, found = [], []
    calls = direct.Narrowing.calls
    monkeypatch.setattr(direct.Narrowing, "calls", lambda *args: made.append(args[0]) or calls(*args))
    monkeypatch.setattr(choice, "_once", lambda threads, kinds, way, *args: way(*args))  # no kernel is kept
    monkeypatch.setattr(direct, "NARROWED", 1)
    for least in (0, 1 << 60):
        monkeypatch.setattr(direct, "LEAST_NARROWED", least)
        found.append(learned(net)[0])
        count, made[:] = [len(n.parts) for n in made].count(3), []
        assert (count >= 2) == (least == 0), "forward and gradient"
    for name, x in found[0].items():
        np.testing.assert_array_equal(x, found[1][name], name)
