"""A module whose optimizer is still to come: what it has by then, and that nothing is lowered twice."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import mxlite as mx
from tests.networks.small_networks import mlp

DATA, LABEL = [("data", (16, 8))], [("softmax_label", (16,))]
PARAMS = dict(optimizer="sgd", optimizer_params={"learning_rate": 0.1, "momentum": 0.9})


def batch(n=16, seed=0):
    rng = np.random.default_rng(seed)
    data = mx.nd.array(rng.standard_normal((n, 8)))
    return mx.io.DataBatch([data], [mx.nd.array(np.arange(n) % 5)])


def bound(**options):
    module = mx.mod.Module(mlp(), context=mx.cpu(), **options)
    module.bind(DATA, LABEL)
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    return module


def forward(module, n=16):
    module.forward(batch(n), is_train=False)
    return module.get_outputs()[0].asnumpy()


@pytest.fixture
def lowered(monkeypatch):
    """Steps that have been lowered, "training" or "inference"."""
    found = []
    candidates = sys.modules["mxlite.executor.plan.candidates"]
    lower = candidates.lower

    def seen(step, *args, **kwargs):
        found.append("training" if step.train else "inference")
        return lower(step, *args, **kwargs)

    monkeypatch.setattr(candidates, "lower", seen)
    return found


def test_a_fused_step_is_lowered_when_its_optimizer_comes(lowered):
    module = bound(fused_update=True)
    assert lowered == []
    module.init_optimizer(**PARAMS)
    assert sorted(lowered) == ["inference", "training"]
    module.forward_backward(batch())
    module.update()
    forward(module)
    assert len(lowered) == 2
    assert module.measured_bytes == module.memory_plan.peak_bytes == module.planned_bytes


def test_a_step_without_the_update_is_lowered_at_bind_and_stays(lowered):
    module = bound()
    assert sorted(lowered) == ["inference", "training"]
    before = module.memory_plan
    module.init_optimizer(**PARAMS)
    assert len(lowered) == 2
    plan = module.memory_plan
    assert plan.arena_bytes == before.arena_bytes
    assert plan.breakdown["optimizer"] == plan.breakdown["gradients"] > 0
    module.forward_backward(batch())
    module.update()
    mx.nd.waitall()
    assert module.measured_bytes == plan.peak_bytes == module.planned_bytes


def test_an_optimizer_takes_bytes_of_the_step_that_is_bound_already():
    free = bound()
    free.init_optimizer(**PARAMS)
    with pytest.raises(mx.MemoryBudgetError) as refused:
        bound(memory_budget=1)
    least = refused.value.least_feasible_bytes
    states = free.memory_plan.breakdown["optimizer"]
    tight = bound(memory_budget=least)
    with pytest.raises(mx.MemoryBudgetError) as refused:
        tight.init_optimizer(**PARAMS)
    assert refused.value.least_feasible_bytes == least + states
    tight.forward_backward(batch())  # it is bound as before
    again = bound(memory_budget=least + states)
    again.init_optimizer(**PARAMS)
    for module in (free, again):
        module.forward_backward(batch())
        module.update()
    mx.nd.waitall()
    assert again.measured_bytes == again.planned_bytes <= least + states
    for name, value in free.get_params()[0].items():
        np.testing.assert_array_equal(again.get_params()[0][name].asnumpy(), value.asnumpy())


def test_other_shapes_stay_bound_when_an_optimizer_comes(lowered):
    module = bound()
    forward(module, 4)
    forward(module)
    count = len(lowered)
    module.init_optimizer(**PARAMS)
    forward(module, 4)
    assert len(lowered) == count


def test_parameters_are_there_before_the_optimizer_and_stay():
    module = bound(fused_update=True)
    arrays = dict(module._binding.arg_dict)
    assert sorted(arrays) == sorted(module.get_params()[0])
    assert module.measured_bytes == sum(4 * a.size for a in arrays.values())
    assert module.output_shapes == [("softmax_output", (16, 5))]
    before = forward(module)
    module.init_optimizer(**PARAMS)
    assert all(module._binding.arg_dict[n] is a for n, a in arrays.items())
    np.testing.assert_array_equal(forward(module), before)


def test_what_runs_before_the_optimizer_is_planned_then(lowered):
    module = bound(fused_update=True)
    assert module.memory_plan.peak_bytes <= module.planned_bytes
    assert lowered.count("inference") == 1
    forward(module)
    assert module.measured_bytes == module.planned_bytes
    forward(module, 4)
    module.reshape(DATA, LABEL)
    forward(module)
    assert lowered.count("inference") == 2
    with pytest.raises(mx.StateError, match="init_optimizer"):
        module.forward(batch(), is_train=True)


def test_the_optimizer_plans_for_the_shapes_that_are_used_last():
    module = bound(fused_update=True)
    forward(module)
    module.reshape([("data", (4, 8))], [("softmax_label", (4,))])
    module.reshape(DATA, LABEL)
    module.init_optimizer(**PARAMS)
    module.forward_backward(batch())
    module.update()
    assert module.output_shapes == [("softmax_output", (16, 5))]
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes


def test_parameters_outlive_the_shapes_that_were_given_up():
    module = bound(fused_update=True)
    weight = module.get_params()[0]["fc1_weight"].asnumpy()
    forward(module)
    module.reshape([("data", (4, 8))], [("softmax_label", (4,))])
    module.init_optimizer(**PARAMS)
    np.testing.assert_array_equal(module.get_params()[0]["fc1_weight"].asnumpy(), weight)


def test_a_refused_optimizer_leaves_the_module_as_it_was():
    free = bound(fused_update=True)
    expected = forward(free)
    module = bound(fused_update=True, memory_budget=free.measured_bytes)  # inference alone fits in that
    with pytest.raises(mx.MemoryBudgetError):
        module.init_optimizer(**PARAMS)
    assert not module.optimizer_initialized
    np.testing.assert_array_equal(forward(module), expected)


def test_wrong_shapes_are_refused_at_bind():
    module = mx.mod.Module(mlp(), context=mx.cpu(), fused_update=True)
    with pytest.raises(mx.ShapeError, match="beyond any memory"):
        module.bind([("data", (2**40, 2**30))], LABEL)
    with pytest.raises(mx.ShapeError):
        module.bind([("data", ())], LABEL)
    module = bound(fused_update=True)
    with pytest.raises(mx.ShapeError, match="'fc1_weight' is shared"):
        module.reshape([("data", (16, 9))], LABEL)
    assert forward(module).shape == (16, 5)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"streams": 99}, "streams must be"),
        ({"offload": 0.5}, "offload must be"),
        ({"ranks": "two"}, "ranks must be a number"),
    ],
)
def test_what_no_program_can_have_is_refused_before_one_is_made(options, text):
    with pytest.raises(mx.BindError, match=text):
        mx.mod.Module(mlp(), context=mx.cpu(), fused_update=True, **options)


def test_a_number_of_ranks_is_that_of_the_store():
    module = mx.mod.Module(mlp(), context=mx.cpu(), fused_update=True, ranks=2)
    module.bind(DATA, LABEL)
    module.init_params()
    with pytest.raises(mx.BindError, match="ranks is for 2 ranks, but the store has 1"):
        module.init_optimizer(**PARAMS)


def test_a_monitor_that_comes_before_the_optimizer_sees_the_steps():
    seen = []
    module = bound(fused_update=True)
    module.install_monitor(monitor := mx.mon.Monitor(1, pattern="fc1_output"))
    module.init_optimizer(**PARAMS)
    monitor.tic()
    module.forward_backward(batch())
    seen += [name for _, name, _ in monitor.toc()]
    assert set(seen) == {"fc1_output"}


def test_parameters_of_one_that_waits_count_in_the_plans_of_others():
    first = bound(fused_update=True, memory_budget="1MiB")
    weights = first.measured_bytes
    alone = mx.sym.MakeLoss(mx.sym.sum(mx.sym.Variable("data")), name="sum")
    other = mx.mod.Module(alone, label_names=(), context=mx.cpu())
    other.bind([("data", (4, 8))], for_training=False, shared_module=first)
    other.forward(mx.io.DataBatch([mx.nd.ones((4, 8))]), is_train=False)
    assert other.memory_plan.breakdown["arguments"] == weights
    assert other.measured_bytes == other.planned_bytes


def test_a_module_that_shares_with_one_that_waits_has_its_parameters():
    first = bound(fused_update=True)
    second = mx.mod.Module(mlp(), context=mx.cpu())
    second.bind([("data", (4, 8))], [("softmax_label", (4,))], for_training=False, shared_module=first)
    np.testing.assert_array_equal(forward(second, 4), forward(first)[:4])
    for name, array in second._binding.arg_dict.items():
        assert name in ("data", "softmax_label") or array is first._binding.arg_dict[name]
    assert second.measured_bytes == second.planned_bytes


def test_buckets_before_the_optimizer_share_what_waits(lowered):
    def make(key):
        return mlp(), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(make, 16, context=mx.cpu(), fused_update=True)
    module.bind(DATA, LABEL)
    module.init_params(mx.init.Xavier())
    module.switch_bucket(4, [("data", (4, 8))], [("softmax_label", (4,))])
    assert lowered == []
    module.init_optimizer(**PARAMS)
    assert sorted(lowered) == ["inference"] * 2 + ["training"] * 2
    small = module._buckets[4]._binding.arg_dict
    assert all(a is small[n] for n, a in module._first._binding.arg_dict.items() if n.startswith("fc"))
