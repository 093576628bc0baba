"""Programs for MXNet's older interfaces: FeedForward, Monitor, KVStore, SequentialModule, cells in training.

As in `mxnet_programs.py` each gets the framework as `mx` and gives the numbers that it would print.
`python -m tests.oracles.mxnet.mxnet_interfaces mxnet FILE` writes what MXNet gives:
tests/golden/mxnet/interfaces.json.
"""

import importlib
import json
import logging
import os
import sys
import tempfile
import warnings

import numpy as np

from tests.oracles.mxnet.mxnet_programs import digest, digests, perceptron, random_parameters, samples


def feed_forward_on_iterators(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,))
    weights, _ = random_parameters(mx, net, data=(8, 10))
    seen = []
    model = mx.model.FeedForward(
        symbol=net,
        ctx=mx.cpu(),
        num_epoch=3,
        learning_rate=0.1,
        momentum=0.9,
        wd=0.001,
        arg_params=dict(weights, unknown=mx.nd.ones((2,))),
        allow_extra_params=True,
    )
    model.fit(
        X=mx.io.NDArrayIter(x, y, batch_size=8),
        eval_data=mx.io.NDArrayIter(x[:20], y[:20], batch_size=8),
        eval_metric="ce",
        batch_end_callback=lambda p: seen.append([p.epoch, p.nbatch, p.eval_metric.get()[1]]),
        epoch_end_callback=mx.callback.do_checkpoint(os.path.join(folder, "ff"), period=2),
        eval_end_callback=lambda p: seen.append([p.epoch, p.nbatch, p.eval_metric.get()[1]]),
    )
    held_out = mx.io.NDArrayIter(x[:20], y[:20], batch_size=8)
    predicted, data, label = model.predict(held_out, return_data=True)
    assert isinstance(predicted, np.ndarray) and predicted.shape == (20, 3) and data.shape == (20, 10)
    model.save(os.path.join(folder, "ff"))
    files = sorted(os.listdir(folder))
    assert files == ["ff-0002.params", "ff-0003.params", "ff-symbol.json"], files
    again = mx.model.FeedForward.load(os.path.join(folder, "ff"), 2, num_epoch=3, learning_rate=0.05)
    again.fit(mx.io.NDArrayIter(x, y, batch_size=8))
    found = [v for row in seen for v in row] + digests(model.arg_params) + digest(predicted) + digest(label)
    found += [model.score(held_out), *model.score(held_out, ["acc", "ce"], num_batch=2)]
    return found + digests(again.arg_params) + digest(again.predict(x[:5])) + [again.begin_epoch]


def feed_forward_epochs_of_so_many_batches(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,), count=40)
    weights, _ = random_parameters(mx, net, data=(8, 10))
    seen = []
    model = mx.model.FeedForward.create(
        net,
        X=mx.io.NDArrayIter(x, y, batch_size=8),
        num_epoch=4,
        epoch_size=3,
        optimizer=mx.optimizer.Adam(learning_rate=0.01, rescale_grad=1 / 8),
        arg_params=weights,
        kvstore=mx.kv.create("local"),
        batch_end_callback=[lambda p: seen.append(p.nbatch)],
    )
    return [*seen, *digests(model.arg_params)]


def feed_forward_on_arrays(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,))
    weights, _ = random_parameters(mx, net, data=(8, 10))
    model = mx.model.FeedForward(
        net, num_epoch=2, numpy_batch_size=24, learning_rate=0.2, arg_params=weights, optimizer="nag"
    )
    model.fit(x, y.reshape(24, 1), eval_data=(x.tolist(), y.tolist()))  # one batch: order is no matter
    return digests(model.arg_params) + digest(model.predict(mx.nd.array(x[:5])))


def feed_forward_with_buckets(mx, folder):
    """Not among PROGRAMS: MXNet 1.9.1 fails where it shares the arrays of buckets of several lengths."""

    def net(length):
        words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=9, output_dim=4, name="embed")
        total = mx.sym.sum(words, axis=1) * (1.0 / length)
        out = mx.sym.FullyConnected(total, num_hidden=3, name="out")
        return mx.sym.SoftmaxOutput(out, mx.sym.Variable("softmax_label"), name="softmax")

    class Sentences(mx.io.DataIter):
        def __init__(self):
            super().__init__()
            self.batch_size, self.default_bucket_key = 4, 6
            self.provide_data, self.provide_label = [("data", (4, 6))], [("softmax_label", (4,))]

        def __iter__(self):
            draw = np.random.RandomState(2)
            for length in (6, 3, 6, 3, 3):
                words, label = (
                    mx.nd.array(draw.randint(0, 9, (4, length))),
                    mx.nd.array(draw.randint(0, 3, 4)),
                )
                yield mx.io.DataBatch(
                    [words],
                    [label],
                    pad=0,
                    bucket_key=length,
                    provide_data=[("data", (4, length))],
                    provide_label=[("softmax_label", (4,))],
                )

        def reset(self):
            pass

    weights, _ = random_parameters(mx, net(6), data=(4, 6))
    model = mx.model.FeedForward(net, num_epoch=2, learning_rate=0.5, arg_params=weights)
    model.fit(Sentences(), eval_metric="ce")
    return digests(model.arg_params)


# MXNet also shows the gradient of the data, which Module does not ask for and mxlite does not compute.
MONITORED = ".*fc2.*|fc1_(?!backward_output0)|relu1_output|softmax_backward_output0"


def monitored(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,))
    weights, _ = random_parameters(mx, net, data=(8, 10))
    lines = []

    class Lines(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith("Batch:"):
                lines.append(record.getMessage().split()[1:])

    handler, level = Lines(), logging.getLogger().level
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    try:
        module = mx.mod.Module(net)
        module.fit(
            mx.io.NDArrayIter(x, y, 8),
            num_epoch=2,
            optimizer_params={"learning_rate": 0.1},
            arg_params=weights,
            monitor=mx.mon.Monitor(2, pattern=MONITORED, sort=True),
        )
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger().setLevel(level)
    return [[int(step), name, round(float(value), 5)] for step, name, value in lines]


def monitored_by_hand(mx, folder):
    data = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=2, pad=(1, 1), name="conv")
    data = mx.sym.Activation(mx.sym.BatchNorm(data, fix_gamma=False, name="bn"), act_type="relu", name="relu")
    skip = mx.sym.Pooling(data, kernel=(2, 2), stride=(2, 2), pool_type="avg", name="pool")
    deep = mx.sym.Convolution(data, kernel=(2, 2), stride=(2, 2), num_filter=2, name="deep")
    with mx.name.NameManager():
        both = skip + deep
    out = mx.sym.FullyConnected(mx.sym.Flatten(both, name="flat"), num_hidden=3, name="fc")
    net = mx.sym.SoftmaxOutput(out, name="softmax")
    bound = net.simple_bind(mx.cpu(), data=(4, 1, 4, 4))
    draw = np.random.RandomState(3)
    for name, array in list(bound.arg_dict.items()) + list(bound.aux_dict.items()):
        array[:] = 1 if name.endswith("var") else draw.rand(*array.shape)
    bound.arg_dict["softmax_label"][:] = [0, 1, 2, 1]
    monitor = mx.mon.Monitor(
        1, stat_func=lambda a: [mx.nd.max(a), mx.nd.sum(a)], pattern="(?!.*(workspace|_mean|_var))"
    )
    monitor.install(bound)
    monitor.tic()
    bound.forward(is_train=True)
    bound.backward()
    found = monitor.toc()
    assert not monitor.toc()
    monitor.tic()
    bound.forward(is_train=False)
    found += monitor.toc()
    wanted = [
        f"{n}_output" for n in ("conv", "bn", "relu", "pool", "deep", "_plus0", "flat", "fc", "softmax")
    ]
    nodes = ("pool", "flat", "fc", "deep", "relu", "bn", "conv")
    wanted += [f"{n}_backward_output{i}" for n in nodes for i in ("", 0, 1, 2)] + [
        "conv_weight",
        "softmax_label",
    ]
    return [
        [step, name, *(round(float(v), 4) for v in numbers.split())]
        for step, name, numbers in found
        if name in wanted
    ]


def key_values(mx, folder):
    result = []
    store = mx.kv.create("device")
    store.init(3, mx.nd.ones((2, 3)) * 2)
    out = mx.nd.zeros((2, 3))
    store.push(3, [mx.nd.ones((2, 3)) * i for i in range(4)])
    store.pull(3, out=out)
    result += [store.type, store.rank, store.num_workers, *digest(out)]
    store.init([5, 7], [mx.nd.ones((2,)), mx.nd.ones((2,))])

    def update(key, pushed, stored):
        stored += pushed * 2 * key

    store._set_updater(update)
    store.push([5, 7], [[mx.nd.ones((2,))] * 3, mx.nd.ones((2,))])
    store.push([7, 7], [mx.nd.ones((2,)), mx.nd.ones((2,))])
    outs = [mx.nd.zeros((2,)) for _ in range(3)]
    store.pull([5, 7], out=[outs[:2], outs[2]])
    result += [v for o in outs for v in digest(o)]
    store = mx.kvstore.create("local")
    store.init("w", mx.nd.ones((2,)))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    gradient = mx.nd.ones((2,))
    store.push("w", gradient)
    store.save_optimizer_states(os.path.join(folder, "states"))
    store.pushpull("w", gradient, out=outs[0])
    store.load_optimizer_states(os.path.join(folder, "states"))
    store.pushpull("w", mx.nd.ones((2,)), out=outs[1])
    return result + digest(outs[0]) + digest(outs[1])


def module_with_a_store(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,))
    weights, _ = random_parameters(mx, net, data=(8, 10))
    store = mx.kv.create("local")
    module = mx.mod.Module(net)
    module.fit(
        mx.io.NDArrayIter(x, y, 8),
        num_epoch=2,
        kvstore=store,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.02, "wd": 0.01},
        arg_params=weights,
    )
    out = mx.nd.zeros((8, 10))
    store.pull("fc1_weight", out=out)
    return digests(module.get_params()[0]) + digest(out)


def modules_in_a_row(mx, folder):
    (x, y), draw = samples((10,)), np.random.RandomState(4)
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), name="fc1", num_hidden=8)
    first = mx.sym.Activation(first, name="relu1", act_type="relu")
    second = mx.sym.FullyConnected(mx.sym.Variable("features"), name="fc2", num_hidden=3)
    second = mx.sym.SoftmaxOutput(second, name="softmax")
    row = mx.mod.SequentialModule()
    row.add(mx.mod.Module(first, label_names=[])).add(
        mx.mod.Module(second, data_names=["features"]), take_labels=True, auto_wiring=True
    )
    shapes = {"fc1_weight": (8, 10), "fc1_bias": (8,), "fc2_weight": (3, 8), "fc2_bias": (3,)}
    weights = {n: mx.nd.array(draw.rand(*s) - 0.5) for n, s in shapes.items()}
    train = mx.io.NDArrayIter(x, y, 8)
    row.fit(train, num_epoch=2, optimizer_params={"learning_rate": 0.1, "momentum": 0.9}, arg_params=weights)
    score = [v for _, v in row.score(train, ["acc", "ce"])]
    names = [row.data_names, row.output_names, [list(s) for _, s in row.output_shapes]]
    return [names, *digests(row.get_params()[0]), *score, *digest(row.predict(train))]


def loss_in_python(mx, folder):
    (x, y), draw = samples((10,)), np.random.RandomState(4)

    def hinge(scores, labels):
        scores, labels = scores.asnumpy(), labels.asnumpy().astype(int)
        margin = 1 + scores - scores[np.arange(len(labels)), labels][:, None]
        margin[np.arange(len(labels)), labels] = 0
        grad = (margin > 0).astype("float32")
        grad[np.arange(len(labels)), labels] -= grad.sum(axis=1)
        return grad

    net = mx.sym.FullyConnected(mx.sym.Variable("data"), name="fc1", num_hidden=3)
    row = mx.mod.SequentialModule()
    row.add(mx.mod.Module(net, label_names=[]))
    row.add(mx.mod.PythonLossModule(grad_func=hinge), take_labels=True, auto_wiring=True)
    weights = {"fc1_weight": mx.nd.array(draw.rand(3, 10) - 0.5), "fc1_bias": mx.nd.zeros((3,))}
    row.fit(
        mx.io.NDArrayIter(x, y, 8), num_epoch=2, optimizer_params={"learning_rate": 0.1}, arg_params=weights
    )
    return digests(row.get_params()[0])


def language_model(mx, folder):
    """The word language model of MXNet's examples: buckets of unrolled cells, and their checkpoints."""
    draw = np.random.RandomState(7)
    sentences = [list(draw.randint(1, 9, length)) for length in (2, 3) * 4]
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(num_hidden=5, prefix="lstm_l0_"))
    stack.add(mx.rnn.GRUCell(num_hidden=5, prefix="gru_l1_"))

    def unroll(length):
        words = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=9, output_dim=4, name="embed")
        stack.reset()
        outputs, _ = stack.unroll(length, inputs=words, merge_outputs=True)
        scores = mx.sym.FullyConnected(mx.sym.Reshape(outputs, shape=(-1, 5)), num_hidden=9, name="pred")
        label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
        return mx.sym.SoftmaxOutput(scores, label, name="softmax"), ("data",), ("softmax_label",)

    import random

    random.seed(1)
    np.random.seed(1)
    data = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[2, 3], invalid_label=0)
    weights, _ = random_parameters(mx, unroll(3)[0], data=(4, 3), softmax_label=(4, 3))
    prefix = os.path.join(folder, "lm")
    model = mx.mod.BucketingModule(unroll, default_bucket_key=data.default_bucket_key)
    random.seed(2)
    np.random.seed(2)
    data.reset()
    model.fit(
        data,
        eval_metric=mx.metric.Perplexity(0),
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1},
        arg_params=weights,
        num_epoch=2,
        epoch_end_callback=mx.rnn.do_rnn_checkpoint(stack, prefix, 2),
    )
    saved = mx.nd.load(f"{prefix}-0002.params")
    _, packed, _ = mx.rnn.load_rnn_checkpoint(stack, prefix, 2)
    trained = model.get_params()[0]
    assert sorted(packed) == sorted(trained)
    assert all((packed[n].asnumpy() == trained[n].asnumpy()).all() for n in trained)
    return [sorted(saved), *digests(trained)]


def executor_of_another_size(mx, folder):
    """A reshaped executor, whose smaller arrays are the first elements of the others."""
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=4)
    large = net.simple_bind(mx.cpu(), x=(5, 4), grad_req="write")
    large.arg_arrays[0][:] = mx.nd.arange(20).reshape((5, 4))
    large.arg_arrays[1][:] = 1
    large.grad_arrays[0][:] = 7
    small = large.reshape(x=(3, 4))
    found = [small.arg_arrays[0].asnumpy().tolist(), small.grad_arrays[0].asnumpy().tolist()]
    small.arg_arrays[0][0] = 100
    small.forward(is_train=False)
    found += [large.arg_arrays[0].asnumpy().tolist(), large.outputs[0].asnumpy()[:3].tolist()]
    large.forward(is_train=False)
    found.append(large.outputs[0].asnumpy().tolist())
    small.forward(is_train=True)
    small.backward(mx.nd.ones((3, 4)))
    found.append(large.grad_arrays[0].asnumpy().tolist())
    larger = large.reshape(allow_up_sizing=True, x=(6, 4))
    larger.arg_arrays[0][:] = 0
    return [*found, large.arg_arrays[0].asnumpy().tolist(), larger.arg_arrays[1].asnumpy().tolist()]


def histograms(mx, folder):
    """Counts and edges, of arrays and of symbols."""
    x, edges = mx.nd.array([[0.1, 0.2, 0.9], [1, 2, -1]]), mx.nd.array([0, 0.15, 1])
    data, bins = mx.sym.Variable("data"), mx.sym.Variable("bins")
    equal = mx.sym.histogram(data, 4, (0, 1))
    given = mx.sym.histogram(data, bins, name="given")
    made = [
        mx.nd.histogram(x, 4, (0, 1)),
        mx.nd.histogram(x, edges),
        equal.bind(mx.cpu(), {"data": x}).forward(),
        given.bind(mx.cpu(), {"data": x, "bins": edges}).forward(),
    ]
    found = [[np.dtype(a.dtype).name, a.asnumpy().tolist()] for pair in made for a in pair]
    return [found, given.list_outputs(), list(given.infer_shape(data=(3, 4), bins=(5,))[1])]


def rows_with_rates(mx, folder):
    """GroupAdaGrad on dense and row_sparse gradients."""
    found = []
    for stype in ("default", "row_sparse"):
        for options in ({}, {"rescale_grad": 0.5, "clip_gradient": 0.4, "eps": 0.1}):
            optimizer = mx.optimizer.create("groupadagrad", learning_rate=0.1, **options)
            weight = mx.nd.array([[1, 2], [3, 4], [5, 6]])
            grad = mx.nd.array([[1, 0.2], [0, 0], [-0.5, 0.1]]).tostype(stype)
            state = optimizer.create_state(0, weight)
            for _ in range(3):
                optimizer.update(0, weight, grad, state)
            found += [type(optimizer).__name__, weight.asnumpy().tolist(), state.asnumpy().tolist()]
    return found


def turned_regions(mx, folder):
    """RROIAlign of regions inside, across and beyond the border."""
    data = mx.nd.array(np.random.RandomState(0).randn(2, 3, 8, 8))
    rois = [[0, 30, 30, 40, 20, 30], [1, 10, 40, 60, 10, 100], [0, 0, 0, 5, 5, 0], [1, -20, 30, 200, 100, 45]]
    options = {"pooled_size": (2, 3), "spatial_scale": 0.125}
    return [
        mx.nd.contrib.RROIAlign(data, mx.nd.array(rois), sampling_ratio=n, **options).asnumpy().tolist()
        for n in (-1, 2, 3)
    ]


def numbers_of_numpy(mx, folder):
    """numpy's numbers on either side of an array, of arrays; numpy's arrays are refused."""
    a, found = mx.nd.array([[1, 2, 3], [4, 5, 6]]), []
    for act in (
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: x / y,
        lambda x, y: x % y,
        lambda x, y: x**y,
        lambda x, y: x == y,
        lambda x, y: x != y,
        lambda x, y: x < y,
        lambda x, y: x >= y,
    ):
        for number in (np.float32(2), np.float64(2), np.int64(2)):
            made = [act(a, number), act(number, a)]
            found.append([[type(x).__name__, np.dtype(x.dtype).name, x.asnumpy().tolist()] for x in made])
        for x, y in ((a, np.ones((2, 3))), (np.ones((2, 3)), a)):
            try:
                act(x, y)
            except (TypeError, AssertionError):
                found.append("refused")
    large = mx.nd.array([50000001], dtype="int32")
    assert np.all(large == 50000001) and np.any(large.floor() == 50000001)
    array = np.ones((2, 3), "float32")
    try:
        array += a
    except TypeError:
        found.append("refused")
    return found


def shared_memory(mx, folder):
    """Capsules by the functions and by the methods."""
    a = mx.nd.array([[1, 2], [3, 4]])
    capsules = [a.to_dlpack_for_read(), mx.nd.to_dlpack_for_read(a)]
    written = a.copy()
    capsules += [written.to_dlpack_for_write(), mx.nd.to_dlpack_for_write(written)]
    shared = [mx.nd.from_dlpack(c) for c in capsules]
    shared[2][0] = 9
    return [x.asnumpy().tolist() for x in (*shared, a, written)]


def rate_of_a_scheduler(mx, folder):
    """The kind of the error of a rate that a scheduler decides."""
    optimizer = mx.optimizer.SGD(lr_scheduler=mx.lr_scheduler.FactorScheduler(step=1), learning_rate=0.3)
    try:
        optimizer.set_learning_rate(0.5)
    except UserWarning:
        return ["refused", optimizer.learning_rate]


PROGRAMS = (
    executor_of_another_size,
    histograms,
    rows_with_rates,
    turned_regions,
    numbers_of_numpy,
    shared_memory,
    rate_of_a_scheduler,
    feed_forward_on_iterators,
    feed_forward_epochs_of_so_many_batches,
    feed_forward_on_arrays,
    monitored,
    monitored_by_hand,
    key_values,
    module_with_a_store,
    modules_in_a_row,
    loss_in_python,
    language_model,
)


def run(mx, program):
    """What a program gives, as plain lists."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(program(mx, folder)))


if __name__ == "__main__":
    framework = importlib.import_module(sys.argv[1])
    chosen = [p for p in PROGRAMS if len(sys.argv) < 4 or p.__name__ in sys.argv[3:]]
    with open(sys.argv[2], "w") as file:
        json.dump({p.__name__: run(framework, p) for p in chosen}, file, separators=(",", ":"))
