"""What a step without a budget makes again to hold less at its fullest: which arrays, the same numbers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu.compiled import usable
from mxlite.memplan import check
from mxlite.memplan.remat.split import kept_bytes
from tests.networks.small_networks import fill_by_kind

pytestmark = pytest.mark.skipif(not usable(), reason="there is no compiler (llvmlite)")

PASS = importlib.import_module("mxlite.backends.passes.remat.remat_at_peak")
SGD = mx.optimizer.SGD(momentum=0.9)
SHARE = PASS.SHARE
WHOLE = 2**40  # a budget for everything


@pytest.fixture(autouse=True)
def small(monkeypatch: Any) -> None:
    """Arrays of small networks count, and however long it takes."""
    monkeypatch.setattr(PASS, "LEAST_BYTES", 2048)
    monkeypatch.setattr(PASS, "SHARE", 1e30)


def conv(data: Any, name: str, filters: int = 16, size: int = 3, stride: int = 1) -> Any:
    return mx.sym.Convolution(
        data, name=name, num_filter=filters, kernel=(size, size), pad=(size // 2,) * 2, stride=(stride,) * 2,
        no_bias=True,
    )  # fmt: skip


def norm(data: Any, name: str) -> Any:
    return mx.sym.BatchNorm(data, name=name, fix_gamma=False)


def relu(data: Any, name: str) -> Any:
    return mx.sym.Activation(data, act_type="relu", name=name)


def block(x: Any, name: str, filters: int = 16, stride: int = 1) -> Any:
    """A residual one, with a convolution past it where it strides."""
    y = relu(norm(conv(x, f"{name}_conv1", filters, 3, stride), f"{name}_bn1"), f"{name}_relu1")
    y = norm(conv(y, f"{name}_conv2", filters), f"{name}_bn2")
    skip = x if stride == 1 else norm(conv(x, f"{name}_skip", filters, 1, 2), f"{name}_skip_bn")
    return relu(y + skip, f"{name}_relu")


def head(x: Any) -> Any:
    pooled = mx.sym.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(pooled, num_hidden=5, name="fc"), name="softmax")


def stem() -> Any:
    # With a bias: without one backward needs not what this makes, see test_stem_gradients.py.
    x = mx.sym.Convolution(mx.sym.var("data"), name="stem", num_filter=16, kernel=(3, 3), pad=(1, 1))
    x = relu(norm(x, "stem_bn"), "stem_relu")
    return mx.sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max", name="stem_pool")


def residual(blocks: int = 2) -> Any:
    """Two stages."""
    x = stem()
    for i in range(blocks):
        x = block(x, f"one{i}")
    x = block(x, "two0", 32, stride=2)
    return head(block(x, "two1", 32))


def bound(symbol: Any, batch: int = 4, **how: Any) -> Any:
    how = dict(optimizer=SGD) | how
    exe = symbol.simple_bind(mx.cpu(), data=(batch, 3, 20, 18), softmax_label=(batch,), **how)
    fill_by_kind(exe, 0.2)
    return exe


def rematerialized(exe: Any) -> list[str]:
    names = [t.name for t in exe._planned.train.problem.tasks]
    return [n.removesuffix("_remat") for n in names if n.endswith("_remat")]


def trained(exe: Any) -> dict[str, np.ndarray]:
    for _ in range(2):
        exe.step([[0.1, 0.01]] * len(exe.updated))
    assert exe.measured_bytes == exe.memory_plan.peak_bytes
    return {n: a.asnumpy() for n, a in {**exe.arg_dict, **exe.aux_dict}.items()}


@pytest.mark.parametrize("amp", [None, "bfloat16"])
def test_sums_maxima_and_the_batch_are_made_again_with_the_same_bits_in_fewer_bytes(amp):
    # So many samples that they, and not the kernels' workspaces, decide about the peak.
    light, whole = (bound(residual(), 12, amp=amp, **how) for how in ({}, {"memory_budget": WHOLE}))
    # The maxima are taken before they are normalized; what one sum makes is there for the next.
    names = rematerialized(light)
    assert [n for n in names if "weight" not in n][:4] == ["stem_pool", "stem_relu", "one0_relu", "one1_relu"]
    assert names[-1] == ("data_bfloat16_channels_last" if amp else "data_channels_last")
    always = rematerialized(whole)  # weights in 16 bits; more of them here
    assert all("weight" in n for n in always) and set(always) <= set(names)
    ops = [[t.op for t in exe.memory_plan.problem.tasks] for exe in (light, whole)]
    divided = ops[1].count("_norm_statistics")  # those that a plan may run again
    assert len(ops[0]) - (len(ops[1]) - divided) == len(names) - len(always)
    check(light.memory_plan)
    assert light.memory_plan.peak_bytes < whole.memory_plan.peak_bytes
    assert kept_bytes(light.memory_plan.problem) < 0.9 * kept_bytes(whole.memory_plan.problem)
    want = trained(whole)
    for name, x in trained(light).items():
        np.testing.assert_array_equal(x, want[name], err_msg=name)


def test_a_chain_of_sums_is_made_once():
    names = rematerialized(bound(residual(7)))
    assert len(names) == len(set(names))
    assert [n for n in names if n.startswith("one")] == [f"one{i}_relu" for i in range(4)]


def test_nothing_is_made_again_within_a_budget():
    with pytest.raises(mx.MemoryBudgetError) as refused:
        bound(residual(), memory_budget=1)
    assert not rematerialized(bound(residual(), memory_budget=refused.value.least_feasible_bytes))


def test_what_saves_nothing_is_kept():
    """The last sum is read right at the start of the backward pass, which is the fullest moment."""
    assert not {"two1_relu", "two0_relu"} & set(rematerialized(bound(residual())))
    assert rematerialized(bound(head(stem()))) == ["data_channels_last"]


def test_what_takes_too_long_is_kept(monkeypatch):
    monkeypatch.setattr(PASS, "SHARE", 1e-30)
    assert not rematerialized(bound(residual()))


def test_marked_ends_of_stages_are_kept():
    x = conv(stem(), "a")
    y = relu(norm(x, "n"), "r")
    y._set_attr(__mirror_stage__="True")
    symbol = head(conv(conv(y, "b", stride=2), "c", 64, stride=2))
    assert "r" not in rematerialized(bound(symbol))


def test_plans_are_adopted_whether_made_with_a_budget_or_without():
    symbol = residual()
    for budget in (None, WHOLE):
        plan = bound(symbol, memory_budget=budget).memory_plan
        for given in (None, WHOLE):
            again = bound(symbol, plan=plan, memory_budget=given)
            assert again.memory_plan.peak_bytes == plan.peak_bytes
            assert bool(rematerialized(again)) == (budget is None)


def test_other_shapes_are_made_again_alike():
    exe = bound(residual())
    small = exe.reshape(data=(2, 3, 20, 18), softmax_label=(2,))
    assert rematerialized(small) == rematerialized(exe)
    tight = bound(residual(), memory_budget=WHOLE).reshape(data=(2, 3, 20, 18), softmax_label=(2,))
    assert not rematerialized(tight)


def test_inference_stays_as_it_is():
    exe = residual().simple_bind(mx.cpu(), data=(4, 3, 20, 18), softmax_label=(4,), grad_req="null")
    for lowered in (exe._planned.infer, exe._planned.train):
        assert not [t for t in lowered.problem.tasks if t.name.endswith("_remat")]


def fire(x: Any, name: str, filters: int) -> Any:
    """Two convolutions of one array, joined along channels."""
    wide = [relu(conv(x, f"{name}_{k}", filters, k), f"{name}_relu{k}") for k in (1, 3)]
    return conv(mx.sym.concat(*wide, dim=1, name=f"{name}_join"), f"{name}_out", 8, 1)


@pytest.mark.parametrize("filters, is_made_again", [(16, True), (8, False)])
def test_arrays_joined_in_runs_of_a_cache_line_cost_little_more_than_a_copy(
    filters, is_made_again, monkeypatch
):
    """Backward has the parts. Channels come last; 8 of them have 32 bytes, half a cache line."""
    monkeypatch.setattr(PASS, "SHARE", SHARE)
    symbol = head(fire(fire(stem(), "a", filters), "b", filters))
    light, whole = (bound(symbol, 12, **how) for how in ({}, {"memory_budget": WHOLE}))
    assert ("a_join" in rematerialized(light)) == is_made_again
    check(light.memory_plan)
    assert not is_made_again or light.memory_plan.peak_bytes < whole.memory_plan.peak_bytes
    want = trained(whole)
    for name, x in trained(light).items():
        np.testing.assert_array_equal(x, want[name], err_msg=name)


def gates() -> Any:
    """Products of two results that backward reads, too, for their own slopes."""
    x = mx.sym.var("data")
    for i in range(4):
        gate = mx.sym.sigmoid(conv(x, f"gate{i}"), name=f"sigmoid{i}")
        x = mx.sym.elemwise_mul(mx.sym.tanh(conv(x, f"filter{i}"), name=f"tanh{i}"), gate, name=f"product{i}")
    return head(x)


def test_one_result_of_a_chain_is_made_again_from_the_others(monkeypatch):
    light, whole = (bound(gates(), 12, **how) for how in ({}, {"memory_budget": WHOLE}))
    names = [n for n in rematerialized(light) if "product" in n]
    assert len(names) >= 2
    check(light.memory_plan)
    image = 12 * 16 * 20 * 18 * 4
    saved = kept_bytes(whole.memory_plan.problem) - kept_bytes(light.memory_plan.problem)
    assert saved >= len(names) * image
    want = trained(whole)
    for name, x in trained(light).items():
        np.testing.assert_array_equal(x, want[name], err_msg=name)
    half = bound(gates(), 12, amp="bfloat16")
    assert not [n for n in rematerialized(half) if "product" in n]  # the others have been rounded
