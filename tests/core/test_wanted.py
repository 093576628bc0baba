"""Arguments of the wrong kind are named where they are given, by what was wanted and what was found."""

from __future__ import annotations

import numpy as np
import pytest

import mxlite as mx
from mxlite.core.errors import ArgumentError, MXLiteError
from mxlite.core.wanted import found, number, wanted, wanted_names, whole
from tests.networks.small_networks import mlp


def data():
    return mx.io.NDArrayIter(np.ones((4, 8), "float32"), np.zeros(4), 2)


def module():
    made = mx.mod.Module(mlp())
    made.bind(data().provide_data, data().provide_label)
    made.init_params()
    made.init_optimizer()
    return made


def buckets():
    made = mx.mod.BucketingModule(lambda key: (mlp(), ("data",), ("softmax_label",)), 1)
    made.bind(data().provide_data, data().provide_label)
    made.init_params()
    made.init_optimizer()
    return made


def row():
    made = mx.mod.SequentialModule()
    made.add(mx.mod.Module(mlp()), take_labels=True)
    made.bind(data().provide_data, data().provide_label)
    made.init_params()
    made.init_optimizer()
    return made


def batch(arrays, label=None):
    return type("Batch", (), {"data": arrays, "label": label})


def arrays():
    shapes = dict(zip(mlp().list_arguments(), mlp().infer_shape(data=(2, 8))[0]))
    return {n: mx.nd.zeros(s) for n, s in shapes.items()}


def bound():
    return mlp().simple_bind(mx.cpu(), data=(2, 8))


MODULES = {
    "fit: train_data": lambda m, x: m.fit(x, num_epoch=1),
    "fit: eval_data": lambda m, x: m.fit(data(), eval_data=x, num_epoch=1),
    "fit: num_epoch": lambda m, x: m.fit(data(), num_epoch=x),
    "fit: begin_epoch": lambda m, x: m.fit(data(), num_epoch=1, begin_epoch=x),
    "fit: batch_end_callback": lambda m, x: m.fit(data(), num_epoch=1, batch_end_callback=x),
    "fit: epoch_end_callback": lambda m, x: m.fit(data(), num_epoch=1, epoch_end_callback=x),
    "fit: monitor": lambda m, x: m.fit(data(), num_epoch=1, monitor=x),
    "score: eval_data": lambda m, x: m.score(x, "acc"),
    "score: num_batch": lambda m, x: m.score(data(), "acc", num_batch=x),
    "predict: eval_data": lambda m, x: m.predict(x),
    "forward: the batch": lambda m, x: m.forward(x),
    "update_metric: eval_metric": lambda m, x: m.update_metric(x, []),
    "init_params: initializer": lambda m, x: m.init_params(x, force_init=True),
    "Given parameters": lambda m, x: m.set_params(x, {}),
    "init_optimizer: optimizer": lambda m, x: m.init_optimizer(optimizer=x, force_init=True),
    "init_optimizer: kvstore": lambda m, x: m.init_optimizer(kvstore=x, force_init=True),
    "install_monitor: mon": lambda m, x: m.install_monitor(x),
}


@pytest.fixture(scope="module", params=[module, buckets, row], ids=lambda f: f.__name__)
def any_module(request):
    return request.param()


@pytest.mark.parametrize("name", MODULES)
def test_modules_name_what_they_were_given(any_module, name):
    for value in (object(), [object()]):
        with pytest.raises(ArgumentError, match=rf"^{name}\b.* must be .*, got (object|list)"):
            MODULES[name](any_module, value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: module().fit(None, num_epoch=1), "train_data must be a DataIter, got None"),
        (lambda: module().forward(None), "the batch must be a DataBatch, got None"),
        (lambda: module().forward(batch(mx.nd.ones((2, 8)))), "batch's data must be a list of NDArrays"),
        (lambda: module().forward(batch([None])), "batch must be an NDArray, got None"),
        (lambda: module().forward(batch([mx.nd.ones((2, 8))], np.ones(2))), "label must be a list of NDArr"),
        (lambda: module().set_params({"fc1_weight": 3}, {}, True), "value of 'fc1_weight' must be an NDA"),
        (lambda: mx.mod.Module(None), "Module: symbol must be a Symbol, got None"),
        (lambda: mx.mod.Module(mlp(), data_names="data"), "data_names must be a list of names, got 'data'"),
        (lambda: mx.mod.Module(mlp(), label_names=[3]), "label_names must be a list of names, got 3 in it"),
        (lambda: mx.mod.Module(mlp(), context="cpu"), "context must be a device such as .*, got 'cpu'"),
        (lambda: mx.mod.BucketingModule(None, 1), "sym_gen must be a function, got None"),
        (lambda: mx.mod.BucketingModule(lambda key: mlp(), 1), r"sym_gen\(1\) must give .*, got Symbol"),
        (lambda: mx.mod.SequentialModule().add(mlp()), "module must be a module, got Symbol"),
        (lambda: mx.io.ResizeIter(None, 2), "data_iter must be a DataIter, got None"),
        (lambda: mx.io.PrefetchingIter([None]), "iters must be DataIters, got None"),
        (lambda: mx.io.DataDesc("data", 3), "DataDesc: shape must be a tuple of whole numbers, got 3"),
        (lambda: mx.io.CSVIter(None, (2,), 2), "The file to read must be the name of a file, got None"),
        (lambda: mx.recordio.MXRecordIO(None, "r"), "uri must be the name of a file, got None"),
        (lambda: mx.recordio.pack((1, 2), b""), r"header must be .*, got \(1, 2\)"),
        (lambda: mx.rnn.BucketSentenceIter(None, 2), "sentences must be a list of lists of numbers"),
        (lambda: mx.metric.Accuracy().update_dict([], {}), r"label must be a dict .*, got \[\]"),
        (lambda: mx.metric.Accuracy().update(None, None), "an array of numbers, got None"),
        (
            lambda: mx.metric.CompositeEvalMetric(metrics="acc"),
            "metrics must be a list of metrics, got 'acc'",
        ),
        (lambda: mx.metric.CustomMetric(None), "feval must be a function, got None"),
        (lambda: mx.optimizer.SGD(sym=3), "sym must be a Symbol, got 3"),
        (lambda: mx.optimizer.SGD(learning_rate="fast"), "learning_rate must be a number, got 'fast'"),
        (lambda: mx.optimizer.SGD().set_lr_mult([1]), r"set_lr_mult must be a dict .*, got \[1\]"),
        (
            lambda: mx.optimizer.SGD().update(0, mx.nd.ones(2), None, None),
            "grad must be an NDArray, got None",
        ),
        (lambda: mx.optimizer.get_updater("sgd"), "optimizer must be an Optimizer, got 'sgd'"),
        (lambda: mx.lr_scheduler.FactorScheduler(2, base_lr=None), "base_lr must be a number, got None"),
        (lambda: mx.lr_scheduler.FactorScheduler(2)(None), "num_update must be a whole number of updates"),
        (lambda: mx.init.Xavier()("w_weight", None), "Xavier is to fill must be an NDArray, got None"),
        (lambda: mx.init.Uniform("small"), "scale must be a number, got 'small'"),
        (lambda: mx.init.Mixed([".*"], [None]), "initializers must be a list of initializers, got None"),
        (lambda: mx.callback.do_checkpoint(None), "prefix must be the name of a file, got None"),
        (lambda: mx.callback.Speedometer(None), "batch_size must be a number, got None"),
        (lambda: mx.callback.Speedometer(4)(None), "param must be a BatchEndParam, got None"),
        (lambda: mx.kv.create().init("a", None), "value of 'a' must be an NDArray, got None"),
        (lambda: mx.kv.create().set_optimizer(None), "optimizer must be an Optimizer, got None"),
        (lambda: mx.mon.Monitor(None), "interval must be a whole number, got None"),
        (lambda: mx.nd.load(None), "fname must be the name of a file, got None"),
        (lambda: mx.nd.save(3, []), "The file to write must be the name of a file, got 3"),
        (lambda: mx.sym.load(None), "fname must be the name of a file, got None"),
        (lambda: mx.sym.Group(None), "symbols must be a list of Symbols, got None"),
        (lambda: mx.sym.var("a", init=3), "'a': init must be an Initializer or its text, got 3"),
        (lambda: mx.model.save_checkpoint("a", 1, None, None, {}), "arg_params must be a dict .*, got None"),
        (lambda: mx.rnn.LSTMCell(None), "num_hidden must be a whole number, got None"),
        (lambda: mx.rnn.SequentialRNNCell().add(None), "cell must be an RNN cell, got None"),
        (lambda: mlp().bind(mx.cpu(), 3), "args must be a list or a dict of NDArrays, got 3"),
        (lambda: mlp().bind(mx.cpu(), {**arrays(), "data": None}), "'data' must be an NDArray, got None"),
        (lambda: mlp().bind(mx.cpu(), arrays(), shared_exec=3), "shared_exec must be an Executor, got 3"),
        (lambda: mlp().simple_bind(mx.cpu(), data=(2, 8)).copy_params_from(3), "must be a dict .*, got 3"),
        (
            lambda: mlp().simple_bind(mx.cpu(), data=(2, 8)).set_monitor_callback(3),
            "must be a function, got 3",
        ),
        (lambda: mx.autograd.backward(None), "an NDArray or a list of them, got None"),
        (lambda: mx.random.seed("now"), "seed must be a number, got 'now'"),
    ],
)
def test_what_is_of_the_wrong_kind_is_named(call, text):
    with pytest.raises((TypeError, MXLiteError), match=text):
        call()


def test_backward_names_gradients_that_are_no_list():
    x = mx.sym.Variable("x") * 2
    executor = x.simple_bind(mx.cpu(), x=(2,))
    executor.forward(is_train=True)
    with pytest.raises(ArgumentError, match="out_grads must be a list of NDArrays, got 3"):
        executor.backward(3)


def test_whole_numbers_and_numbers():
    assert whole("n", np.int64(3), 1) == 3 and number("x", "0.5") == 0.5
    for value in (True, 2.0, np.ones(3), None):
        with pytest.raises(ArgumentError, match="n must be a whole number, got"):
            whole("n", value, 1)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        whole("n", 0, 1)
    with pytest.raises(ValueError, match="x must be finite, got nan"):
        number("x", float("nan"))


def test_names_come_as_a_list():
    assert wanted_names("names", None) == [] and wanted_names("names", ("a", "b")) == ["a", "b"]


def test_long_values_are_told_by_their_type():
    assert [found(x) for x in (None, 3, "a", [1], list(range(99)), np.ones(3))] == [
        "None", "3", "'a'", "[1]", "list", "ndarray"
    ]  # fmt: skip
    assert wanted("x", 3, "a number", int) == 3
