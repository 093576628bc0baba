"""Where no plan of the step fits, recurrent layers leave their gates to backward."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.cpu import passes
from mxlite.backends.cpu.compiled import usable
from mxlite.backends.cpu.onednn import library
from mxlite.backends.cpu.passes.rnn_updates import rnn_updates
from mxlite.memplan import check, MemoryPlan

STEPS, BATCH, HIDDEN = 48, 8, 32
SHAPES = {"data": (STEPS, BATCH, HIDDEN), "softmax_label": (STEPS * BATCH,)}

pytestmark = pytest.mark.skipif(
    not usable() or library() is None, reason="gates are kept where there is generated code for the steps"
)


def network(mode="lstm", both=False):
    data, weights = mx.sym.var("data"), mx.sym.var("rnn_weight")
    made = mx.sym.RNN(
        data, weights, mode=mode, num_layers=2, state_size=HIDDEN, name="rnn",
        bidirectional=both,
    )  # fmt: skip
    rows = mx.sym.Reshape(made[0], shape=(-1, HIDDEN * (1 + both)))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(rows, num_hidden=10, name="fc"), name="softmax")


def refused(**how):
    with pytest.raises(mx.MemoryBudgetError) as found:
        network(**how).memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(), memory_budget=1, **SHAPES)
    return found.value


def plan(budget=None, mode="lstm"):
    return network(mode).memory_plan(mx.cpu(), optimizer=mx.optimizer.SGD(), memory_budget=budget, **SHAPES)


def keeps_gates(found):
    return any(v.name == "rnn.gates" for v in found.problem.values)


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_the_least_budget_is_that_of_a_step_without_gates(mode):
    free, error = plan(mode=mode), refused(mode=mode)
    assert keeps_gates(free)
    least = plan(error.least_feasible_bytes, mode)
    assert not keeps_gates(least) and least.peak_bytes <= error.least_feasible_bytes
    gates = next(v.nbytes for v in free.problem.values if v.name == "rnn.gates")
    assert error.least_feasible_bytes < free.peak_bytes - gates // 2
    assert f"{error.least_feasible_bytes} bytes" in str(error)
    with pytest.raises(mx.MemoryBudgetError):
        plan(error.least_feasible_bytes - 1, mode)


def test_gates_are_kept_as_long_as_a_plan_with_them_fits_and_no_budget_is_slower_than_a_smaller_one():
    free, least = plan(), refused().least_feasible_bytes
    found = [plan(int(least + (free.peak_bytes - least) * i / 8)) for i in range(9)]
    assert keeps_gates(found[-1]) and not keeps_gates(found[0])
    extra = [p.extra_time for p in found]
    assert extra == sorted(extra, reverse=True)
    assert extra[0] > 0.1 and extra[-1] == 0  # the gates are computed again
    assert f"{100 * extra[0]:.1f} %" in str(found[0])


@pytest.mark.parametrize("joined", [False, True], ids=["a whole gradient", "updates in bands"])
@pytest.mark.parametrize("both", [False, True], ids=["one direction", "both"])
@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_bits_are_the_same_and_planned_bytes_are_measured(mode, both, joined, monkeypatch):
    if joined:
        added = partial(rnn_updates, least_bytes=0)
        rest = tuple(added if p is rnn_updates else p for p in passes.COMBINE)
        monkeypatch.setattr(passes, "COMBINE", rest)
    results = []
    for budget in (None, refused(mode=mode, both=both).least_feasible_bytes):
        exe = network(mode, both).simple_bind(
            mx.cpu(), optimizer=mx.optimizer.SGD(), memory_budget=budget, **SHAPES
        )
        rng = np.random.default_rng(0)
        for name, array in exe.arg_dict.items():
            array[:] = (
                rng.integers(0, 10, array.shape) if "label" in name else rng.standard_normal(array.shape) / 4
            )
        for _ in range(3):
            exe.step([[0.1, 0.0] for _ in exe.updated])
        check(exe.memory_plan)
        assert exe.measured_bytes == exe.memory_plan.peak_bytes
        assert keeps_gates(exe.memory_plan) == (budget is None)
        results.append({n: a.asnumpy() for n, a in exe.arg_dict.items()})
    assert [n for n, x in results[0].items() if x.tobytes() != results[1][n].tobytes()] == []


def test_a_module_and_a_plan_from_a_file_do_so_too():
    least = refused().least_feasible_bytes
    again = MemoryPlan.from_json(plan(least).to_json())
    how = dict(optimizer=mx.optimizer.SGD(), memory_budget=least, **SHAPES)
    exe = network().simple_bind(mx.cpu(), plan=again, **how)
    assert not keeps_gates(exe.memory_plan) and exe.memory_plan.extra_time == again.extra_time
    module = mx.mod.Module(network(), memory_budget=least, fused_update=True)
    module.bind([("data", SHAPES["data"])], [("softmax_label", SHAPES["softmax_label"])])
    module.init_params()
    module.init_optimizer(optimizer="sgd")
    assert not keeps_gates(module.memory_plan) and module.memory_plan.peak_bytes <= least


def test_mixed_precision_keeps_its_gates_and_says_what_fits():
    how = dict(optimizer=mx.optimizer.SGD(), amp="bfloat16", **SHAPES)
    with pytest.raises(mx.MemoryBudgetError) as error:
        network().memory_plan(mx.cpu(), memory_budget=1, **how)
    least = error.value.least_feasible_bytes
    assert keeps_gates(network().memory_plan(mx.cpu(), memory_budget=least, **how))
