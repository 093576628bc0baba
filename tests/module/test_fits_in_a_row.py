"""Fits of one module in a row under one budget: each is refused before its first step or never, and takes no
bytes for what it does not do.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import mxlite as mx
from tests.executor.test_inference_between_steps import blobs, refused, sentences, weights
from tests.module.test_bucketing import batch_of, few_nodes, same
from tests.networks.small_networks import mlp


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch):
    monkeypatch.setenv("MXLITE_KERNELS", "reference")


PERPLEXITY = mx.metric.Perplexity(None)


def within(module, budget):
    """What is there is what is planned, within the budget."""
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes <= budget


class One:
    """A Module; data are numbers of samples in a batch."""

    def __init__(self, fused=None, in_a_row=False, **options):
        self.fused, self.in_a_row, self.options = fused, in_a_row, options

    def make(self, budget):
        module = mx.mod.Module(mlp(), memory_budget=budget, fused_update=self.fused, **self.options)
        whole = module
        if self.in_a_row:
            first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="first")
            whole = mx.mod.SequentialModule().add(mx.mod.Module(first, ("data",), ()))
            whole.add(module, take_labels=True, auto_wiring=True)
        return module, whole

    @staticmethod
    def fit(whole, train, held_out=None, **options):
        evaluated = None if held_out is None else blobs(2 * held_out, held_out)
        whole.fit(blobs(2 * train, train), evaluated, optimizer="adam", num_epoch=1, **options)

    first, then = (4, 30), (40, 4)


class Buckets:
    """A BucketingModule; data are lengths and numbers of samples in a batch."""

    def __init__(self, fused=None, then=(([2, 4], 30), ([2, 4], 4)), **options):
        self.fused, self.then, self.options = fused, then, options

    def make(self, budget):
        module = mx.mod.BucketingModule(
            few_nodes, 4, memory_budget=budget, fused_update=self.fused, **self.options
        )
        return module, module

    @staticmethod
    def fit(whole, train, held_out=None, **options):
        evaluated = None if held_out is None else sentences(*held_out)
        whole.fit(sentences(*train), evaluated, PERPLEXITY, optimizer="adam", num_epoch=1, **options)

    first = ([2, 4], 4), ([4], 30)


KINDS = {
    "fused": One(),
    "separate": One(False),
    "in a row": One(False, True),
    "16 bits": One(amp="bfloat16"),
    "offload": One(offload="auto"),
    "larger batches": Buckets(),
    "larger batches, separate": Buckets(False),
    "more buckets": Buckets(then=(([2, 4, 6], 24), None)),
    "only others": Buckets(then=(([3, 6], 40), ([2], 4))),
    "one larger to evaluate": Buckets(then=(([2, 4], 4), ([5], 30))),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_second_fit_is_refused_before_its_first_step_or_never(kind):
    def run(budget, steps):
        module, whole = kind.make(budget)
        kind.fit(whole, *kind.first)
        steps.clear()
        kind.fit(whole, *kind.then, batch_end_callback=lambda p: steps.append(p.nbatch))
        within(module, budget)
        return weights(module)

    def alone(budget):
        module, whole = kind.make(budget)
        kind.fit(whole, *kind.first)
        within(module, budget)
        return module, whole

    least = refused(lambda: alone(1)).least_feasible_bytes
    module, whole = alone(least)
    steps, before = [], weights(module)
    note = dict(batch_end_callback=lambda p: steps.append(p.nbatch))
    error = refused(lambda: kind.fit(whole, *kind.then, **note))
    assert not steps and same(weights(module), before)
    within(module, least)
    kind.fit(whole, *kind.first)  # and what fitted before goes on
    within(module, least)
    steps.clear()
    enough = error.least_feasible_bytes
    run(enough, steps)
    assert steps
    steps.clear()
    again = refused(lambda: run(enough - 1, steps))
    assert not steps and again.least_feasible_bytes == enough


@pytest.mark.parametrize("kind", ["fused", "in a row", "16 bits", "larger batches, separate", "only others"])
def test_fits_in_a_row_train_to_the_same_bits_as_without_a_budget(kind):
    kind = KINDS[kind]

    def run(budget):
        mx.random.seed(5)
        random.seed(5)  # of the order of batches
        np.random.seed(5)
        module, whole = kind.make(budget)
        for data in (kind.first, kind.then, kind.first):
            kind.fit(whole, *data)
            if budget is not None:
                within(module, budget)
        return weights(module), module

    free, module = run(None)
    least = max(refused(lambda: run(1)).least_feasible_bytes, module.planned_bytes // 3)
    while True:
        try:
            found, _ = run(least)
            break
        except mx.MemoryBudgetError as error:
            assert error.least_feasible_bytes > least
            least = error.least_feasible_bytes
    assert same(found, free)


def test_what_a_fit_before_has_declared_gives_way():
    def fit(budget, *all_of_them):
        module, _ = One().make(budget)
        for data in all_of_them:
            One.fit(module, *data)
        within(module, budget)

    least = refused(lambda: fit(1, (4, 60))).least_feasible_bytes
    assert refused(lambda: fit(1, (16, None))).least_feasible_bytes < least
    fit(least, (4, 60), (16, None), (4, 60))


def test_an_optimizer_that_comes_with_fit_scales_by_the_batch_that_was_bound():
    def fit(budget):
        module, _ = One(False).make(budget)
        module.bind([("data", (4, 8))], [("softmax_label", (4,))])
        One.fit(module, 8)
        return module._optimizer.rescale_grad

    assert fit("1MB") == fit(None) == 1 / 4


# -- buckets that are only evaluated ---------------------------------------------------------------------


def deeper(length):
    """A step of training holds much more than inference."""
    hidden = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=7, output_dim=8, name="embed")
    hidden = mx.sym.Reshape(hidden, shape=(-1, 8))
    for i in range(2):
        hidden = mx.sym.FullyConnected(hidden, num_hidden=32, name=f"fc{i}")
        hidden = mx.sym.Activation(hidden, act_type="tanh")
    logits = mx.sym.FullyConnected(hidden, num_hidden=7, name="logits")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(logits, label, name="softmax"), ("data",), ("softmax_label",)


def evaluated(budget=None, fused=True, train=((2, 4), 4), held_out=((6,), 30)):
    module = mx.mod.BucketingModule(deeper, 4, memory_budget=budget, fused_update=fused)
    Buckets.fit(module, *((list(lengths), n) for lengths, n in (train, held_out)))
    return module


@pytest.mark.parametrize("fused", [True, False])
def test_a_bucket_that_is_only_evaluated_counts_as_inference_alone(fused):
    least = refused(lambda: evaluated(1, fused)).least_feasible_bytes
    module = evaluated(least, fused)
    within(module, least)
    alone = mx.mod.Module(*deeper(6), memory_budget=least)
    alone.bind([("data", (30, 6))], [("softmax_label", (30, 6))], for_training=False)
    bucket = module._buckets[6]
    assert bucket.memory_plan.arena_bytes == alone.memory_plan.arena_bytes
    assert not any("backward" in t.op for t in bucket.memory_plan.problem.tasks)
    trains = refused(lambda: evaluated(1, fused, ((2, 4, 6), 30), ((2,), 4))).least_feasible_bytes
    assert least < trains
    with pytest.raises(mx.MemoryBudgetError):  # no room to train on it, which leaves it as it was
        module.train_step(batch_of(6, n=30))
    module.forward(batch_of(6, n=30), is_train=False)
    within(module, least)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("budget", [None, "1MB"])
def test_a_bucket_that_is_evaluated_first_trains_to_the_same_bits(fused, budget):
    def run(looks):
        mx.random.seed(5)
        module = mx.mod.BucketingModule(few_nodes, 4, memory_budget=budget, fused_update=fused)
        module.bind(batch_of(4).provide_data, batch_of(4).provide_label)
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer="adam")
        for n in (2, 4, 3):
            if looks:
                module.forward(batch_of(n), is_train=False)
                assert module._current._binding.forward_only == (n != 4)
            module.train_step(batch_of(n))
        if looks:
            module.forward(batch_of(5), is_train=False)
            module.init_optimizer(optimizer="adam", force_init=True)
            assert sorted(module.bucket_keys) == [2, 3, 4, 5]
            assert module._buckets[5]._binding.forward_only
        else:
            module.init_optimizer(optimizer="adam", force_init=True)
        module.train_step(batch_of(5))
        mx.nd.waitall()
        assert module.measured_bytes == module.planned_bytes
        return weights(module)

    assert same(run(True), run(False))


def test_a_backward_pass_behind_inference_in_a_new_bucket_is_of_its_batch():
    module, _ = Buckets(False).make(None)
    module.bind(batch_of(4).provide_data, batch_of(4).provide_label)
    module.init_params(mx.init.Xavier())
    found = []
    for run in (lambda: module.forward(batch_of(3), is_train=False), lambda: module.forward(batch_of(3))):
        run()
        module.backward()
        found.append([g[0].asnumpy() for g in module._current._exec_group.grad_arrays])
    assert all(np.array_equal(g, h) for g, h in zip(*found)) and max(abs(g).max() for g in found[0]) > 0
    fused = evaluated()
    fused.forward(batch_of(6, n=30), is_train=False)
    with pytest.raises(mx.StateError, match="forward"):
        fused.backward()


def test_a_new_optimizer_gives_up_inference_for_other_shapes_too():
    module, _ = Buckets().make("1MB")
    Buckets.fit(module, ([2, 4], 4))
    module.forward(batch_of(2, n=90), is_train=False)
    module.init_optimizer(optimizer="adam", force_init=True)
    assert len(module._first._binding.group.members) == 2


@pytest.mark.filterwarnings("ignore:.*FeedForward")
def test_feed_forward_is_refused_before_its_first_step_or_never():
    def fit(budget, steps):
        model = mx.model.FeedForward(mlp(), num_epoch=1, memory_budget=budget, optimizer="adam")
        model.fit(blobs(8, 4), eval_data=blobs(90, 90), batch_end_callback=lambda p: steps.append(1))

    steps = []
    least = refused(lambda: fit(1, steps)).least_feasible_bytes
    assert refused(lambda: fit(least - 1, steps)).least_feasible_bytes == least and not steps
    fit(least, steps)


def test_a_refused_binding_leaves_the_buckets_there_are():
    module = evaluated("80KB")
    keys, before = sorted(module.bucket_keys), weights(module)
    shape = (4000, 4)
    with pytest.raises(mx.MemoryBudgetError):
        module.bind([("data", shape)], [("softmax_label", shape)], force_rebind=True)
    assert sorted(module.bucket_keys) == keys and module._buckets[4] is module._first
    assert same(weights(module), before)
    within(module, 80_000)


@pytest.mark.parametrize("kind", ["separate", "larger batches", "more buckets"])
def test_a_refused_fit_leaves_the_shapes_there_are(kind):
    kind = KINDS[kind]
    module, whole = kind.make(refused(lambda: kind.fit(kind.make(1)[1], *kind.first)).least_feasible_bytes)
    kind.fit(whole, *kind.first)
    first = getattr(module, "_first", module)
    shapes = first._binding.shapes
    refused(lambda: kind.fit(whole, kind.then[0], kind.first[1]))
    assert first._binding.shapes == shapes and not first._binding.group.expected


def test_declared_buckets_come_in_the_shapes_of_the_iterator_and_the_default_always():
    def fits(budget, steps):
        buckets = {2: (batch_of(2).provide_data, batch_of(2).provide_label)}
        module = mx.mod.BucketingModule(few_nodes, 4, memory_budget=budget, buckets=buckets)
        for n in (4, 30):
            steps.clear()
            Buckets.fit(module, ([2, 4], n), batch_end_callback=lambda p: steps.append(1))
        within(module, budget)
        assert sorted(module.bucket_keys) == [2, 4]

    steps = []
    least = refused(lambda: fits(6_000, steps)).least_feasible_bytes
    assert not steps
    fits(least, steps)
    assert refused(lambda: fits(least - 1, steps)).least_feasible_bytes == least and not steps
