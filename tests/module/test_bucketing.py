"""Buckets and other shapes: one set of parameters, one arena, one budget, and the same bits as without."""

from __future__ import annotations

import gc
import logging
import random
import re
import sys
import weakref

import numpy as np
import pytest

import mxlite as mx
from mxlite.memplan import check
from tests.networks.small_networks import mlp


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch, quick_refusals):
    """What is tested does not depend on kernels, and these need no compiling."""
    monkeypatch.setenv("MXLITE_KERNELS", "reference")


WORDS, HIDDEN, BATCH = 7, 8, 4
LONGEST = 6
SGD = {"learning_rate": 0.2, "momentum": 0.9, "wd": 1e-3}


def sym_gen(length):
    """A recurrent net over `length` words, with dropout, so that random numbers count too."""
    embedded = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=WORDS, output_dim=HIDDEN, name="embed")
    words = mx.sym.SliceChannel(embedded, num_outputs=length, axis=1, squeeze_axis=length > 1, name="words")
    state, outputs = None, []
    weights = {k: mx.sym.Variable(k) for k in ("x_weight", "x_bias", "h_weight", "h_bias")}
    for t in range(length):
        x = mx.sym.FullyConnected(words[t], weights["x_weight"], weights["x_bias"], num_hidden=HIDDEN)
        if state is not None:
            x = x + mx.sym.FullyConnected(state, weights["h_weight"], weights["h_bias"], num_hidden=HIDDEN)
        state = mx.sym.Activation(x, act_type="tanh")
        outputs.append(mx.sym.Dropout(state, p=0.2))
    logits = mx.sym.FullyConnected(mx.sym.Concat(*outputs, dim=0), num_hidden=WORDS, name="logits")
    label = mx.sym.Reshape(mx.sym.transpose(mx.sym.Variable("softmax_label")), shape=(-1,))
    return mx.sym.SoftmaxOutput(logits, label, name="softmax"), ("data",), ("softmax_label",)


def batch_of(length, seed=0, n=BATCH):
    draw = np.random.default_rng(seed)
    x, y = draw.integers(0, WORDS, (2, n, length)).astype("float32")
    shape = (n, length)
    return mx.io.DataBatch(
        [mx.nd.array(x)],
        [mx.nd.array(y)],
        bucket_key=length,
        provide_data=[("data", shape)],
        provide_label=[("softmax_label", shape)],
    )


def bound(default=LONGEST, optimizer="sgd", params=SGD, nets=sym_gen, **options):
    module = mx.mod.BucketingModule(nets, default_bucket_key=default, **options)
    first = batch_of(default)
    module.prepare_fit()
    module.bind(first.provide_data, first.provide_label)
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer=optimizer, optimizer_params=params)
    return module


def values(module):
    args, aux = module.get_params()
    return {k: v.asnumpy() for k, v in {**args, **aux}.items()}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


LENGTHS = (LONGEST, 2, 4, 2, LONGEST, 3, 4)


def trained(module, lengths=LENGTHS):
    mx.random.seed(9)
    for i, length in enumerate(lengths):
        module.train_step(batch_of(length, i))
    mx.nd.waitall()
    return values(module)


# -- the same bits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("optimizer, params", [("sgd", SGD), ("adam", {"learning_rate": 0.01})])
def test_buckets_train_as_modules_that_share_arrays_by_hand(fused, optimizer, params):
    """Executors on one set of arrays, with arenas of their own, updated by one optimizer by hand."""
    module = bound(fused_update=fused, optimizer=optimizer, params=params)
    start = {k: mx.nd.array(v) for k, v in values(module).items()}
    grads = {k: mx.nd.zeros(v.shape) for k, v in start.items()}
    names = [n for n in sym_gen(LONGEST)[0].list_arguments() if n in start]
    chosen = mx.optimizer.create(
        optimizer, param_idx2name=dict(enumerate(names)), rescale_grad=1 / BATCH, **params
    )
    updater = mx.optimizer.get_updater(chosen)
    mx.random.seed(9)
    for i, length in enumerate(LENGTHS):
        batch = batch_of(length, i)
        net = sym_gen(length)[0]
        inputs = {"data": batch.data[0], "softmax_label": batch.label[0]}
        args = {n: inputs.get(n, start.get(n)) for n in net.list_arguments()}
        exe = net.bind(mx.cpu(), args, args_grad={n: g for n, g in grads.items() if n in args})
        exe.forward(is_train=True)
        exe.backward()
        for index, name in enumerate(names):
            if name in args:
                updater(index, grads[name], start[name])
    expected = {k: v.asnumpy() for k, v in start.items()}
    assert same(trained(module), expected)


def test_every_budget_of_the_whole_trains_to_the_same_bits():
    free = bound(fused_update=True)
    expected = trained(free)
    whole = free.planned_bytes
    assert free.measured_bytes == whole
    arena = free.memory_plan.problem.fixed_total
    for share in (0.9, 0.75):
        budget = arena + int(share * (whole - arena))
        module = bound(fused_update=True, memory_budget=budget)
        assert same(trained(module), expected)
        assert module.measured_bytes == module.planned_bytes <= budget
        assert max(m.memory_plan.recomputed for m in module._buckets.values()) > 0
        for m in module._buckets.values():
            check(m.memory_plan, m.memory_plan.predecessors)


def test_bfloat16_buckets_have_one_set_of_float32_masters():
    found = []
    for lengths in ((2, 4, 2, 4), (4, 2, 4, 2)):
        module = bound(4, fused_update=True, amp="bfloat16")
        assert module._current._executor.amp is not None
        trained(module, lengths)
        states = [m._executor.optimizer_states for m in module._buckets.values()]
        assert all(states[0][n] is states[1][n] for n in states[1])
        found.append(len(states))
    assert found == [2, 2]


def test_the_loss_scale_is_one_for_all_buckets():
    module = bound(4, amp="float16", loss_scale="dynamic")
    trained(module, (4, 3))
    module._buckets[4]._executor.loss_scale = 8.0
    module.forward(batch_of(3), is_train=True)
    assert module.loss_scale == 8.0 == module._buckets[3]._executor.loss_scale


def test_a_bucket_that_comes_later_goes_on_with_the_loss_scale_that_steps_have_found():
    module = bound(4, nets=few_nodes, fused_update=True, amp="float16", loss_scale="dynamic")
    trained(module, (4,))
    module._buckets[4]._executor.loss_scale = 8.0  # as an overflow would
    module.prepare(batch_of(3))
    assert module._buckets[4]._executor.loss_scale == 8.0 == module.loss_scale


# -- what is shared and counted --------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
def test_what_is_planned_is_what_there_is(fused):
    module = bound(5, fused_update=fused)
    for i, length in enumerate((5, 3, LONGEST, 4, LONGEST, 3)):
        module.train_step(batch_of(length, i))
        mx.nd.waitall()
        assert module.measured_bytes == module.planned_bytes
        # The fixed bytes are those of the whole group, the arena that of the largest bucket.
        plans = {k: m.memory_plan for k, m in module._buckets.items()}
        assert len({p.problem.fixed_total for p in plans.values()}) == 1
        assert module.planned_bytes == max(p.peak_bytes for p in plans.values())
    execs = {k: m._executor for k, m in module._buckets.items()}
    assert len({id(e._arena) for e in execs.values()}) == 1
    for name in ("embed_weight", "h_weight"):
        assert len({id(e.arg_dict[name]) for e in execs.values()}) == 1
        assert len({id(e.grad_dict[name]) for e in execs.values()}) == 1
    assert len({id(e.arg_dict["data"]) for e in execs.values()}) == 4
    inputs = sum(4 * 2 * BATCH * k for k in execs) + 16 * len(execs)  # and the state of dropout's numbers
    outputs = sum(4 * WORDS * BATCH * k for k in execs)
    breakdown = module.memory_plan.breakdown
    assert (breakdown["inputs"], breakdown["outputs"]) == (inputs, outputs)
    parameters = sum(v.nbytes for v in values(module).values())
    assert breakdown["arguments"] == parameters
    assert breakdown["gradients"] == (0 if fused else parameters)


def test_the_largest_bucket_first_allocates_the_arena_once():
    module = bound(fused_update=True)
    module.train_step(batch_of(LONGEST))
    block = module._current._executor._arena.block
    trained(module)
    assert module._current._executor._arena.block is block


def test_a_growing_arena_is_never_there_twice(monkeypatch):
    """The old block is given back before the new one is asked for."""
    module = bound(3, fused_update=True)
    trained(module, (3, 3))
    arena = module._current._executor._arena
    old = weakref.ref(arena._block.base if arena._block.base is not None else arena._block)
    alive = []
    make = type(arena.backend).empty

    def empty(self, nbytes):
        alive.append(arena._block is not None)
        return make(self, nbytes)

    monkeypatch.setattr(type(arena.backend), "empty", empty)
    trained(module, (LONGEST,))
    assert alive.count(True) == len(alive) - 1  # the other arrays; and the arena once
    gc.collect()
    assert old() is None  # nobody's program lies in it any more
    assert arena.block.nbytes == arena.nbytes == module._buckets[LONGEST].memory_plan.arena_bytes
    before = values(module)
    trained(module, (3,))
    assert not same(values(module), before)


def test_a_backward_pass_after_another_buckets_forward_is_refused():
    module = bound(3, fused_update=False)
    module.forward(batch_of(3), is_train=True)
    module.forward(batch_of(LONGEST), is_train=True)
    module.switch_bucket(3, None)
    with pytest.raises(mx.StateError, match="right before it"):
        module.backward()


def test_preparing_a_bucket_leaves_the_present_step_alone():
    module = bound(3, fused_update=False)
    module.forward(batch_of(3), is_train=True)
    module.prepare(batch_of(LONGEST))
    assert module.bucket_key == 3
    assert module.bucket_keys == [3, LONGEST]
    module.backward()
    module.update()


# -- budgets ---------------------------------------------------------------------------------------------


def test_a_bucket_that_does_not_fit_is_named_with_what_would_do():
    small = bound(3, fused_update=True)
    trained(small, (3, 2))
    budget = small.planned_bytes + 200
    module = bound(3, fused_update=True, memory_budget=budget)
    trained(module, (3, 2))
    with pytest.raises(
        mx.MemoryBudgetError, match=r"Bucket 12 \(data \(4, 12\)\) .*beside buckets 3, 2"
    ) as no:
        module.train_step(batch_of(12))
    assert no.value.budget_bytes == budget
    assert f"{no.value.least_feasible_bytes} bytes are enough for all" in str(no.value)
    assert no.value.lower_bound_bytes <= no.value.least_feasible_bytes
    assert module.bucket_keys == [3, 2]
    expected = trained(small, (2, 3))
    assert same(trained(module, (2, 3)), expected)  # the buckets there are go on
    enough = bound(3, fused_update=True, memory_budget=no.value.least_feasible_bytes)
    trained(enough, (3, 2, 12))
    assert enough.measured_bytes == enough.planned_bytes <= no.value.least_feasible_bytes


def test_the_first_bucket_is_named_too_and_its_advice_waits_for_a_reader(monkeypatch):
    asked = []
    group = sys.modules["mxlite.executor.group"]
    monkeypatch.setattr(group, "advice", lambda question: asked.append(1) or "Buy memory.")
    with pytest.raises(mx.MemoryBudgetError) as no:
        bound(fused_update=True, memory_budget=2000)
    assert not asked
    assert re.match(r"Bucket 6 (.|\n)*Buy memory\.$", str(no.value)) and asked == [1]


def few_nodes(length):
    """A net in which words do not know of each other: quick to search."""
    words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=WORDS, output_dim=HIDDEN, name="embed")
    hidden = mx.sym.Activation(mx.sym.Reshape(words, shape=(-1, HIDDEN)), act_type="tanh")
    logits = mx.sym.FullyConnected(hidden, num_hidden=WORDS, name="logits")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(logits, label, name="softmax"), ("data",), ("softmax_label",)


def declared(*lengths):
    return {n: (batch_of(n).provide_data, batch_of(n).provide_label) for n in lengths}


@pytest.mark.parametrize("default, fused", [(2, True), (6, False)])
def test_the_first_refusal_names_a_budget_for_all_declared_buckets(default, fused):
    buckets = declared(2, 3, 6)

    def run(budget):
        return bound(default, nets=few_nodes, fused_update=fused, memory_budget=budget, buckets=buckets)

    with pytest.raises(mx.MemoryBudgetError, match=rf"Bucket {default} .*beside buckets") as no:
        run(2000)
    least = no.value.least_feasible_bytes
    assert f"A budget of {least} bytes" in str(no.value)
    module = run(least)
    assert sorted(module.bucket_keys) == [2, 3, 6]  # before the first step
    plans = [m.memory_plan for m in module._buckets.values()]
    free = bound(default, nets=few_nodes, fused_update=fused, buckets=buckets)
    assert free.bucket_keys == [default]
    assert same(trained(module, (3, 6, 2, 6)), trained(free, (3, 6, 2, 6)))
    assert [m.memory_plan for m in module._buckets.values()] == plans  # there was room for all from the start
    assert module.measured_bytes == module.planned_bytes <= least
    with pytest.raises(mx.MemoryBudgetError) as no:
        run(least - 1)
    assert no.value.least_feasible_bytes == least


def test_buckets_declared_for_inference_are_bound_with_the_parameters():
    def run(budget):
        module = mx.mod.BucketingModule(
            few_nodes, default_bucket_key=2, memory_budget=budget, buckets=declared(2, 5)
        )
        module.bind(batch_of(2).provide_data, batch_of(2).provide_label, for_training=False)
        module.init_params(mx.init.Xavier())
        return module

    with pytest.raises(mx.MemoryBudgetError) as no:
        run(1)
    module = run(no.value.least_feasible_bytes)
    assert module.bucket_keys == [2, 5] and module.bucket_key == 2
    module.forward(batch_of(5))
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes <= no.value.least_feasible_bytes


@pytest.mark.parametrize("buckets, said", [([3], "must be a dict"), ({3: 4}, "3 must have")])
def test_what_declares_no_buckets_is_refused(buckets, said):
    with pytest.raises((mx.core.BindError, TypeError), match=said):
        mx.mod.BucketingModule(sym_gen, default_bucket_key=3, buckets=buckets)


def test_a_refused_optimizer_leaves_the_module_as_it_was():
    least = refused_budget(lambda b: bound(4, nets=few_nodes, fused_update=False, memory_budget=b))
    module = mx.mod.BucketingModule(few_nodes, 4, fused_update=False, memory_budget=least)
    module.bind(batch_of(4).provide_data, batch_of(4).provide_label)
    module.init_params(mx.init.Xavier())
    before = module.planned_bytes
    with pytest.raises(mx.MemoryBudgetError):
        module.init_optimizer(optimizer="adam")
    assert not module.optimizer_initialized and module.planned_bytes == before
    module.init_optimizer(optimizer_params=SGD)
    trained(module, (4,))
    assert module.measured_bytes == module.planned_bytes <= least


def refused_budget(run):
    with pytest.raises(mx.MemoryBudgetError) as no:
        run(1)
    return no.value.least_feasible_bytes


def test_a_bucket_that_comes_later_makes_the_others_recompute():
    """The first fills the budget; what the second owns is then missing."""
    free = bound(fused_update=True)
    trained(free, (LONGEST,))
    budget = free.planned_bytes
    module = bound(fused_update=True, memory_budget=budget)
    expected = trained(free, (LONGEST, 5, LONGEST))
    trained(module, (LONGEST,))
    assert module.memory_plan.recomputed == 0
    found = trained(module, (LONGEST, 5, LONGEST))
    assert same(found, expected)
    assert module._buckets[LONGEST].memory_plan.recomputed > 0
    assert module.measured_bytes == module.planned_bytes <= budget


# -- MXNet's API -----------------------------------------------------------------------------------------


def sentences(count=50):
    draw = np.random.default_rng(1)
    return [draw.integers(1, WORDS, draw.integers(2, 6)).tolist() for _ in range(count)]


def iterator(**options):
    random.seed(1)
    np.random.seed(1)
    return mx.rnn.BucketSentenceIter(sentences(), BATCH, buckets=[2, 4, 5], invalid_label=0, **options)


def test_fit_score_and_predict_go_through_buckets():
    data = iterator()
    module = mx.mod.BucketingModule(sym_gen, default_bucket_key=data.default_bucket_key)
    seen = []
    module.fit(
        data,
        eval_data=iterator(),
        eval_metric=mx.metric.Perplexity(None),
        optimizer_params={"learning_rate": 0.1},
        initializer=mx.init.Xavier(),
        num_epoch=2,
        batch_end_callback=lambda p: seen.append(module.bucket_key),
    )
    assert set(seen) == {2, 4, 5}
    assert module._current.is_fused
    assert module.measured_bytes == module.planned_bytes
    outputs = module.predict(iterator(), merge_batches=False)
    assert {o[0].shape for o in outputs} == {(BATCH * k, WORDS) for k in (2, 4, 5)}
    assert module.symbol.list_outputs() == module.output_names == ["softmax_output"]
    assert module.data_names == ["data"]
    assert module.label_names == ["softmax_label"]
    assert dict(module.data_shapes)["data"] == (BATCH, module.bucket_key)
    assert module.output_shapes == [("softmax_output", (BATCH * module.bucket_key, WORDS))]


def test_fit_declares_what_its_iterator_provides():
    def fit(budget):
        data = mx.io.ResizeIter(iterator(), 1)
        module = mx.mod.BucketingModule(few_nodes, data.default_bucket_key, memory_budget=budget)
        module.fit(data, eval_metric=mx.metric.Perplexity(None), optimizer="adam", num_epoch=1)
        return module

    least = refused_budget(fit)
    module = fit(least)
    assert sorted(module.bucket_keys) == [2, 4, 5]
    assert module.measured_bytes == module.planned_bytes <= least


def test_checkpoints_hold_all_buckets(tmp_path):
    module = bound()
    trained(module)
    prefix = str(tmp_path / "net")
    module.save_checkpoint(prefix, 3)
    module.save_optimizer_states(prefix + ".states")
    names = {p.name for p in tmp_path.iterdir()}
    assert {"net-0003.params", "net.buckets", "net-6-symbol.json", "net-2-symbol.json"} <= names
    again = mx.mod.BucketingModule.load(prefix, 3, sym_gen=sym_gen, default_bucket_key=LONGEST)
    first = batch_of(LONGEST)
    again.bind(first.provide_data, first.provide_label)
    assert same(values(again), values(module))
    again.init_optimizer(optimizer_params=SGD)
    again.load_optimizer_states(prefix + ".states")
    assert same(trained(again, (5, 3)), trained(module, (5, 3)))
    named = mx.mod.BucketingModule(lambda key: sym_gen(int(key)), default_bucket_key="6")
    named.bind(first.provide_data, first.provide_label)
    named.init_params()
    with pytest.raises(mx.MXLiteError, match="whole numbers, not for '6'"):
        named.save_checkpoint(prefix, 4)


@pytest.mark.parametrize("fused", [False, True])
def test_buckets_bound_before_the_optimizer_get_it_too(fused):
    module = mx.mod.BucketingModule(sym_gen, default_bucket_key=LONGEST, fused_update=fused)
    first = batch_of(LONGEST)
    module.bind(first.provide_data, first.provide_label)
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    for length in (3, 4):
        module.forward(batch_of(length), is_train=False)
    module.init_optimizer(optimizer_params=SGD)
    assert module.bucket_key == 4
    assert module.bucket_keys == [LONGEST, 3, 4]
    assert same(trained(module), trained(bound(fused_update=fused)))
    assert module.measured_bytes == module.planned_bytes


def test_a_stopped_run_over_buckets_goes_on_to_the_same_bits(tmp_path):
    def run(prefix, stop=None, resume=False):
        data = iterator()
        module = mx.mod.BucketingModule(sym_gen, default_bucket_key=5)
        mx.random.seed(2)

        def halt(p):
            if stop is not None and (p.epoch, p.nbatch) == stop:
                module.save_resume_state(prefix, p.epoch, p.nbatch + 1, data)
                raise StopIteration

        try:
            module.fit(
                data, num_epoch=2, initializer=mx.init.Xavier(), eval_metric=mx.metric.Perplexity(None),
                optimizer_params=SGD, checkpoint_prefix=prefix, resume=resume, batch_end_callback=halt,
            )  # fmt: skip
        except StopIteration:
            return None
        return values(module)

    whole = run(str(tmp_path / "a"))
    run(str(tmp_path / "b"), stop=(0, 4))
    assert same(run(str(tmp_path / "b"), resume=True), whole)


def test_binding_anew_keeps_parameters_and_states():
    module, other = bound(fused_update=True), bound(fused_update=True)
    trained(module, (5, 3))
    first = batch_of(LONGEST, n=2)
    module.bind(first.provide_data, first.provide_label, force_rebind=True)
    assert module.bucket_keys == [LONGEST]
    trained(other, (5, 3))
    assert same(trained(module, (5,)), trained(other, (5,)))


class TestBadInput:
    def test_a_parameter_that_the_default_bucket_lacks(self):
        module = bound(1)
        with pytest.raises(mx.BindError, match=r"Bucket 3 has a parameter 'h_weight', which .* bucket 1"):
            module.train_step(batch_of(3))
        module.train_step(batch_of(1))

    def test_a_parameter_of_another_shape(self):
        def sizes(key):
            net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
            return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

        module = mx.mod.BucketingModule(sizes, default_bucket_key=5)
        module.bind([("data", (2, 5))], [("softmax_label", (2,))])
        module.init_params()
        with pytest.raises(mx.ShapeError, match=r"'fc_weight' is shared: it must be \(3, 5\).*\(3, 4\)"):
            module.switch_bucket(4, [("data", (2, 4))], [("softmax_label", (2,))])

    def test_calls_in_the_wrong_order(self):
        with pytest.raises(mx.StateError, match="default_bucket_key"):
            mx.mod.BucketingModule(sym_gen)
        module = mx.mod.BucketingModule(sym_gen, default_bucket_key=3)
        for act in (module.get_params, module.update, lambda: module.forward(batch_of(3))):
            with pytest.raises(mx.StateError, match="bind"):
                act()
        batch = batch_of(3)
        module.bind(batch.provide_data, batch.provide_label)
        with pytest.raises(mx.StateError, match="init_params"):
            module.forward(batch)
        module.init_params()
        module.init_optimizer()
        batch.bucket_key, batch.provide_data = 5, None
        with pytest.raises(mx.BindError, match="bucket 5 must have provide_data"):
            module.forward(batch)

    def test_a_second_budget(self):
        module = bound(3)._first
        other = mx.mod.Module(sym_gen(5)[0], memory_budget="1GB")
        with pytest.raises(mx.BindError, match="one memory_budget"):
            other.bind([("data", (4, 5))], [("softmax_label", (4, 5))], shared_module=module)


# -- other shapes of one module --------------------------------------------------------------------------


def blobs(n):
    draw = np.random.default_rng(n)
    return mx.io.DataBatch(
        [mx.nd.array(draw.standard_normal((n, 8)))], [mx.nd.array(draw.integers(0, 5, n).astype("float32"))]
    )


def module_of(n, **options):
    module = mx.mod.Module(mlp(), **options)
    module.bind([("data", (n, 8))], [("softmax_label", (n,))])
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params=SGD | {"rescale_grad": 0.1})
    return module


@pytest.mark.parametrize("fused", [False, True])
def test_batches_of_other_sizes_share_one_arena(fused):
    module = module_of(64, fused_update=fused)
    executors = {}
    for n in (64, 7, 64, 100, 7, 64):
        module.train_step(blobs(n))
        mx.nd.waitall()
        exe = module._executor
        assert executors.setdefault(n, exe) is exe  # kept, not made again
        assert module.measured_bytes == module.planned_bytes
        check(exe.memory_plan, exe.memory_plan.predecessors)
    assert len({id(e._arena) for e in executors.values()}) == 1
    assert executors[7].memory_plan.arena_bytes < executors[100]._arena.nbytes
    assert executors[100]._arena.nbytes == executors[100].memory_plan.arena_bytes
    expected = module_of(64, fused_update=fused)
    for n in (64, 7, 64, 100, 7, 64):
        expected.bind([("data", (n, 8))], [("softmax_label", (n,))], force_rebind=True)
        expected.train_step(blobs(n))
    assert same(values(module), values(expected))


def test_float32_copies_of_16_bit_weights_are_made_once_for_all_shapes():
    """Made again, they would be the rounded weights."""
    module = mx.mod.Module(mlp(), fused_update=True)
    module.bind([mx.io.DataDesc("data", (8, 8), "float16")], [("softmax_label", (8,))])
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params={"learning_rate": 1e-3, "multi_precision": True})
    first = module._executor
    masters = [n for n in first.optimizer_states if n.endswith("weight32")]
    for n in (8, 4, 8):
        data = [mx.nd.array(a, dtype=a.dtype) for a in (np.ones((n, 8), "float16"), np.zeros(n, "float32"))]
        before = {m: first.optimizer_states[m].asnumpy() for m in masters}
        module.forward(mx.io.DataBatch(data[:1], data[1:]), is_train=True)
        module.backward()
        assert module._executor._masters is first._masters
        assert masters and any((first.optimizer_states[m].asnumpy() != before[m]).any() for m in masters)
        module.update()


def test_few_shapes_are_kept():
    module = module_of(10, fused_update=True)
    for n in (1, 2, 3, 4, 5, 6):
        module.train_step(blobs(n))
    group = module._binding.group
    assert [e.executor.arg_dict["data"].shape[0] for e in group.members.values()] == [3, 4, 5, 6]
    module.train_step(blobs(3))
    module.train_step(blobs(7))
    assert [e.executor.arg_dict["data"].shape[0] for e in group.members.values()] == [5, 6, 3, 7]
    mx.nd.waitall()
    assert module.measured_bytes == module.planned_bytes


def test_within_a_budget_kept_shapes_are_given_up_first():
    """Batch 60 fits alone, to the byte: what 30 and 20 own has to go."""
    alone = module_of(60, fused_update=True)
    trained_alone = alone.memory_plan
    least = alone.symbol.memory_plan  # the least that batch 60 can do with
    with pytest.raises(mx.MemoryBudgetError) as no:
        least(
            mx.cpu(), optimizer=mx.optimizer.SGD(momentum=0.9), memory_budget=1000,
            grad_req=dict.fromkeys(alone._param_names, "write"), data=(60, 8), softmax_label=(60,),
        )  # fmt: skip
    budget = no.value.least_feasible_bytes
    assert budget <= trained_alone.peak_bytes
    module = module_of(30, fused_update=True, memory_budget=budget)
    for n in (30, 20, 60, 30):
        module.train_step(blobs(n))
        mx.nd.waitall()
        assert module.measured_bytes == module.planned_bytes <= budget
    with pytest.raises(mx.MemoryBudgetError):
        module.train_step(blobs(600))
    module.train_step(blobs(30))


def test_a_parameter_that_would_change_its_shape_is_refused():
    module = module_of(4)
    with pytest.raises(mx.ShapeError, match="'fc1_weight' is shared"):
        module.reshape([("data", (4, 9))], [("softmax_label", (4,))])
    assert module.data_shapes[0].shape == (4, 8)
    module.train_step(blobs(4))


def test_reshape_keeps_the_type_of_the_data():
    module = mx.mod.Module(mlp())
    module.bind([mx.io.DataDesc("data", (4, 8), "float64")], [("softmax_label", (4,))])
    module.reshape([("data", (2, 8))], [("softmax_label", (2,))])
    assert module.data_shapes[0].dtype == np.float64
    assert module._executor.arg_dict["data"].dtype == np.float64


# -- sentences -------------------------------------------------------------------------------------------


def test_sentences_are_encoded_in_the_order_of_their_words():
    coded, words = mx.rnn.encode_sentences([["a", "b"], ["b", "c"]], invalid_label=1, start_label=0)
    assert coded == [[0, 2], [2, 3]]
    assert words == {"\n": 1, "a": 0, "b": 2, "c": 3}
    with pytest.raises(mx.MXLiteError, match="'d' is not in the vocabulary of 4 words"):
        mx.rnn.encode_sentences([["d"]], words)
    coded, words = mx.rnn.encode_sentences([["d", "a", "e"]], words, unknown_token="?", start_label=9)
    assert coded == [[9, 0, 9]]
    assert words["?"] == 9


@pytest.mark.parametrize("layout", ["NT", "TN"])
def test_batches_are_of_one_bucket_and_labels_are_the_next_words(layout, caplog):
    with caplog.at_level(logging.WARNING):
        data = mx.rnn.BucketSentenceIter([[1, 2], [3, 4, 5], [1] * 9, [6]], 1, [3, 5], 0, layout=layout)
    assert "Left out 1 of 4" in caplog.text
    assert data.buckets == [3]  # no sentence is in the other
    assert data.default_bucket_key == 3
    rows = {}
    for batch in data:
        x, y = (a[0].asnumpy() for a in (batch.data, batch.label))
        assert batch.provide_data[0].shape == x.shape == ((1, 3) if layout == "NT" else (3, 1))
        assert (batch.bucket_key, batch.pad) == (3, 0)
        rows[tuple(x.ravel())] = tuple(y.ravel())
    assert rows == {(1, 2, 0): (2, 0, 0), (3, 4, 5): (4, 5, 0), (6, 0, 0): (0, 0, 0)}


def test_buckets_are_the_lengths_that_fill_a_batch():
    data = mx.rnn.BucketSentenceIter([[1, 2]] * 5 + [[1, 2, 3]] + [[1, 2, 3, 4]] * 4, 4)
    assert data.buckets == [2, 4]
    assert sum(1 for _ in data) == 2
    with pytest.raises(ValueError, match="None of 1 sentences"):
        mx.rnn.BucketSentenceIter([[1, 2]], 4)
    with pytest.raises(ValueError, match="layout"):
        mx.rnn.BucketSentenceIter([[1, 2]], 1, layout="T")


def test_the_state_of_sentences_must_be_theirs():
    data, other = iterator(), mx.rnn.BucketSentenceIter(sentences(30), BATCH, [2, 4, 5])
    with pytest.raises(mx.FormatError, match="BucketSentenceIter"):
        data.set_state(other.state())
    with pytest.raises(mx.FormatError, match="'batches' is missing"):
        data.set_state({})
