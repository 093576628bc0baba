"""A Module on several contexts against one process that adds up the gradients of their parts in order."""

import numpy as np
import pytest

import mxlite as mx
from mxlite.core import config
from mxlite.engine import use_engine

TWO = [mx.cpu(0), mx.cpu(1)]
N = 10


def network():
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, name="conv")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name="bn"), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="fc"), name="softmax")


def dense(layers=2):
    x = mx.sym.Variable("data")
    for i in range(layers):
        x = mx.sym.Activation(mx.sym.FullyConnected(x, num_hidden=16, name=f"fc{i}"), act_type="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="last"), name="softmax")


def table():
    x = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=9, output_dim=4, sparse_grad=True, name="table")
    x = mx.sym.FullyConnected(mx.sym.mean(x, axis=1), num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def arrays(shape, step=0, most=None):
    draw = np.random.default_rng([step, len(shape)])
    x = draw.standard_normal(shape) if most is None else draw.integers(0, most, shape)
    return x.astype("float32"), draw.integers(0, 5, shape[0]).astype("float32")


def batch(x, y):
    return mx.io.DataBatch([mx.nd.array(x)], [mx.nd.array(y)])


def made(net, shape, optimizer="sgd", contexts=TWO, kvstore="local", rescale=1 / N, grad_req="write", **how):
    options = {"learning_rate": 0.1, "rescale_grad": rescale}
    if optimizer == "sgd":
        options["momentum"] = 0.9
    module = mx.mod.Module(net, context=contexts, **how)
    module.bind([("data", shape)], [("softmax_label", shape[:1])], grad_req=grad_req)
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(kvstore, optimizer, options)
    return module


def one_process(net, shape, cuts, steps, feeds, optimizer, **how):
    """Parameters after steps in which modules of one device have a part each, and one of them updates."""
    ends = list(zip((0, *cuts), (*cuts, shape[0])))
    how = {**how, "fused_update": False, "contexts": mx.cpu()}
    modules = [made(net, (b - a, *shape[1:]), optimizer, **how) for a, b in ends]
    first = modules[0]
    for module in modules[1:]:
        module.set_params(*first.get_params())
    for step in range(steps):
        x, y = feeds(step)
        for module, (a, b) in zip(modules, ends):
            module.forward_backward(batch(x[a:b], y[a:b]))
        for parts in zip(*(m._exec_group.grad_arrays for m in modules)):
            total = parts[0][0].asnumpy()
            for part in parts[1:]:
                total = total + part[0].asnumpy()
            if parts[0][0].stype == "default":
                parts[0][0][:] = total
            else:
                mx.nd.array(total).tostype("row_sparse").copyto(parts[0][0])
        first.update()
        for module in modules[1:]:
            module.set_params(first.get_params()[0], module.get_params()[1])
            if first.loss_scale is not None:
                vars(module._training.scale).update(vars(first._training.scale))
    return first.get_params()[0], [m.get_params()[1] for m in modules]


@pytest.mark.parametrize("engine", ["threaded", "naive"])
@pytest.mark.parametrize(
    "net, shape, most, optimizer, loads, cuts, how",
    [
        (network, (N, 3, 8, 8), None, "sgd", None, (5,), {}),
        (network, (N, 3, 8, 8), None, "adam", [1, 2, 2], (2, 6), {}),
        (dense, (N, 6), None, "adam", [3, 1], (8,), {"amp": "bfloat16"}),
        (dense, (N, 6), None, "sgd", None, (5,), {"amp": "float16", "loss_scale": "dynamic"}),
        (table, (N, 3), 9, "sgd", None, (5,), {}),
    ],
)
def test_parameters_are_those_of_one_process_that_adds_up_parts(
    net, shape, most, optimizer, loads, cuts, how, engine
):
    def feeds(step):
        x, y = arrays(shape, step, most)
        return (x * 1e6 if "loss_scale" in how and step == 2 else x), y

    contexts = [mx.cpu(i) for i in range(len(cuts) + 1)]
    with use_engine(engine):
        module = made(net(), shape, optimizer, contexts, work_load_list=loads, **how)
        for step in range(6):
            module.forward_backward(batch(*feeds(step)))
            module.update()
        args, states = one_process(net(), shape, cuts, 6, feeds, optimizer, **how)
        found, aux = module.get_params()
        group = module._exec_group
    for name, value in args.items():
        np.testing.assert_array_equal(found[name].asnumpy(), value.asnumpy(), name)
    for name, value in aux.items():
        each = [s[name].asnumpy() for s in states]
        assert not np.array_equal(each[0], each[1])
        np.testing.assert_array_equal(value.asnumpy(), sum(each[1:], each[0]) / np.float32(len(each)), name)
    for name, owned in zip(group.aux_names, group.aux_arrays):
        for mine, theirs in zip(owned, states, strict=True):
            np.testing.assert_array_equal(mine.asnumpy(), theirs[name].asnumpy(), name)


def test_each_device_owns_what_is_planned_within_its_budget():
    net, shape = dense(6), (64, 16)
    whole = made(net, shape)
    most = [d.memory_plan.peak_bytes for d in whole.devices]
    budgets = [most[0] - 4000, most[1] - 6000]
    assert most[0] > most[1]  # the first has momentum as well
    modules = whole, made(net, shape, memory_budget=budgets)
    for module in modules:
        for step in range(2):
            module.forward_backward(batch(*arrays(shape, step)))
            module.update()
        for device in module.devices:
            assert device.measured_bytes == device.planned_bytes == device.memory_plan.peak_bytes
        assert module.measured_bytes == module.memory_plan.peak_bytes == module.devices[0].planned_bytes
    plans = [d.memory_plan for d in modules[1].devices]
    assert all(p.peak_bytes <= b and p.recomputed for p, b in zip(plans, budgets, strict=True))
    for name, value in whole.get_params()[0].items():
        np.testing.assert_array_equal(modules[1].get_params()[0][name].asnumpy(), value.asnumpy())
    with pytest.raises(mx.MemoryBudgetError):
        made(net, shape, memory_budget=[None, 20000])


def test_devices_share_the_threads_and_have_workers_of_their_own(monkeypatch):
    monkeypatch.setattr(config, "num_threads", lambda: 4)
    module = made(network(), (N, 3, 16, 16))
    kinds = []
    for executor in module._exec_group.execs:
        lowered = executor._planned.train
        kinds.append((lowered.threads, executor._arena.lane))
    assert kinds == [(2, "cpu"), (2, "cpu(1)")]
    module.forward_backward(batch(*arrays((N, 3, 16, 16))))
    module.update()
    mx.nd.waitall()


def test_batches_of_other_sizes_and_scores_and_predictions():
    x, y = arrays((26, 6))
    found = []
    for contexts in (mx.cpu(), TWO):
        mx.random.seed(5)
        module = mx.mod.Module(dense(), context=contexts)
        data = mx.io.NDArrayIter(x, y, batch_size=8, last_batch_handle="discard")
        module.fit(data, mx.io.NDArrayIter(x, y, batch_size=13), num_epoch=2, optimizer="adam")
        module.forward(batch(x[:5], y[:5]), is_train=False)
        assert module.get_outputs()[0].shape == (5, 5)
        score = module.score(mx.io.NDArrayIter(x, y, batch_size=13), ["acc", "ce"])
        probabilities = module.predict(mx.io.NDArrayIter(x, y, batch_size=10)).asnumpy()
        found.append([*(v for _, v in score), probabilities])
    for one, two in zip(*found):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_parameters_and_states_are_written_read_and_go_on(tmp_path):
    shape, prefix = (N, 3, 8, 8), str(tmp_path / "net")
    module = made(network(), shape)

    def go_on(module):
        for step in range(3, 5):
            module.forward_backward(batch(*arrays(shape, step)))
            module.update()
        return {n: a.asnumpy() for part in module.get_params() for n, a in part.items()}

    for step in range(3):
        module.forward_backward(batch(*arrays(shape, step)))
        module.update()
    module.average_states()
    module.save_checkpoint(prefix, 1, save_optimizer_states=True)
    other = mx.mod.Module.load(prefix, 1, load_optimizer_states=True, context=TWO)
    other.bind([("data", shape)], [("softmax_label", shape[:1])])
    other.init_optimizer("device", "sgd", {"learning_rate": 0.1, "rescale_grad": 1 / N, "momentum": 0.9})
    first, second = go_on(module), go_on(other)
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, name)
    module.set_params({n: mx.nd.array(first[n]) for n in first if "moving" not in n}, {}, allow_missing=True)
    aux = {n: mx.nd.ones(4) * 3 for n in first if "moving" in n}
    module.set_params({}, aux, allow_missing=True)
    module.forward(batch(*arrays(shape)), is_train=False)
    for states in module._exec_group.aux_arrays:
        assert all((s.asnumpy() == 3).all() for s in states)


@pytest.mark.parametrize("request_", ["write", "add"])
def test_gradients_are_summed_once_for_each_pass(request_):
    found = []
    for contexts in (mx.cpu(), TWO):
        module = made(dense(), (N, 6), contexts=contexts, grad_req=request_, fused_update=False)
        for step in range(6):
            module.forward_backward(batch(*arrays((N, 6), step)))
            if step % 2:
                module.update()
                module.update()  # by the same gradients, which are summed once
            if step == 3:
                for parts in module._exec_group.grad_arrays:
                    for part in parts:
                        part[:] = 0
        found.append(module.get_params()[0])
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name].asnumpy(), value.asnumpy(), rtol=1e-3, atol=1e-5)


def test_inputs_have_gradients_and_metrics_see_each_part():
    x, y = arrays((N, 6))
    module = mx.mod.Module(dense(), context=TWO, work_load_list=[2, 3])
    module.bind([("data", x.shape)], [("softmax_label", y.shape)], inputs_need_grad=True)
    module.init_params()
    module.forward(batch(x, y), is_train=True)
    module.backward()
    parts = module.get_input_grads(merge_multi_context=False)[0]
    assert [p.shape for p in parts] == [(4, 6), (6, 6)] and [p.context for p in parts] == TWO
    (whole,) = module.get_input_grads()
    np.testing.assert_array_equal(np.concatenate([p.asnumpy() for p in parts]), whole.asnumpy())
    seen = []
    metric = mx.metric.CustomMetric(lambda label, pred: seen.append((label, pred)) or 0.0)
    module.update_metric(metric, [mx.nd.array(y)])
    metric.get()
    module.update_metric(metric, [[mx.nd.array(y[:4])], [mx.nd.array(y[4:])]], pre_sliced=True)
    metric.get()
    assert [len(label) for label, _ in seen] == [4, 6, 4, 6]
    for i, part in enumerate((y[:4], y[4:]) * 2):
        np.testing.assert_array_equal(seen[i][0], part)


def test_buckets_run_on_several_devices():
    def bucket(length):
        x = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=9, output_dim=4, name="table")
        x = mx.sym.FullyConnected(mx.sym.mean(x, axis=1), num_hidden=5, name="fc")
        return mx.sym.SoftmaxOutput(x, name="softmax"), ("data",), ("softmax_label",)

    found = []
    for contexts in (mx.cpu(), TWO):
        mx.random.seed(3)
        how = {} if contexts is not TWO else {"memory_budget": ["64KiB", "64KiB"]}
        module = mx.mod.BucketingModule(bucket, 6, context=contexts, **how)
        for step, length in enumerate((6, 4, 6, 3, 4)):
            x, y = arrays((N, length), step, 9)
            given = mx.io.DataBatch(
                [mx.nd.array(x)],
                [mx.nd.array(y)],
                bucket_key=length,
                provide_data=[("data", x.shape)],
                provide_label=[("softmax_label", y.shape)],
            )
            if not step:
                module.bind(given.provide_data, given.provide_label)
                module.init_params(mx.init.Uniform(1))
                module.init_optimizer(optimizer="adam")
            module.forward_backward(given)
            module.update()
        found.append(module.get_params()[0])
    for name, value in found[0].items():
        np.testing.assert_allclose(found[1][name].asnumpy(), value.asnumpy(), rtol=1e-4, atol=1e-5)


def test_a_stopped_training_goes_on_with_the_random_numbers_of_all_devices(tmp_path):
    def network():
        x = mx.sym.Dropout(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc"), p=0.5)
        return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(x, num_hidden=5, name="last"), name="softmax")

    def fitted(epochs, **how):
        mx.random.seed(11)
        module = mx.mod.Module(network(), context=TWO)
        data = mx.io.NDArrayIter(*arrays((24, 6)), batch_size=8)
        module.fit(data, num_epoch=epochs, optimizer="adam", initializer=mx.init.Xavier(), **how)
        return module

    whole, prefix = fitted(4), str(tmp_path / "run")
    fitted(2, checkpoint_prefix=prefix)
    found = fitted(4, checkpoint_prefix=prefix, resume=True)
    for name, value in whole.get_params()[0].items():
        np.testing.assert_array_equal(found.get_params()[0][name].asnumpy(), value.asnumpy(), name)


def test_a_monitor_sees_every_device():
    module = made(dense(1), (N, 6))
    monitor = mx.mon.Monitor(1, stat_func=lambda a: a.sum(), pattern="last_output", sort=True)
    module.install_monitor(monitor)
    monitor.tic()
    module.forward_backward(batch(*arrays((N, 6))))
    assert [name for _, name, _ in monitor.toc()] == ["last_output"] * 2
    module.forward(batch(*arrays((N, 6))), is_train=False)
    assert module.get_outputs()[0].shape == (N, 5)


def test_a_borrowed_optimizer_updates_by_the_sums_of_all_devices():
    first = made(dense(), (N, 6))
    second = mx.mod.Module(dense(), context=TWO)
    shapes = [("data", (6, 6))], [("softmax_label", (6,))]
    second.bind(*shapes, shared_module=first)
    second.borrow_optimizer(first)
    before = first.get_params()[0]["last_weight"].asnumpy()
    second.forward_backward(batch(*arrays((6, 6))))
    second.update()
    after = [m._exec_group.param_arrays[-2][0].asnumpy() for m in (first, second)]
    assert np.array_equal(*after) and not np.array_equal(after[0], before)
    with pytest.raises(mx.BindError, match=r"the same devices"):
        mx.mod.Module(dense()).bind(*shapes, shared_module=first)


@pytest.mark.parametrize(
    "make, error, told",
    [
        (lambda: mx.mod.Module(dense(), context=[mx.cpu(0), mx.cpu(0)]), mx.MXLiteError, "twice"),
        (lambda: mx.mod.Module(dense(), context=[mx.cpu(0), mx.gpu(0)]), mx.MXLiteError, "one device"),
        (lambda: mx.mod.Module(dense(), context=TWO, work_load_list=[1]), mx.RangeError, "2 contexts"),
        (lambda: mx.mod.Module(dense(), context=TWO, work_load_list=[1, 0]), mx.RangeError, "above 0"),
        (
            lambda: mx.mod.Module(dense(), context=TWO, memory_budget=[1, 2, 3]),
            mx.BudgetError,
            "list of 3 for 2",
        ),
        (lambda: mx.mod.Module(dense(), context=TWO, fused_update=True), mx.BindError, "fused_update"),
        (lambda: made(dense(), (1, 6)), mx.ShapeError, "1 samples are too few"),
    ],
)
def test_what_cannot_work_is_refused(make, error, told):
    with pytest.raises(error, match=told):
        make()
