"""Updates of many parameters in few launches: the same bits, and bytes that are bounded."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends import Backend
from mxlite.backends.fused.update_group import FusedUpdates
from mxlite.backends.gpu.graphs.joining import join
from mxlite.backends.gpu.grouping.group_updates import group_updates
from mxlite.backends.gpu.grouping.groups import GROUP_BYTES, SMALL_BYTES
from mxlite.backends.gpu.handwritten.weights import CHUNK
from mxlite.backends.gpu.kernels.optim import gradients, lamb, update
from mxlite.backends.gpu.kernels.optim.update import UpdateStep
from mxlite.backends.rewrite import Pipeline
from mxlite.graph.attrs import parse_attrs
from mxlite.memplan import check
from mxlite.ops import sgd_mom_update
from tests.emulators.emulated_device import compiler, EmulatedDevice
from tests.networks.grouped_programs import bind_with, network

pytestmark = pytest.mark.skipif(compiler is None, reason="g++ is not installed")


@pytest.fixture
def backend(monkeypatch):
    """Programs bound here run updates on emulated kernels, in groups."""

    def use(grouped=True, kernels=True):
        device = EmulatedDevice()
        table = {}
        for module in (update, lamb, gradients) if kernels else ():
            for op, listed in module.rows(device).items():
                table.setdefault(op, []).extend(listed)
        made = Backend("emulated", np, table, join=join)
        if grouped:
            made = dataclasses.replace(made, optimize=lambda: Pipeline((group_updates,)))
        bind_with(monkeypatch, made)
        return device

    return use


def trained(optimizer, steps=3, net=None, **how):
    """An executor after some steps."""
    exe = (net or network()).simple_bind(
        mx.cpu(), data=(4, 6), softmax_label=(4,), optimizer=optimizer, **how
    )
    rng = np.random.default_rng(0)
    for name, a in exe.arg_dict.items():
        a[:] = rng.integers(0, 3, a.shape) if "label" in name else rng.standard_normal(a.shape)
    count = optimizer.update_rule().rates
    for t in range(1, steps + 1):
        exe.step([[0.1 / t, 0.01 * (i % 2), t][:count] for i in range(len(exe.updated))])
    check(exe.memory_plan)
    values(exe)  # waits for all steps
    return exe


def values(exe):
    return {n: a.asnumpy() for n, a in (exe.arg_dict | exe.optimizer_states).items()}


@pytest.mark.parametrize(
    "optimizer", [mx.optimizer.SGD(momentum=0.9), mx.optimizer.LAMB()], ids=["sgd", "lamb"]
)
@pytest.mark.parametrize("scaling", [{}, {"amp": "fp16", "loss_scale": 64.0}], ids=["", "scaled"])
def test_a_group_computes_what_single_updates_do(backend, optimizer, scaling):
    device = backend(grouped=False)
    alone = trained(optimizer, **scaling)
    singles = len(device.launched)
    device = backend(grouped=True)
    together = trained(optimizer, **scaling)
    assert "_fused_updates" in {t.op for t in together.memory_plan.problem.tasks}
    if scaling:  # set_one, all_finite, scaled_update, and the step
        assert len(device.launched) == 3 * (5 if isinstance(optimizer, mx.optimizer.LAMB) else 4)
    else:
        assert len(device.launched) < singles / 3
    for name, value in values(together).items():
        assert value.tobytes() == values(alone)[name].tobytes(), name


def test_the_reference_of_a_group_is_that_of_its_members(backend):
    backend(grouped=True, kernels=False)
    together = trained(mx.optimizer.Adam())
    backend(grouped=False, kernels=False)
    alone = trained(mx.optimizer.Adam())
    for name, value in values(together).items():
        assert value.tobytes() == values(alone)[name].tobytes(), name


def test_a_scaled_step_that_overflows_changes_nothing_on_the_kernels(backend):
    backend()
    exe = trained(mx.optimizer.SGD(momentum=0.9), amp="fp16", loss_scale="dynamic")
    before, scale = values(exe), exe.loss_scale
    exe.step([[0.1, 0.0]] * len(exe.updated), data=exe.arg_dict["data"].asnumpy() * 1e6)
    assert exe.loss_scale == scale / 2
    for name, value in values(exe).items():
        assert name == "data" or value.tobytes() == before[name].tobytes(), name


def test_what_groups_cost_is_bounded_and_large_gradients_stay_alone(backend):
    """A network of large and small parameters, planned with groups and without."""
    wide = int((SMALL_BYTES / 4) ** 0.5) + 8
    x = mx.sym.Variable("data")
    for i in range(24):
        x = mx.sym.FullyConnected(x, num_hidden=wide, name=f"fc{i}")
    net = mx.sym.LinearRegressionOutput(x, name="out")
    found = {}
    for grouped in (False, True):
        backend(grouped=grouped, kernels=False)
        found[grouped] = net.memory_plan(
            data=(8, wide), out_label=(8, wide), optimizer=mx.optimizer.SGD(momentum=0.9)
        )
    names = [t.name for t in found[True].problem.tasks if t.op == "_fused_updates"]
    assert len(names) == 1 and all("bias" in n for n in names)  # all biases are less than one group
    assert sum(t.op == "_fused_sgd_mom" for t in found[True].problem.tasks) == 24
    cost = found[True].arena_bytes - found[False].arena_bytes
    assert cost <= 24 * wide * 4 <= GROUP_BYTES


def test_groups_end_where_their_gradients_are_many_bytes(backend):
    side = int((SMALL_BYTES / 4) ** 0.5)
    x = mx.sym.Variable("data")
    for i in range(12):
        x = mx.sym.FullyConnected(x, num_hidden=side, no_bias=True, name=f"fc{i}")
    net = mx.sym.LinearRegressionOutput(x, name="out")
    plans = []
    for grouped in (False, True):
        backend(grouped=grouped, kernels=False)
        how = {"data": (2, side), "out_label": (2, side), "optimizer": mx.optimizer.SGD()}
        plans.append(net.memory_plan(**how))
    groups = [t for t in plans[1].problem.tasks if t.op == "_fused_updates"]
    assert [len(t.inputs) for t in groups] == [2 * GROUP_BYTES // SMALL_BYTES + 1] * 3
    assert 0 < plans[1].arena_bytes - plans[0].arena_bytes <= GROUP_BYTES


def test_neighbours_in_a_schedule_are_one_launch_unless_they_share_an_array():
    device = EmulatedDevice()
    float32 = np.dtype("float32")
    attrs = parse_attrs(sgd_mom_update, {"lr": 0.1, "momentum": 0.9})
    step = UpdateStep(device, sgd_mom_update, attrs, (float32,) * 3, False, "float64")
    rng = np.random.default_rng(0)

    def call(size, shared=None):
        arrays = [rng.standard_normal(size).astype("f") for _ in range(3)]
        arrays[1] = arrays[1] if shared is None else shared[1]
        return arrays, step.run([step.weight(arrays, arrays[0], rates=(0.1, 0.01, 1.0))])

    made = [call(n) for n in (5, 2 * CHUNK + 3, 70)]
    made.append(call(70, shared=made[2][0]))
    other = lambda: None  # noqa: E731
    calls = [made[0][1], made[1][1], other, made[2][1], made[3][1]]
    joined = join(calls)
    assert [place for place, _ in joined] == [0, 2, 3, 4]
    want = []
    for arrays, _ in made:
        w, g, m = (a.copy() for a in arrays)
        work = np.empty(4 * CHUNK * 16, np.uint8)
        sgd_mom_update.forward(np, dataclasses.replace(attrs, lr=0.1, wd=0.01), w, g, m, out=w, work=work)
        want.append((w, m))
    for _, run in joined:
        run()
    assert device.launched == ["update"] * 3
    for (arrays, _), (w, m) in zip(made, want):
        assert arrays[0].tobytes() == w.tobytes() and arrays[2].tobytes() == m.tobytes()


def test_a_group_says_what_it_changes():
    attrs = FusedUpdates.Attrs(mx.ops._fused_adam, parse_attrs(mx.ops._fused_adam, {"row": 0}), (2, 5))
    assert FusedUpdates.input_names(attrs)[-1] == "arg8"
    assert FusedUpdates.mutated(attrs) == ("arg0", "arg2", "arg3", "arg4", "arg6", "arg7")
