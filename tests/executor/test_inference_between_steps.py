"""Batches for inference that are not of the shapes of the steps: no step is planned for them, budgets count
them, and training goes on to the same bits.
"""

from __future__ import annotations

import gc
import re
import sys
import weakref

import numpy as np
import pytest

import mxlite as mx
from tests.module.test_bucketing import batch_of, few_nodes, same
from tests.networks.small_networks import mlp


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")


def weights(module):
    args, aux = module.get_params()
    return {k: v.asnumpy() for k, v in {**args, **aux}.items()}


def blobs(n, batch):
    draw = np.random.default_rng(n)
    x, y = draw.standard_normal((n, 8)).astype("float32"), draw.integers(0, 5, n).astype("float32")
    return mx.io.NDArrayIter(x, y, batch)


def batch(n):
    return next(iter(blobs(n, n)))


def sentences(lengths, batch):
    draw = np.random.default_rng(batch)
    rows = [[int(w) for w in draw.integers(1, 7, n)] for n in lengths for _ in range(batch)]
    return mx.rnn.BucketSentenceIter(rows, batch, buckets=sorted(lengths), invalid_label=0)


def refused(run):
    with pytest.raises(mx.MemoryBudgetError) as caught:
        run()
    return caught.value


class One:
    """A Module, or two of them in a row."""

    def __init__(self, fused, in_a_row=False):
        self.fused, self.in_a_row = fused, in_a_row

    def __call__(self, budget, **options):
        module = mx.mod.Module(mlp(), memory_budget=budget, fused_update=self.fused)
        whole = module
        if self.in_a_row:
            first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="first")
            whole = mx.mod.SequentialModule().add(mx.mod.Module(first, ("data",), ()))
            whole.add(module, take_labels=True, auto_wiring=True)
        whole.fit(blobs(8, 4), blobs(200, 100), optimizer="adam", num_epoch=2, **options)
        return module


class Buckets:
    """A BucketingModule whose validation set has those buckets, in batches of that size."""

    def __init__(self, fused, lengths, batch):
        self.fused, self.lengths, self.batch = fused, lengths, batch

    def __call__(self, budget, **options):
        module = mx.mod.BucketingModule(few_nodes, 4, memory_budget=budget, fused_update=self.fused)
        module.fit(
            sentences([2, 4], 4), sentences(self.lengths, self.batch), mx.metric.Perplexity(None),
            optimizer="adam", num_epoch=2, **options,
        )  # fmt: skip
        return module


@pytest.mark.parametrize(
    "fit",
    [One(None), One(False), One(False, True), Buckets(None, [2, 4], 40), Buckets(False, [6], 8)],
    ids=["fused", "separate", "in a row", "larger batches", "another bucket"],
)
def test_validation_is_refused_before_the_first_step_or_never(fit):
    error = refused(lambda: fit(1))
    steps = []
    module = fit(error.least_feasible_bytes)
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes <= error.least_feasible_bytes
    less = error.least_feasible_bytes - 1
    again = refused(lambda: fit(less, batch_end_callback=lambda p: steps.append(p.nbatch)))
    assert not steps and again.least_feasible_bytes == error.least_feasible_bytes


def test_a_bound_module_is_refused_before_the_first_step_of_fit_too():
    module = mx.mod.Module(mlp(), memory_budget=20_000)
    module.fit(blobs(8, 4), num_epoch=1)
    before, steps = weights(module), []
    error = refused(
        lambda: module.fit(
            blobs(8, 4), blobs(400, 400), num_epoch=1, batch_end_callback=lambda p: steps.append(1)
        )
    )
    assert not steps and same(weights(module), before)
    module.fit(blobs(8, 4), num_epoch=1)  # what it was bound for goes on
    enough = mx.mod.Module(mlp(), memory_budget=error.least_feasible_bytes)
    enough.fit(blobs(8, 4), num_epoch=1)
    enough.fit(blobs(8, 4), blobs(400, 400), num_epoch=1)
    mx.nd.waitall()
    assert enough.measured_bytes == enough.planned_bytes <= error.least_feasible_bytes


def test_a_refused_validation_does_not_count_any_more():
    module = mx.mod.Module(mlp(), memory_budget=20_000, fused_update=False)
    refused(lambda: module.fit(blobs(8, 4), blobs(400, 400), num_epoch=1))
    module.init_optimizer()
    module.train_step(batch(4))
    assert module.planned_bytes <= 20_000


def test_batches_of_an_iterator_with_other_names_are_expected_under_those_of_the_network():
    def fit(budget):
        data = blobs(200, 100)
        other = mx.io.NDArrayIter({"x": data.data[0][1]}, {"y": data.label[0][1]}, 100)
        for given in (other.provide_data, other.provide_label):
            assert given[0].name in "xy"
        module = mx.mod.Module(mlp(), memory_budget=budget)
        module.fit(blobs(8, 4), other, num_epoch=1)

    refused(lambda: fit(1))


@pytest.mark.parametrize("fused", [False, True])
def test_no_step_is_planned_for_inference_and_training_goes_on_to_the_same_bits(fused):
    found = []
    for looks in (True, False):
        module = mx.mod.Module(mlp(), fused_update=fused)
        module.bind([("data", (4, 8))], [("softmax_label", (4,))])
        mx.random.seed(3)
        module.init_params(mx.init.Xavier())
        module.init_optimizer("local", "adam")
        for n in (4, 3, 4):
            module.train_step(batch(n))
            if looks:
                steps = module.memory_plan
                module.forward(batch(300), is_train=False)
                assert module.get_outputs()[0].shape == (300, 5) == module.output_shapes[0][1]
                assert module.data_shapes[0].shape == (300, 8)
                assert module.memory_plan.problem.tasks is steps.problem.tasks
                mx.nd.waitall()
                assert module.measured_bytes == module.planned_bytes
                alone = mx.mod.Module(mlp())
                alone.bind([("data", (300, 8))], for_training=False)
                alone.set_params(*module.get_params())
                alone.forward(batch(300))
                assert np.array_equal(module.get_outputs()[0].asnumpy(), alone.get_outputs()[0].asnumpy())
        found.append(weights(module))
        of_steps = mx.mod.Module(mlp(), fused_update=fused)
        of_steps.bind([("data", (300, 8))], [("softmax_label", (300,))])
        of_steps.init_params()
        of_steps.init_optimizer("local", "adam")
        assert module.planned_bytes < of_steps.planned_bytes
    assert same(*found)


@pytest.mark.parametrize("fused", [False, True])
def test_what_is_done_after_such_inference_is_done_to_the_steps(fused, tmp_path):
    def run(looks):
        module = mx.mod.Module(mlp(), fused_update=fused)
        module.bind([("data", (4, 8))], [("softmax_label", (4,))])
        mx.random.seed(3)
        module.init_params(mx.init.Xavier())
        module.init_optimizer("local", "sgd", {"momentum": 0.9, "learning_rate": 0.1})

        def look():
            if looks:
                module.forward(batch(9), is_train=False)

        module.train_step(batch(4))
        look()
        module.save_optimizer_states(str(tmp_path / "s"))
        module.train_step(batch(4))
        look()
        module.load_optimizer_states(str(tmp_path / "s"))
        module.train_step(batch(4))
        look()
        module.set_params(*module.get_params())
        look()
        module.bind([("data", (2, 8))], [("softmax_label", (2,))], force_rebind=True)
        module.train_step(batch(2))
        if not fused:
            module.forward_backward(batch(2))
            look()
            module.update()  # by the gradients of the last step
        return weights(module)

    assert same(run(True), run(False))


def test_a_backward_pass_behind_such_inference_is_of_its_batch():
    module = mx.mod.Module(mlp())
    module.bind([("data", (4, 8))], [("softmax_label", (4,))])
    module.init_params(mx.init.Xavier())
    module.forward(batch(6), is_train=False)
    module.backward()
    grads = [g[0].asnumpy() for g in module._exec_group.grad_arrays]
    module.forward_backward(batch(6))
    assert all(np.array_equal(g, h[0].asnumpy()) for g, h in zip(grads, module._exec_group.grad_arrays))
    assert max(abs(g).max() for g in grads) > 0
    fused = mx.mod.Module(mlp(), fused_update=True)
    fused.fit(blobs(8, 4), num_epoch=1)
    fused.forward(batch(6), is_train=False)
    with pytest.raises(mx.StateError, match="forward"):
        fused.backward()


@pytest.mark.parametrize("fused", [False, True])
def test_a_loss_scale_goes_on_behind_such_inference(fused):
    module = mx.mod.Module(mlp(), fused_update=fused, amp="float16", loss_scale="dynamic")
    module.fit(blobs(8, 4), blobs(9, 9), num_epoch=1)
    module._executor.loss_scale = module._training.scale.value = 8.0
    module.forward(batch(9), is_train=False)
    module.train_step(batch(4))
    assert module.loss_scale == 8.0 == module._executor.loss_scale


def test_a_monitor_sees_such_inference_and_then_the_steps_again():
    module = mx.mod.Module(mlp())
    module.bind([("data", (4, 8))], [("softmax_label", (4,))])
    module.init_params()
    monitor = mx.mon.Monitor(1, pattern="fc1_output|data", stat_func=lambda a: mx.nd.array([a.shape[0]]))
    module.install_monitor(monitor)
    seen = []
    for n, is_train in ((4, True), (7, False), (4, True), (7, False)):
        monitor.tic()
        module.forward(batch(n), is_train=is_train)
        seen.append({name: float(text) for _, name, text in monitor.toc()})
    assert seen == [{"fc1_output": n, "data": n} for n in (4, 7, 4, 7)]
    assert len(monitor.exes) == 1


def test_inference_that_nobody_declared_gives_way_to_steps():
    def bound(budget):
        module = mx.mod.Module(mlp(), memory_budget=budget, fused_update=True)
        module.bind([("data", (8, 8))], [("softmax_label", (8,))])
        module.init_params()
        module.init_optimizer()
        return module

    budget = refused(lambda: bound(1)).least_feasible_bytes + 1000
    module = bound(budget)
    module.forward(batch(11), is_train=False)
    module.train_step(batch(9))
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes <= budget
    module.forward(batch(11), is_train=False)
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes <= budget


def test_states_of_inference_for_other_shapes_are_its_own():
    data, state = mx.sym.Variable("data"), mx.sym.Variable("state")
    net = mx.sym.Group([mx.sym.MakeLoss(mx.sym.sum(data + state)), mx.sym.BlockGrad(data + state)])
    module = mx.mod.Module(net, ("data",), (), state_names=("state",))
    module.bind([("data", (2, 3))])
    module.init_params()
    module.set_states(value=1)
    module.forward(mx.io.DataBatch([mx.nd.zeros((5, 3))]), is_train=False)
    module.set_states(value=2)
    module.forward(mx.io.DataBatch([mx.nd.zeros((5, 3))]), is_train=False)
    assert module.get_states()[0].shape == (5, 3)
    assert float(module.get_outputs()[1].asnumpy().max()) == 2
    module.forward(mx.io.DataBatch([mx.nd.zeros((2, 3))]), is_train=True)
    assert float(module.get_outputs()[1].asnumpy().max()) == 1


# -- refusals of several shapes --------------------------------------------------------------------------


def test_a_refusal_beside_other_shapes_says_what_would_help_the_largest():
    def steps_of(n, module):
        if not isinstance(module, mx.mod.Module):
            module = mx.mod.Module(mlp(), memory_budget=module)
        module.fit(blobs(n, n), num_epoch=1)

    def fit(n, budget):
        module = mx.mod.Module(mlp(), memory_budget=budget)
        module.fit(blobs(8, 4), blobs(n, n), optimizer="adam", num_epoch=1)
        mx.nd.waitall()
        assert module.measured_bytes == module.planned_bytes <= budget

    budget = 30_000
    text = str(refused(lambda: fit(400, budget)))
    said = re.search(r"batch (\d+) instead of 400 .*: fits, .*; (\d+) does not", text)
    assert said and "'fc2' of the bound: float32 (400, 16)" in text, text
    assert "shapes that do not fit" not in text
    module = mx.mod.Module(mlp(), memory_budget=refused(lambda: steps_of(64, 1)).least_feasible_bytes)
    steps_of(64, module)
    text = str(refused(lambda: module.forward(batch(1), is_train=False)))  # beside which those are too large
    assert "float32 (64, 16)" in text and "instead of 64" in text
    fit(int(said[1]), budget)
    refused(lambda: fit(int(said[2]), budget))
    assert "This is the largest of 2 shapes that do not fit" in str(refused(lambda: fit(400, 1)))


def test_buckets_say_what_would_help_the_largest():
    def run(batch, budget):
        shapes = [("data", (batch, 6))], [("softmax_label", (batch, 6))]
        small = batch_of(2)
        module = mx.mod.BucketingModule(
            few_nodes, 2, memory_budget=budget, buckets={6: shapes}, fused_update=True
        )
        module.bind(small.provide_data, small.provide_label)
        module.init_params()
        module.init_optimizer()

    text = str(refused(lambda: run(40, 9000)))
    said = re.search(r"batch (\d+) instead of 40 .*: fits, .*; (\d+) does not", text)
    assert said, text
    run(int(said[1]), 9000)
    refused(lambda: run(int(said[2]), 9000))


# -- what is lowered -------------------------------------------------------------------------------------


def test_what_was_lowered_to_be_counted_is_not_lowered_again_to_be_bound(monkeypatch):
    candidates = sys.modules["mxlite.executor.plan.candidates"]
    lowered, lower = [], candidates.lower
    monkeypatch.setattr(candidates, "lower", lambda *a, **k: lowered.append(1) or lower(*a, **k))
    buckets = {n: (batch_of(n).provide_data, batch_of(n).provide_label) for n in (2, 3, 4)}
    module = mx.mod.BucketingModule(few_nodes, 4, memory_budget="1MB", buckets=buckets, fused_update=True)
    module.bind(*buckets[4])
    module.init_params()
    module.init_optimizer()
    assert sorted(module.bucket_keys) == [2, 3, 4]
    assert len(lowered) == 2 * 3  # a step and inference of each


# -- before there is an optimizer ------------------------------------------------------------------------


def test_inference_before_there_is_an_optimizer_is_within_the_budget():
    def run(budget):
        module = mx.mod.Module(mlp(), memory_budget=budget, fused_update=True)
        module.bind([("data", (4, 8))], [("softmax_label", (4,))])
        module.init_params()
        for act in (
            lambda: module.forward(batch(40), is_train=False),
            lambda: module.init_optimizer(optimizer="adam"),
            lambda: module.train_step(batch(4)),
        ):
            act()
            mx.nd.waitall()
            assert module.measured_bytes <= budget  # also what the one before has left
        return module

    budget = refused(lambda: run(1)).least_feasible_bytes
    while True:
        try:
            module = run(budget)
        except mx.MemoryBudgetError as error:
            assert error.least_feasible_bytes > budget
            budget = error.least_feasible_bytes
        else:
            break
    assert module.measured_bytes == module.planned_bytes <= budget


def test_room_for_a_newcomer_is_there_before_its_arrays_are():
    """The arena shrinks for it; what it had is given back at once, not with the next step."""

    def bound(budget):
        net = mx.models.get("mlp", hidden=(8,) * 4)
        module = mx.mod.Module(net, memory_budget=budget, fused_update=True)
        module.bind([("data", (64, 8))], [("softmax_label", (64,))])
        module.init_params()
        module.init_optimizer()
        module.train_step(batch(64))
        mx.nd.waitall()
        return module

    budget = bound(None).planned_bytes
    module = bound(budget)
    assert module.measured_bytes == budget
    with module.expecting(blobs(64, 64), blobs(1, 1)):  # binds, runs nothing
        pass
    assert module.measured_bytes <= budget and module.memory_plan.recomputed > 0
    module.forward(batch(1), is_train=False)
    module.train_step(batch(64))
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes <= budget


def test_validation_of_a_network_without_labels_counts_too():
    net = mx.sym.MakeLoss(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="fc"))

    def fit(budget, steps):
        module = mx.mod.Module(net, label_names=None, memory_budget=budget)
        module.fit(
            blobs(8, 4), blobs(90, 90), mx.metric.Loss(), num_epoch=1,
            batch_end_callback=lambda p: steps.append(p.nbatch),
        )  # fmt: skip
        return module

    steps = []
    least = refused(lambda: fit(1, [])).least_feasible_bytes
    assert refused(lambda: fit(least - 1, steps)).least_feasible_bytes == least and not steps
    module = fit(least, steps)
    gc.collect()
    gc.disable()
    try:
        there = weakref.ref(module)
        del module
        assert there() is None  # nothing keeps its arrays until somebody collects garbage
    finally:
        gc.enable()
