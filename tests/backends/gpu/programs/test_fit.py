"""Training on emulated GPUs with Module: batches on their way while a step runs, metrics on the device."""

from __future__ import annotations

import gc
import logging
import threading

import numpy as np
import pytest

import mxlite as mx
from mxlite.backends.gpu import gpu_backend
from mxlite.backends.gpu.graphs.graph_inputs import Staging
from mxlite.core import OperatorError
from mxlite.engine import get_engine, Var
from mxlite.module.metrics.tally import DeviceSums, Tally
from mxlite.ndarray.calls.invoke import invoke
from mxlite.ndarray.calls.plan import call_of
from tests.backends.gpu.gpu_programs import bound, get, GPU, hollow_gpus, put, recorded_gpus
from tests.emulators.emulated_device import compiler
from tests.networks.small_networks import mlp

needs_compiler = pytest.mark.skipif(compiler is None, reason="g++ is not installed")
CPU = mx.cpu()


def batches(count=5, rows=8):
    rng = np.random.default_rng(0)
    data = rng.standard_normal((count * rows, 8)).astype("float32")
    return mx.io.NDArrayIter(data, rng.integers(0, 5, count * rows).astype("float32"), batch_size=rows)


def parameters(**shapes):
    """The same for every device, which random initialisation is not."""
    rng = np.random.default_rng(5)
    return {n: mx.nd.array(rng.standard_normal(s) * 0.3, CPU) for n, s in shapes.items()}


def fit(ctx, metric=("acc", "ce"), epochs=3, **options):
    """Parameters after some epochs, and the metric's values after each batch that asked."""
    mx.random.seed(7)
    module = mx.mod.Module(mlp(), context=ctx, **options)
    seen = []

    def look(param):
        if param.nbatch % 2:
            seen.append([v for _, v in param.eval_metric.get_name_value()])

    module.fit(
        batches(), num_epoch=epochs, optimizer="adam", eval_metric=list(metric), batch_end_callback=look,
        arg_params=parameters(fc1_weight=(16, 8), fc1_bias=(16,), fc2_weight=(5, 16), fc2_bias=(5,)),
        aux_params={},
    )  # fmt: skip
    return module, {n: get(a) for n, a in module._executor.arg_dict.items() if "label" not in n}, seen


@needs_compiler
@pytest.mark.parametrize("late", [0.0, 0.05, 0.5])
def test_fit_gives_what_it_gives_on_the_cpu_however_late_the_device_is(late):
    _, want, measured = fit(CPU)
    with recorded_gpus(late=late, seed=int(100 * late)) as drivers:
        module, got, seen = fit(GPU)
        assert module.is_fused and module.measured_bytes == module.planned_bytes
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-3, atol=2e-4, err_msg=name)
        np.testing.assert_allclose(seen, measured, rtol=1e-4)
        names = [c.name for c in drivers[0].calls]
        assert names.count("launch_graph") == 3 * 5 - 1  # the first step goes by itself
        tasks = [t.op for t in module.memory_plan.problem.tasks]
        assert {"_metric_hits", "_metric_chosen"} <= set(tasks)
    assert "staging" in module.memory_plan.breakdown
    assert module.memory_plan.breakdown["metrics"] == 2 * (4 * 8 + 4)


def test_a_captured_step_adds_to_metrics_and_nothing_is_put_behind_it():
    """One launch for a batch, metrics included, though their values are asked for now and then."""
    with hollow_gpus() as drivers:
        module = mx.mod.Module(mlp(), context=GPU)
        seen = []

        def look(param):
            calls = drivers[0].calls
            get_engine().rest()
            seen.append([c.name for c in calls[seen[-1][1] if seen else 0 :]])
            seen[-1] = (seen[-1], len(calls))
            if param.nbatch == 5:
                param.eval_metric.get()

        metrics = ["acc", "ce", mx.metric.TopKAccuracy(2), mx.metric.Perplexity(0), mx.metric.Loss()]
        module.fit(batches(8), num_epoch=1, eval_metric=metrics, batch_end_callback=look)
        for names, _ in (seen[4], seen[5], seen[7]):
            assert names.count("launch_graph") == 1 and "launch" not in names, names
        assert "launch" in seen[6][0]  # the sums are zero again


@needs_compiler
@pytest.mark.parametrize("late", [0.0, 0.5])
def test_steps_add_what_metrics_add(late):
    """Also with resets, batches that nobody asks for, and other passes in between."""

    def run(ctx):
        metric = mx.metric.create([
            "acc", "ce", mx.metric.TopKAccuracy(2), mx.metric.Perplexity(0), mx.metric.Loss(),
            mx.metric.np(lambda y, x: float(x[:, 0].sum()), name="first"),
        ])  # fmt: skip
        seen = []

        def look(param):
            if param.nbatch == 1:
                metric.reset_local()
            if param.nbatch == 2:
                module.forward_backward(next(iter(batches(1))))  # of which the metric is not to know
                module.update()
            if param.nbatch == 3:
                module.forward(next(iter(batches(1))), is_train=False)
                module.update_metric(metric, next(iter(batches(1))).label)
            if param.nbatch % 2 == 0:
                seen.append([*metric.get()[1], *metric.get_global()[1]])

        mx.random.seed(7)
        module = mx.mod.Module(mlp(), context=ctx)
        module.fit(
            batches(), num_epoch=2, eval_metric=metric, batch_end_callback=look,
            arg_params=parameters(fc1_weight=(16, 8), fc1_bias=(16,), fc2_weight=(5, 16), fc2_bias=(5,)),
            aux_params={},
        )  # fmt: skip
        seen.append(metric.get_global()[1])
        return seen

    want = run(CPU)
    with recorded_gpus(late=late, seed=11):
        got = run(GPU)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4)


@needs_compiler
def test_a_look_before_a_batch_is_asked_for_does_not_lose_it():
    label, pred = predictions("plain", 7, 5)
    with recorded_gpus(late=0.3):
        _, x = arrays(GPU, label, pred)
        sums = DeviceSums.on(GPU)

        def step():
            invoke(call_of("_metric_total", {}), [*sums.next(), x])

        total = float(pred.sum(dtype="float64"))
        step()
        assert sums.ask() and not sums.ask()
        step()
        np.testing.assert_allclose(sums.take(), (total, 35))
        assert sums.take() == (0, 0) and sums.ask()
        np.testing.assert_allclose(sums.take(), (total, 35))
        step()
        step()
        assert sums.ask()
        np.testing.assert_allclose(sums.take(), (total, 35))


@needs_compiler
def test_differences_are_part_of_a_step_too():
    def run(ctx):
        x, y = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
        net = mx.sym.LinearRegressionOutput(mx.sym.FullyConnected(x, num_hidden=1, name="fc"), y)
        data = np.random.default_rng(0).standard_normal((20, 3)).astype("float32")
        values = mx.io.NDArrayIter(data, data.sum(1, keepdims=True), batch_size=4)
        module = mx.mod.Module(net, context=ctx)
        metric = mx.metric.create(["mae", "mse", "rmse"])
        given = parameters(fc_weight=(1, 3), fc_bias=(1,))
        module.fit(values, num_epoch=2, eval_metric=metric, arg_params=given, aux_params={})
        return metric.get()[1], [t.op for t in module.memory_plan.problem.tasks]

    want, _ = run(CPU)
    with recorded_gpus():
        got, tasks = run(GPU)
    assert tasks.count("_metric_difference") == 3
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_metric_that_measures_in_its_own_way_is_no_part_of_a_step():
    class Mine(mx.metric.Accuracy):
        def measure(self, label, pred):
            return 41.0, 1

    with hollow_gpus():
        module = mx.mod.Module(mlp(), context=GPU)
        metric = mx.metric.create([Mine(), "ce"])
        module.fit(batches(), num_epoch=1, eval_metric=metric)
        assert metric.get()[1][0] == 41.0
        tasks = [t.op for t in module.memory_plan.problem.tasks]
        assert "_metric_hits" not in tasks and "_metric_chosen" in tasks
        module.fit(batches(), num_epoch=1, eval_metric="acc")  # another one: planned anew
        tasks = [t.op for t in module.memory_plan.problem.tasks]
        assert "_metric_hits" in tasks and "_metric_chosen" not in tasks


@needs_compiler
def test_an_update_apart_from_the_step_gives_the_same():
    _, want, _ = fit(CPU, fused_update=False)
    with recorded_gpus(late=0.1):
        module, got, _ = fit(GPU, fused_update=False)
        assert not module.is_fused
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-3, atol=2e-4, err_msg=name)


@needs_compiler
def test_batches_come_from_the_host_in_their_order():
    """Each step finds the batch it was given, though the next one is sent before it is over."""
    net = mlp()
    rng = np.random.default_rng(1)
    sent = [rng.standard_normal((4, 8)).astype("float32") for _ in range(9)]
    results = []
    for ctx in (CPU, GPU):
        with recorded_gpus(late=0.02, seed=3) as drivers:
            executor = bound(net, ctx, dict(data=(4, 8), softmax_label=(4,)))
            start = None
            outputs = []
            for k, x in enumerate(sent):
                if k == 4 and ctx is GPU:
                    get_engine().wait_all()
                    start = len(drivers[0].calls)
                executor.forward(is_train=bool(k % 3), data=mx.nd.array(x, ctx=CPU))
                outputs.append(executor.outputs[0].copy())
            get_engine().wait_all()
            if ctx is GPU:
                names = [c.name for c in drivers[0].calls[start:]]
                assert "synchronize" not in names and names.count("synchronize_event") <= 5 + 5
            results.append([get(o) for o in outputs])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_a_batch_goes_up_before_the_step_before_is_over():
    """Nothing waits for the compute stream, and the copy waits for what was taken, not for the whole step."""
    with hollow_gpus(late=0.0) as drivers:
        executor = bound(mlp(), GPU, dict(data=(4, 8), softmax_label=(4,)))
        device = executor._backend.device
        for _ in range(3):
            executor.forward_backward(data=mx.nd.zeros((4, 8), CPU))
        get_engine().wait_all()
        driver = drivers[0]
        start = len(driver.calls)
        executor.forward_backward(data=mx.nd.zeros((4, 8), CPU))
        get_engine().wait_all()
        # The staging block is free as soon as it was read, which is before the graph is launched.
        order = [
            (c.name, c.stream == device.compute)
            for c in driver.calls[start:]
            if c.name not in ("activate", "restore")
        ]
        assert order.index(("record", True)) < order.index(("launch_graph", True))
        assert order[0] == ("synchronize_event", False)  # the pinned buffer of two batches ago
        assert [o for o in order if o == ("copy", False)] == [("copy", False)]


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_that_nobody_takes_does_not_reach_the_next_owner_of_its_bytes(seed):
    with recorded_gpus(late=0.0, seed=seed) as drivers:
        backend = gpu_backend(0)
        device, var = backend.device, Var()
        block, to = backend.empty(2**20), backend.array((2**20,), np.dtype("uint8"))
        staging = Staging(block, var, {"data": to})
        staging.send([("data", np.full(2**20, 5, "uint8"))])
        address, _pinned = block.address, staging._pinned  # which waits for the copy where it ends first
        del staging, block
        gc.collect()
        other = backend.empty(2**20)
        assert other.address == address  # or this shows nothing
        device.fill_bytes(other, 9)
        found = get_after(device, other)
        drivers[0].driver.finish()
        assert (found == 9).all() and (get_after(device, other) == 9).all()


def get_after(device, array):
    """What is in an array when all kernels are done, whatever goes on elsewhere."""
    found = np.empty(array.nbytes, "uint8")
    device.download(found, array, device.mark())
    return found


def test_a_batch_on_the_gpu_is_copied_by_the_operation_of_its_step(monkeypatch):
    """Which is all that is pushed, also where it is of another type, or a part of a larger array."""
    rng = np.random.default_rng(1)
    sent = rng.standard_normal((6, 4, 8)).astype("float32")
    pushed, results = [], []
    for ctx in (CPU, GPU):
        with recorded_gpus(late=0.02, seed=3):
            executor = bound(mlp(), ctx, dict(data=(4, 8), softmax_label=(4,)))
            batches = mx.nd.array(sent, ctx=ctx)
            wide = mx.nd.array(sent[5], ctx=ctx, dtype="float64")
            engine = get_engine()
            push = type(engine).push
            with monkeypatch.context() as m:

                def noted(*args, push=push, **how):
                    pushed.append(how.get("name"))
                    push(*args, **how)

                m.setattr(type(engine), "push", noted)
                outputs = []
                for k in range(6):
                    batch = batches[k] if k < 5 else wide
                    engine.wait_all()
                    pushed.clear()
                    executor.forward_backward(data=batch)
                    if ctx is GPU:
                        assert len(pushed) == 1, pushed
                    batch[:] = 0  # comes after the step has read it
                    outputs.append(executor.outputs[0].copy())
                results.append([get(o) for o in outputs])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("of", [CPU, GPU], ids=str)
def test_a_batch_that_failed_is_told_and_the_next_one_counts_again(of):
    def failed():
        x = mx.nd.zeros((4, 8), of)
        get_engine().push(lambda: 1 / 0, (), (x.var,), name="spoilt")
        return x

    with recorded_gpus():
        executor = bound(mlp(), GPU, dict(data=(4, 8), softmax_label=(4,)))
        good = mx.nd.ones((4, 8), of)
        want = get(executor.forward_backward(data=good)[0])
        for _ in range(2):  # before there is a graph, and with one
            executor.forward_backward(data=failed())
            with pytest.raises(mx.MXLiteError, match="spoilt"):
                get(executor.outputs[0])
            assert np.array_equal(get(executor.forward_backward(data=good)[0]), want)


# -- metrics -------------------------------------------------------------------------------------------------


def arrays(ctx, label, pred):
    """Both on a device, as NDArrays."""
    made = []
    for values in (label, pred):
        made.append(mx.nd.NDArray.fresh(values.shape, values.dtype, ctx))
        put(made[-1], values)
    return made


def metrics():
    return [
        mx.metric.Accuracy(), mx.metric.CrossEntropy(), mx.metric.Perplexity(None), mx.metric.Perplexity(2),
        mx.metric.Loss(), mx.metric.TopKAccuracy(2), mx.metric.MSE(), mx.metric.F1(),
    ]  # fmt: skip


def predictions(kind, rows, classes, dtype="float32"):
    rng = np.random.default_rng(rows)
    scores = rng.integers(0, 4, (rows, classes)) if kind == "ties" else rng.random((rows, classes))
    scores = (scores + 0.01).astype(dtype)
    labels = rng.integers(0, min(classes, 3), rows).astype("float32")
    if kind == "nan":
        scores[rows // 2, classes // 2] = np.nan
        labels[rows // 2] = classes // 2
    return labels, scores


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "rows", "classes"),
    [
        ("plain", 7, 5),
        ("ties", 50, 70),
        ("nan", 3, 3),
        ("nan", 5, 80),
        ("plain", 1, 1),
        ("ties", 300, 3),
        ("plain", 40, 33),
    ],
)
def test_sums_on_the_device_are_the_metrics(kind, rows, classes):
    label, pred = predictions(kind, rows, classes)
    apart = (
        (mx.metric.MSE, mx.metric.F1)
        if kind != "ties"
        else (mx.metric.MSE, mx.metric.F1, mx.metric.TopKAccuracy)
    )
    kept = [m for m in metrics() if not isinstance(m, apart)]
    if classes == 1:
        label[:] = 0
    with recorded_gpus(late=0.3):
        y, x = arrays(GPU, label, pred)
        for metric in kept:
            direct = type(metric)(**{k: v for k, v in metric._kwargs.items() if k != "has_global_stats"})
            for _ in range(3):
                direct.update([mx.nd.array(label, CPU)], [mx.nd.array(pred, CPU)])
                metric.update_later({"l": y}, {"p": x})
            assert metric.num_inst == direct.num_inst
            np.testing.assert_allclose(metric.get()[1], direct.get()[1], rtol=2e-6, err_msg=metric.name)


@needs_compiler
def test_only_numbers_are_fetched_and_only_when_somebody_asks():
    label, pred = predictions("plain", 64, 10)
    with recorded_gpus() as drivers:
        y, x = arrays(GPU, label, pred)
        metric = mx.metric.create(["acc", "ce"])
        start = len(drivers[0].calls)
        for _ in range(4):
            metric.update_later({"l": y}, {"p": x})
        get_engine().wait_all()
        assert not {"copy", "synchronize"} & {c.name for c in drivers[0].calls[start:]}
        metric.get()
        moved = [c.addresses[0][1] for c in drivers[0].calls[start:] if c.name == "copy"]
        assert moved == [32, 32]


@pytest.mark.parametrize("metric", metrics(), ids=lambda m: m.name)
def test_a_sum_that_is_left_to_the_engine_is_the_sum(metric):
    label, pred = predictions("plain", 6, 2)
    label = np.minimum(label, 1)
    if isinstance(metric, mx.metric.MSE):
        pred = label + 1
    y, x = arrays(CPU, label, pred)
    direct = type(metric)(**{k: v for k, v in metric._kwargs.items() if k != "has_global_stats"})
    for k in range(5):
        metric.update_later({"l": y}, {"p": x})
        direct.update([y], [x])
        if k == 2:
            metric.reset_local()
            direct.reset_local()
    assert metric.get() == direct.get() and metric.get_global() == direct.get_global()
    metric.update_later({"l": y}, {"p": x})
    metric.reset()
    assert metric.num_inst == 0 and np.isnan(metric.get()[1])


def test_nobody_waits_for_a_batch_but_no_more_than_two_are_under_way():
    label, pred = arrays(CPU, *predictions("plain", 6, 3))
    measured, gate = [], threading.Event()

    def slow(y, x):
        assert gate.wait(10)
        measured.append(1)
        return 1.0, 1

    tally_ = Tally()
    tally_.add(slow, label, pred)
    tally_.add(slow, label, pred)
    assert not measured
    threading.Timer(0.05, gate.set).start()
    tally_.add(slow, label, pred)
    assert measured
    assert tally_.take() == (3.0, 3) and tally_.take() == (0, 0)


def test_a_failure_shows_where_the_value_is_asked_for_and_not_again():
    metric = mx.metric.CrossEntropy()
    label, pred = predictions("plain", 6, 3)
    y, x = arrays(CPU, label + 7, pred)
    metric.update_later({"l": y}, {"p": x})
    y, x = arrays(CPU, label, pred)
    metric.update_later({"l": y}, {"p": x})  # which does not hide it
    with pytest.raises(OperatorError, match="labels run from"):
        metric.get()
    metric.reset()
    metric.update_later({"l": y}, {"p": x})
    assert metric.num_inst == 6


def test_a_metric_with_an_update_of_its_own_is_asked_at_once():
    class Mine(mx.metric.Accuracy):
        def update(self, labels, preds):
            self._add(41.0, 1)

    metric = Mine()
    metric.update_later({"l": None}, {"p": None})
    assert metric.get()[1] == 41.0


# -- what else looks at programs -----------------------------------------------------------------------------


class Twice(mx.operator.CustomOp):
    """An operator that will always run on the host."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)


@mx.operator.register("twice_on_the_host")
class TwiceProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Twice()


def test_what_stays_outside_of_graphs_is_told(caplog):
    net = mx.sym.BlockGrad(mx.sym.Custom(mx.sym.Variable("data"), op_type="twice_on_the_host"))
    with hollow_gpus(), caplog.at_level(logging.INFO, "mxlite"):
        executor = net.simple_bind(GPU, data=(2, 3, 3))
        put(executor.arg_dict["data"], np.eye(3))
        for _ in range(3):
            executor.forward()
        get_engine().rest()
        text = executor.debug_str()
    assert "outside of CUDA graphs" in text and "runs on the host" in text


def test_the_profiler_sees_each_call_with_device_times():
    with hollow_gpus():
        executor = bound(mlp(), GPU, dict(data=(4, 8), softmax_label=(4,)))
        executor.forward_backward()
        executor._training_program()
        seen = []
        whole = executor._train.whole
        run = whole.operation((), ()).timed(lambda sheet, first, stamps: seen.append((first, stamps)))
        get_engine().rest()
        run()
        ((first, stamps),) = seen
        assert first == 0 and len(stamps) == len(whole.calls) + 1 and stamps == sorted(stamps)


def buckets(ctx):
    """A BucketingModule that averages over as many rows as its bucket has, and batches for it."""

    def sym_gen(key):
        data = mx.sym.Variable("data")
        pooled = mx.sym.mean(data, axis=1)
        out = mx.sym.FullyConnected(pooled, num_hidden=3, name="fc")
        return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)

    class Batches(list):
        provide_data, provide_label = [("data", (2, 6, 4))], [("softmax_label", (2,))]

        def reset(self):
            pass

    rng, found = np.random.default_rng(0), Batches()
    for key in (6, 3, 6, 4, 3, 6, 6):
        data = mx.nd.array(rng.standard_normal((2, key, 4)), CPU)
        label = mx.nd.array(rng.integers(0, 3, 2), CPU)
        shapes = {"provide_data": [("data", (2, key, 4))], "provide_label": [("softmax_label", (2,))]}
        found.append(mx.io.DataBatch([data], [label], bucket_key=key, **shapes))
    return mx.mod.BucketingModule(sym_gen, default_bucket_key=6, context=ctx), found


@needs_compiler
@pytest.mark.parametrize("late", [0.0, 0.5])
def test_steps_of_all_buckets_add_to_the_same_metrics(late):
    def run(ctx):
        mx.random.seed(1)
        module, data = buckets(ctx)
        seen = []
        module.fit(
            data, num_epoch=2, eval_metric=["acc", "ce"], optimizer_params={"learning_rate": 0.5},
            arg_params=parameters(fc_weight=(3, 4), fc_bias=(3,)), aux_params={},
            batch_end_callback=lambda p: seen.append([v for _, v in p.eval_metric.get_name_value()]),
        )  # fmt: skip
        return module, seen

    _, want = run(CPU)
    with recorded_gpus(late=late):
        module, got = run(GPU)
        for key in (6, 3, 4):
            tasks = [t.op for t in module._buckets[key].memory_plan.problem.tasks]
            assert {"_metric_hits", "_metric_chosen"} <= set(tasks), key
        assert module.measured_bytes == module.planned_bytes
    np.testing.assert_allclose(got, want, rtol=1e-4)


def test_nothing_is_put_behind_the_step_of_a_bucket():
    with hollow_gpus() as drivers:
        module, data = buckets(GPU)
        start, seen = [0], []

        def look(param):
            get_engine().rest()
            calls = drivers[0].calls
            seen.append([c.name for c in calls[start[0] :]])
            start[0] = len(calls)

        module.fit(data, num_epoch=3, eval_metric=["acc", "ce"], batch_end_callback=look)
        for names in seen[-6:]:  # every bucket has its graph by then
            assert names.count("launch_graph") == 1 and "launch" not in names, names


@needs_compiler
def test_buckets_share_an_arena_on_the_gpu():
    def train(ctx):
        mx.random.seed(1)
        module, data = buckets(ctx)
        module.bind([("data", (2, 6, 4))], [("softmax_label", (2,))])
        module.init_params(arg_params=parameters(fc_weight=(3, 4), fc_bias=(3,)), aux_params={})
        module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
        for batch in data:
            module.forward_backward(batch)
            module.update()
        return {n: a.asnumpy() for n, a in module.get_params()[0].items()}

    want = train(CPU)
    with recorded_gpus(late=0.1):
        got = train(GPU)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)
