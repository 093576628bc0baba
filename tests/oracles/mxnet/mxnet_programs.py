"""Small programs as MXNet's users write them; each gives the numbers that it would print.

They get the framework as `mx`, so that the same text runs under mxlite and under MXNet itself: random
numbers come from numpy alone. `python tests/oracles/mxnet/mxnet_programs.py mxnet` prints what MXNet gives,
which is how the literals of `test_mxnet_programs.py` were made.
"""

import importlib
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def digest(value):
    """What is compared of an array: all of a small one, else its sum, sum of squares, first and last."""
    flat = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value, "float64").ravel()
    if flat.size > 6:
        flat = np.array([flat.sum(), (flat * flat).sum(), flat[0], flat[-1]])
    return [round(float(x), 6) for x in flat]


def digests(arrays):
    """The digests of a dict of arrays, one after another in the order of their names."""
    return [x for name in sorted(arrays) for x in digest(arrays[name])]


def random_parameters(mx, net, seed=1, **shapes):
    """Parameters in (-0.3, 0.3) and states in (0.5, 1.5), the same under every framework."""
    draw = np.random.RandomState(seed)
    arguments, _, states = net.infer_shape(**shapes)
    weights = {
        name: mx.nd.array((draw.rand(*shape) - 0.5) * 0.6)
        for name, shape in zip(net.list_arguments(), arguments)
        if name not in shapes and not name.endswith("label")
    }
    names = net.list_auxiliary_states()
    return weights, {n: mx.nd.array(draw.rand(*s) + 0.5) for n, s in zip(names, states)}


def samples(shape, count=24, classes=3, seed=3):
    draw = np.random.RandomState(seed)
    return draw.rand(count, *shape).astype("float32"), draw.randint(0, classes, count).astype("float32")


def perceptron(mx):
    layer = mx.sym.FullyConnected(mx.symbol.Variable("data"), name="fc1", num_hidden=8)
    layer = mx.symbol.Activation(data=layer, name="relu1", act_type="relu")
    layer = mx.symbol.FullyConnected(data=layer, name="fc2", num_hidden=3)
    return mx.symbol.SoftmaxOutput(data=layer, name="softmax")


def residual(mx):
    """A pre-activation network: a stem and one bottleneck with a projection."""
    data = mx.sym.BatchNorm(mx.sym.Variable("data"), fix_gamma=True, eps=2e-5, momentum=0.9, name="bn0")
    body = mx.sym.Convolution(data, num_filter=4, kernel=(3, 3), pad=(1, 1), no_bias=True, name="stem")
    act = mx.sym.BatchNorm(body, fix_gamma=False, eps=2e-5, momentum=0.9, name="bn1")
    act = mx.sym.Activation(act, act_type="relu", name="relu1")
    conv = mx.sym.Convolution(
        act, num_filter=8, kernel=(3, 3), stride=(2, 2), pad=(1, 1), no_bias=True, workspace=256, name="conv1"
    )
    skip = mx.sym.Convolution(act, num_filter=8, kernel=(1, 1), stride=(2, 2), no_bias=True, name="skip")
    pool = mx.symbol.Pooling(conv + skip, global_pool=True, kernel=(7, 7), pool_type="avg", name="pool")
    return mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.Flatten(pool), num_hidden=3, name="fc"), name="softmax"
    )


def fit_with_momentum(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,))
    weights, _ = random_parameters(mx, net, data=(8, 10))
    train, held_out = mx.io.NDArrayIter(x, y, batch_size=8), mx.io.NDArrayIter(x[:20], y[:20], batch_size=8)
    module = mx.mod.Module(symbol=net, context=mx.cpu(), data_names=["data"], label_names=["softmax_label"])
    seen = []
    module.fit(
        train,
        eval_data=held_out,
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 0.001},
        eval_metric="ce",
        arg_params=weights,
        num_epoch=3,
        batch_end_callback=[lambda p: seen.append(p.eval_metric.get()[1]), mx.callback.Speedometer(8, 2)],
    )
    score = [value for _, value in module.score(held_out, ["acc", "ce"])]
    pads = [batch.pad for _, _, batch in module.iter_predict(held_out)]
    return digests(module.get_params()[0]) + seen[-3:] + score + digest(module.predict(held_out)) + pads


def fit_lenet_with_adam(mx, folder):
    layer = mx.sym.Variable("data")
    for filters in (3, 4):
        layer = mx.sym.Convolution(data=layer, kernel=(3, 3), num_filter=filters)
        layer = mx.sym.Activation(data=layer, act_type="tanh")
        layer = mx.sym.Pooling(data=layer, pool_type="max", kernel=(2, 2), stride=(2, 2))
    layer = mx.sym.FullyConnected(mx.sym.Flatten(layer), num_hidden=3)
    net, (x, y) = mx.sym.SoftmaxOutput(layer, name="softmax"), samples((1, 12, 12))
    weights, _ = random_parameters(mx, net, data=(8, 1, 12, 12))
    module = mx.mod.Module(net)
    module.fit(
        mx.io.NDArrayIter(x, y, 8),
        num_epoch=2,
        optimizer="adam",
        optimizer_params=(("learning_rate", 0.01), ("wd", 1e-3)),
        arg_params=weights,
        kvstore=None,
        eval_metric=["acc", mx.metric.create("top_k_accuracy", top_k=2)],
        initializer=mx.init.Xavier(),
    )
    return [x for v in module.get_params()[0].values() for x in digest(v)] + digest(module.get_outputs()[0])


def fit_a_residual_network(mx, folder):
    net, (x, y) = residual(mx), samples((2, 6, 6))
    weights, states = random_parameters(mx, net, data=(8, 2, 6, 6))
    weights.pop("fc_bias")  # left to the initializer
    weights["bn0_gamma"][:] = 1  # MXNet writes ones here
    module = mx.mod.Module(net, context=[mx.cpu()])
    module.fit(
        mx.io.NDArrayIter(x, y, 8),
        num_epoch=2,
        optimizer_params={
            "learning_rate": 0.05,
            "momentum": 0.9,
            "lr_scheduler": mx.lr_scheduler.MultiFactorScheduler(step=[2, 4], factor=0.5),
        },
        arg_params=weights,
        aux_params=states,
        allow_missing=True,
        initializer=mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
    )
    arguments, states = module.get_params()
    again = mx.sym.load_json(net.tojson())
    bound = again.bind(
        mx.cpu(), dict(arguments, data=mx.nd.array(x), softmax_label=mx.nd.array(y)), aux_states=states
    )
    return digests(arguments) + digests(states) + digest(bound.forward()[0])


def loop_by_hand(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,))
    weights, _ = random_parameters(mx, net, data=(8, 10))
    bound = net.simple_bind(ctx=mx.cpu(), data=(8, 10))
    bound.copy_params_from(weights)
    right = []
    for i in [0, 8, 16] * 2:
        bound.arg_dict["data"][:] = x[i : i + 8]
        bound.arg_dict["softmax_label"][:] = y[i : i + 8]
        bound.forward(is_train=True)
        bound.backward()
        for name in weights:
            bound.arg_dict[name][:] -= 0.1 * bound.grad_dict[name] / 8
        right.append(float((bound.outputs[0].asnumpy().argmax(1) == y[i : i + 8]).sum()))
    return right + digests({n: bound.arg_dict[n] for n in weights}) + digests(bound.grad_dict)


def stop_and_go_on(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,))
    weights, states = random_parameters(mx, net, data=(8, 10))
    where, settings = os.path.join(folder, "model"), {"learning_rate": 0.1, "momentum": 0.9}
    mx.model.save_checkpoint(where, 7, net, weights, states)
    module = mx.mod.Module.load(where, 7)
    module.bind([("data", (8, 10))], [("softmax_label", (8,))])
    module.init_params()
    module.init_optimizer(optimizer_params=settings)
    batch = mx.io.DataBatch([mx.nd.array(x[:8])], [mx.nd.array(y[:8])])
    module.forward_backward(batch)
    module.update()
    module.save_checkpoint(where, 8, save_optimizer_states=True)
    other = mx.mod.Module.load(where, 8, load_optimizer_states=True)
    other.bind([("data", (8, 10))], [("softmax_label", (8,))])
    other.init_optimizer(optimizer_params=settings)
    result = []
    for each in (module, other):
        each.forward_backward(batch)
        each.update()
        result += digests(each.get_params()[0])
    _, loaded, _ = mx.model.load_checkpoint(where, 8)
    return result + digests(loaded)


def fine_tune(mx, folder):
    net, (x, y) = perceptron(mx), samples((10,))
    weights, _ = random_parameters(mx, net, data=(8, 10))
    inside = net.get_internals()
    features = mx.mod.Module(inside["relu1_output"], label_names=None)
    features.bind(data_shapes=[("data", (4, 10))], for_training=False)
    features.set_params(weights, {}, allow_extra=True)
    features.forward(mx.io.DataBatch([mx.nd.array(x[:4])]))
    head = mx.sym.FullyConnected(inside["relu1_output"], num_hidden=3, name="new")
    module = mx.mod.Module(
        mx.sym.SoftmaxOutput(head, name="softmax"), fixed_param_names=["fc1_weight", "fc1_bias"]
    )
    module.fit(
        mx.io.NDArrayIter(x, y, 8),
        num_epoch=2,
        arg_params={k: v for k, v in weights.items() if k.startswith("fc1")},
        allow_missing=True,
        initializer=mx.init.Constant(0.05),
        optimizer_params={"learning_rate": 0.5},
    )
    return digest(features.get_outputs()[0]) + digests(module.get_params()[0])


def unrolled_lstm(mx, folder):
    length, hidden, words, batch = 3, 4, 6, 5
    shared = {k: mx.sym.Variable("lstm_" + k) for k in ("xw", "xb", "hw", "hb")}
    cell, output = mx.sym.Variable("init_c"), mx.sym.Variable("init_h")
    embedded = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=words, output_dim=3, name="embed")
    outputs = []
    for word in mx.sym.SliceChannel(embedded, num_outputs=length, squeeze_axis=1, name="words"):
        gates = mx.sym.FullyConnected(word, shared["xw"], shared["xb"], num_hidden=4 * hidden)
        gates = gates + mx.sym.FullyConnected(output, shared["hw"], shared["hb"], num_hidden=4 * hidden)
        parts = mx.sym.SliceChannel(gates, num_outputs=4)
        take, forget, give = (mx.sym.Activation(parts[i], act_type="sigmoid") for i in (0, 2, 3))
        cell = forget * cell + take * mx.sym.Activation(parts[1], act_type="tanh")
        output = give * mx.sym.Activation(cell, act_type="tanh")
        outputs.append(output)
    logits = mx.sym.FullyConnected(mx.sym.Concat(*outputs, dim=0), num_hidden=words, name="logits")
    label = mx.sym.Reshape(mx.sym.transpose(mx.sym.Variable("softmax_label")), shape=(-1,))
    net = mx.sym.SoftmaxOutput(logits, label, use_ignore=True, ignore_label=0, name="softmax")

    states = [("init_c", (batch, hidden)), ("init_h", (batch, hidden))]
    data, labels = [("data", (batch, length)), *states], [("softmax_label", (batch, length))]
    weights, _ = random_parameters(mx, net, **dict(data + labels))
    module = mx.mod.Module(net, data_names=[n for n, _ in data], label_names=["softmax_label"])
    module.bind(data_shapes=data, label_shapes=labels)
    module.init_params(arg_params=weights)
    module.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9, "clip_gradient": 1.0})
    metric, draw = mx.metric.Perplexity(ignore_label=0), np.random.RandomState(2)
    for _ in range(4):
        x = draw.randint(0, words, (batch, length))
        y = np.roll(x, -1, 1)
        module.forward(
            mx.io.DataBatch(
                [mx.nd.array(x)] + [mx.nd.zeros(s) for _, s in states],
                [mx.nd.array(y)],
                provide_data=data,
                provide_label=labels,
            ),
            is_train=True,
        )
        metric.update([mx.nd.array(y.T.reshape(-1))], module.get_outputs())
        module.backward()
        module.update()
    return [metric.get()[1], *digests(module.get_params()[0])]


def first_state_of_zeros(mx, folder):
    steps = mx.sym.SliceChannel(mx.sym.Variable("x"), num_outputs=3, axis=1, squeeze_axis=True)
    state, w, u = mx.sym.zeros(shape=(2, 4)), mx.sym.Variable("w"), mx.sym.Variable("u")
    for i in range(3):
        state = mx.sym.FullyConnected(state, u, no_bias=True, num_hidden=4) + mx.sym.FullyConnected(
            steps[i], w, no_bias=True, num_hidden=4
        )
        state = mx.sym.Activation(state * mx.sym.ones((2, 4)), act_type="tanh")
    weights, _ = random_parameters(mx, state, x=(2, 3, 5))
    grads = {"w": mx.nd.zeros((4, 5)), "u": mx.nd.zeros((4, 4))}
    x = mx.nd.array(np.random.RandomState(0).rand(2, 3, 5))
    bound = state.bind(mx.cpu(), dict(weights, x=x), args_grad=grads)
    result = digest(bound.forward(is_train=True)[0])
    bound.backward(mx.nd.ones((2, 4)))
    counted = mx.sym.Group([mx.sym.arange(1, 4, 0.5, repeat=2), mx.sym.full((2,), 7)]).eval()
    return result + digests(grads) + digest(counted[0]) + digest(counted[1])


def several_losses(mx, folder):
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="hidden")
    out = mx.sym.FullyConnected(hidden, num_hidden=1, name="out")
    error = mx.sym.MakeLoss(
        mx.sym.square(mx.sym.Flatten(out) - mx.sym.Variable("aim")), grad_scale=0.5, name="error"
    )
    small = mx.sym.MakeLoss(0.01 * mx.sym.sum(mx.sym.square(hidden)), name="small")
    net = mx.sym.Group([mx.sym.BlockGrad(out, name="guess"), error, small])
    weights, _ = random_parameters(mx, net, data=(3, 3), aim=(3, 1))
    draw = np.random.RandomState(5)
    pairs = mx.io.NDArrayIter({"data": draw.rand(6, 3)}, {"aim": draw.rand(6, 1)}, 3)
    module = mx.mod.Module(net, data_names=["data"], label_names=["aim"])
    module.fit(
        pairs,
        num_epoch=2,
        eval_metric=mx.metric.Loss(output_names=["error_output"]),
        arg_params=weights,
        optimizer_params={"learning_rate": 0.05},
    )
    return digests(module.get_params()[0]) + [x for o in module.predict(pairs) for x in digest(o)]


def rates_of_single_parameters(mx, folder):
    with mx.AttrScope(lr_mult="0.1"):
        w, b = mx.sym.Variable("fc1_weight", wd_mult=0.0), mx.sym.Variable("fc1_bias")
    layer = mx.sym.FullyConnected(mx.sym.Variable("data"), w, b, num_hidden=6, name="fc1")
    layer = mx.sym.Activation(layer, act_type="tanh")
    layer = mx.sym.FullyConnected(layer, num_hidden=3, name="fc2", attr={"lr_mult": "0"})
    net, (x, y) = mx.sym.SoftmaxOutput(layer, name="softmax"), samples((5,))
    weights, _ = random_parameters(mx, net, data=(8, 5))
    schedule = mx.lr_scheduler.FactorScheduler(3, 0.5)
    module = mx.mod.Module(net)
    module.fit(
        mx.io.NDArrayIter(x, y, 8),
        num_epoch=2,
        arg_params=weights,
        optimizer_params={"learning_rate": 0.5, "wd": 0.1, "momentum": 0.5, "lr_scheduler": schedule},
    )
    return digests(module.get_params()[0])


def two_networks_play(mx, folder):
    """Gradients of one module's inputs go backward through another."""
    draw = np.random.RandomState(2)
    maker = mx.sym.FullyConnected(mx.sym.Variable("noise"), num_hidden=4, name="g")
    maker = mx.sym.Activation(maker, act_type="tanh")
    judge = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=5, name="d1")
    judge = mx.sym.FullyConnected(
        mx.sym.LeakyReLU(judge, act_type="leaky", slope=0.2), num_hidden=1, name="d2"
    )
    judge = mx.sym.LogisticRegressionOutput(judge, mx.sym.Variable("label"), name="loss")
    g = mx.mod.Module(maker, data_names=("noise",), label_names=None)
    g.bind([("noise", (6, 3))])
    g.init_params(arg_params=random_parameters(mx, maker, noise=(6, 3))[0])
    g.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01, "beta1": 0.5})
    d = mx.mod.Module(judge, data_names=("data",), label_names=("label",))
    d.bind([("data", (6, 4))], [("label", (6,))], inputs_need_grad=True)
    d.init_params(arg_params=random_parameters(mx, judge, data=(6, 4))[0])
    d.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01})
    for _ in range(3):
        g.forward(mx.io.DataBatch([mx.nd.array(draw.randn(6, 3))], None), is_train=True)
        made, label = g.get_outputs(), mx.nd.zeros(6)
        d.forward_backward(mx.io.DataBatch(made, [label]))
        d.update()
        label[:] = 1
        d.forward_backward(mx.io.DataBatch(made, [label]))
        g.backward(d.get_input_grads())
        g.update()
    return digest(d.get_input_grads()[0]) + digests(g.get_params()[0]) + digests(d.get_params()[0])


def optimizers_by_hand(mx, folder):
    result = []
    for name, settings in (
        ("sgd", {"momentum": 0.9, "wd": 0.1, "clip_gradient": 0.5}),
        ("nag", {"momentum": 0.9}),
        ("adam", {"wd": 0.1, "clip_gradient": 0.5}),
        ("rmsprop", {}),
        ("adagrad", {}),
    ):
        update = mx.optimizer.get_updater(mx.optimizer.create(name, learning_rate=0.1, **settings))
        weight = mx.nd.array([1, -2, 3])
        for step in range(3):
            update(0, weight * (step + 1) * 0.5, weight)
        result += digest(weight)
    return result


def arrays_without_a_graph(mx, folder):
    draw = np.random.RandomState(4)
    x, true = mx.nd.array(draw.rand(20, 3)), mx.nd.array([[1.0], [2.0], [-1.0]])
    y, w, b = mx.nd.dot(x, true) + 0.5, mx.nd.zeros((3, 1)), mx.nd.zeros((1,))
    for _ in range(10):
        error = mx.nd.dot(x, w) + b - y
        w -= 0.5 * mx.nd.dot(x.T, error) / 20
        b -= 0.5 * mx.nd.mean(error)
    a = mx.nd.ones((2, 3))
    c = mx.nd.add(a, 1) * mx.nd.maximum(a, 2)
    c[1:2] = 7
    view = c.reshape((3, 2))
    view[0][:] = -1
    where = os.path.join(folder, "arrays")
    mx.nd.save(where, {"c": c, "w": w})
    image = mx.nd.array(draw.rand(1, 2, 5, 5))
    filters = mx.nd.array(draw.rand(3, 2, 3, 3))
    mx.nd.waitall()
    return (
        digest(w)
        + digest(b)
        + digests(mx.nd.load(where))
        + digest(mx.nd.Convolution(image, filters, kernel=(3, 3), num_filter=3, stride=(2, 2), no_bias=True))
        + digest(mx.nd.softmax(image, axis=1))
        + digest(mx.nd.power(2, c) % 5)
        + digest(mx.nd.lesser(c, mx.nd.minimum(4, a)))
        + [mx.nd.subtract(1, b).asscalar(), mx.nd.greater(3, 2), mx.nd.divide(1, 4)]
        + digest(c.swapaxes(0, 1).flip(axis=0).tile((1, 2)))
        + digest(mx.nd.array([1, 2]).broadcast_to((2, 2)))
        + digest(image.split(num_outputs=5, axis=2)[1].squeeze(axis=0).transpose(axes=(2, 0, 1)))
        + digest(mx.nd.array([2, 0]).one_hot(3))
        + digest(c.pick(mx.nd.array([0, 2])) + c.take(mx.nd.array([1])).prod())
    )


def sentences_in_buckets(mx, folder):
    """A language model unrolled to the length of each bucket: fit, score, save, load, go on by hand."""
    draw = np.random.RandomState(4)
    text = [["w" + str(i) for i in draw.randint(0, 7, draw.randint(2, 7))] for _ in range(60)]
    coded, words = mx.rnn.encode_sentences(text, invalid_label=0, start_label=1)
    hidden = 4

    def sym_gen(length):
        embedded = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=9, output_dim=3, name="embed")
        steps = mx.sym.SliceChannel(embedded, num_outputs=length, squeeze_axis=1, name="steps")
        weights = {k: mx.sym.Variable(k) for k in ("xw", "xb", "hw", "hb")}
        state, outputs = None, []
        for word in steps:
            gates = mx.sym.FullyConnected(word, weights["xw"], weights["xb"], num_hidden=hidden)
            if state is not None:
                gates = gates + mx.sym.FullyConnected(state, weights["hw"], weights["hb"], num_hidden=hidden)
            state = mx.sym.Activation(gates, act_type="tanh")
            outputs.append(mx.sym.expand_dims(state, axis=1))
        joined = mx.sym.Reshape(mx.sym.Concat(*outputs, dim=1), shape=(-1, hidden))
        logits = mx.sym.FullyConnected(joined, num_hidden=9, name="logits")
        label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
        net = mx.sym.SoftmaxOutput(logits, label, use_ignore=True, ignore_label=0, name="softmax")
        return net, ("data",), ("softmax_label",)

    random.seed(5)
    np.random.seed(5)
    data = mx.rnn.BucketSentenceIter(coded, 5, buckets=[3, 4, 6], invalid_label=0)
    module = mx.mod.BucketingModule(sym_gen, default_bucket_key=data.default_bucket_key, context=mx.cpu())
    weights, _ = random_parameters(mx, sym_gen(6)[0], data=(5, 6), softmax_label=(5, 6))
    module.fit(
        data,
        eval_metric=mx.metric.Perplexity(0),
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.3, "momentum": 0.9, "wd": 1e-3},
        arg_params=weights,
        num_epoch=2,
    )
    values = digests(module.get_params()[0]) + [len(words), data.default_bucket_key]
    values += [value for _, value in module.score(data, mx.metric.Perplexity(0))]
    module.save_checkpoint(os.path.join(folder, "net"), 2)
    keys = sorted(int(k) for k in mx.nd.load(os.path.join(folder, "net.buckets"))[0].asnumpy())
    again = mx.mod.BucketingModule.load(
        os.path.join(folder, "net"), 2, sym_gen=sym_gen, default_bucket_key=6, context=mx.cpu()
    )
    again.bind(data.provide_data, data.provide_label)
    again.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01})
    data.reset()
    seen = []
    for batch in data:
        again.forward_backward(batch)
        again.update()
        seen.append((batch.bucket_key, again.get_outputs()[0].shape[0]))
    return values + keys + [x for pair in seen for x in pair] + digests(again.get_params()[0])


def state_from_batch_to_batch(mx, folder):
    """A recurrent step whose state is an argument of its own, carried over by the loop."""
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    words = mx.sym.Embedding(data, input_dim=7, output_dim=3, name="words")
    cell = mx.rnn.GRUCell(4, prefix="cell_")
    out, states = cell(mx.sym.Reshape(words, shape=(-1, 3)), [mx.sym.Variable("before")])
    out = mx.sym.FullyConnected(out, num_hidden=7, name="out")
    net = mx.sym.Group(
        [mx.sym.SoftmaxOutput(out, label, name="softmax"), mx.sym.BlockGrad(states[0], name="after")]
    )
    weights, _ = random_parameters(mx, net, data=(2, 1), before=(2, 4))
    module = mx.mod.Module(net, state_names=["before"])
    module.bind([("data", (2, 1))], [("softmax_label", (2,))])
    module.init_params(arg_params=weights)
    module.init_optimizer(optimizer_params={"learning_rate": 0.5})
    module.set_states(value=0)
    draw, values = np.random.RandomState(8), []
    for _ in range(3):
        batch = mx.io.DataBatch(
            [mx.nd.array(draw.randint(0, 7, (2, 1)))], [mx.nd.array(draw.randint(0, 7, 2))]
        )
        module.forward_backward(batch)
        module.update()
        outputs = module.get_outputs(merge_multi_context=False)
        module.set_states(states=outputs[1:])
        values += digest(outputs[0][0]) + digest(module.get_states(merge_multi_context=False)[0][0])
    return values + digests(module.get_params()[0])


def actor_and_critic(mx, folder):
    """Three heads on one body: an action, its worth, and an entropy; and a loss of what was picked."""
    body = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=6, name="body", attr={"lr_mult": "2"})
    body = mx.sym.Activation(body, act_type="relu")
    logits = mx.sym.FullyConnected(body, num_hidden=3, name="policy")
    chance = mx.sym.clip(mx.sym.SoftmaxActivation(logits), a_min=1e-5, a_max=1 - 1e-5)
    worth = mx.sym.FullyConnected(body, num_hidden=1, name="worth")
    picked = mx.sym.pick(logits, mx.sym.Variable("action"), axis=1)
    error = mx.sym.smooth_l1(picked - mx.sym.Variable("aim"), scalar=1.0)
    net = mx.sym.Group(
        [
            mx.sym.SoftmaxOutput(logits, name="act"),
            mx.sym.LinearRegressionOutput(worth, name="value", grad_scale=0.5),
            mx.sym.MakeLoss(mx.sym.sum(chance * mx.sym.log(chance), axis=1), grad_scale=0.01, name="entropy"),
            mx.sym.MakeLoss(error, normalization="batch", name="error"),
        ]
    )
    weights, _ = random_parameters(mx, net, data=(4, 5), action=(4,), aim=(4,))
    labels = ["act_label", "value_label", "aim"]
    module = mx.mod.Module(net, data_names=["data", "action"], label_names=labels)
    shapes = zip(labels, [(4,), (4, 1), (4,)])
    module.bind([("data", (4, 5)), ("action", (4,))], list(shapes), grad_req="add")
    module.init_params(arg_params=weights)
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.02, "epsilon": 1e-3})
    draw = np.random.RandomState(9)
    for _ in range(2):
        for grads in module._exec_group.grad_arrays:
            grads[0][:] = 0
        for _ in range(2):
            moves = mx.nd.array(draw.randint(0, 3, 4))
            aims = [moves, mx.nd.array(draw.randn(4, 1)), mx.nd.array(draw.randn(4))]
            module.forward(mx.io.DataBatch([mx.nd.array(draw.randn(4, 5)), moves], aims), is_train=True)
            module.backward()
        module.update()
    return digests(module.get_params()[0]) + [x for o in module.get_outputs() for x in digest(o)]


def boxes_in_pictures(mx, folder):
    """A single-shot detector of one scale, its two losses, and what it finds."""
    data, label = mx.sym.Variable("data"), mx.sym.Variable("label")
    layer = mx.sym.Convolution(data, kernel=(3, 3), pad=(1, 1), stride=(2, 2), num_filter=4, name="conv")
    layer = mx.sym.L2Normalization(mx.sym.Activation(layer, act_type="relu"), mode="channel")
    layer = mx.sym.broadcast_mul(mx.sym.Variable("scale", shape=(1, 4, 1, 1)), layer)
    place = mx.sym.Convolution(layer, kernel=(3, 3), pad=(1, 1), num_filter=8, name="place")
    place = mx.sym.Flatten(mx.sym.transpose(place, axes=(0, 2, 3, 1)))
    kind = mx.sym.Convolution(layer, kernel=(3, 3), pad=(1, 1), num_filter=6, name="kind")
    kind = mx.sym.Reshape(mx.sym.Flatten(mx.sym.transpose(kind, axes=(0, 2, 3, 1))), shape=(0, -1, 3))
    kind = mx.sym.transpose(kind, axes=(0, 2, 1))
    anchors = mx.contrib.symbol.MultiBoxPrior(layer, sizes="(0.4,0.6)", ratios="(1,)")
    anchors = mx.sym.Reshape(mx.sym.Flatten(anchors), shape=(0, -1, 4))
    target = mx.contrib.symbol.MultiBoxTarget(
        anchors, label, kind, negative_mining_ratio=3, negative_mining_thresh=0.5
    )
    chance = mx.sym.SoftmaxOutput(
        kind,
        target[2],
        ignore_label=-1,
        use_ignore=True,
        multi_output=True,
        normalization="valid",
        name="chance",
    )
    apart = mx.sym.smooth_l1(target[1] * (place - target[0]), scalar=1.0)
    found = mx.contrib.symbol.MultiBoxDetection(chance, place, anchors, nms_threshold=0.5)
    net = mx.sym.Group(
        [
            chance,
            mx.sym.MakeLoss(apart, normalization="valid", name="apart"),
            mx.sym.MakeLoss(target[2], grad_scale=0, name="truth"),
            mx.sym.MakeLoss(found, grad_scale=0, name="found"),
        ]
    )
    weights, _ = random_parameters(mx, net, data=(2, 3, 8, 8), label=(2, 2, 5))
    draw = np.random.RandomState(4)
    boxes = -np.ones((4, 2, 5))
    boxes[:, 0] = [[i % 2, 0.1 * i, 0.1, 0.1 * i + 0.4, 0.6] for i in range(4)]
    pairs = mx.io.NDArrayIter({"data": draw.rand(4, 3, 8, 8)}, {"label": boxes}, 2)
    module = mx.mod.Module(net, label_names=["label"], fixed_param_names=["conv_bias"])
    module.fit(
        pairs,
        num_epoch=2,
        eval_metric=mx.metric.Loss(output_names=["apart_output"], label_names=[]),
        arg_params=weights,
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 5e-4, "rescale_grad": 1.0},
    )
    return digests(module.get_params()[0]) + [x for o in module.predict(pairs) for x in digest(o)]


def factors_of_a_matrix(mx, folder):
    """Users times items, from an iterator that is no DataIter of ours and batches that are no DataBatch."""
    parts = [
        mx.sym.Embedding(mx.sym.Variable(n), input_dim=8, output_dim=3, name=f"{n}s")
        for n in ("user", "item")
    ]
    guess = mx.sym.Flatten(mx.sym.sum_axis(parts[0] * parts[1], axis=1))
    net = mx.sym.LinearRegressionOutput(guess, mx.sym.Variable("score"), name="guess")
    draw = np.random.RandomState(6)
    users, items = draw.randint(0, 8, 24), draw.randint(0, 8, 24)

    class Pairs(mx.io.DataIter):
        provide_data, provide_label = [("user", (8,)), ("item", (8,))], [("score", (8,))]

        def __iter__(self):
            for i in range(0, 24, 8):
                u, v = users[i : i + 8], items[i : i + 8]
                batch = type("Batch", (), {"pad": 0, "index": None})()
                batch.data, batch.label = [mx.nd.array(u), mx.nd.array(v)], [mx.nd.array((u + v) % 5)]
                yield batch

    def root(label, pred):
        return float(np.sqrt(np.mean((label - pred.ravel()) ** 2)))

    module = mx.mod.Module(net, data_names=["user", "item"], label_names=["score"])
    ended = []
    module.fit(
        Pairs(),
        eval_data=Pairs(),
        num_epoch=2,
        eval_metric=root,
        optimizer="adam",
        optimizer_params=(("learning_rate", 0.1), ("wd", 1e-3)),
        arg_params=random_parameters(mx, net, user=(8,), item=(8,), score=(8,))[0],
        eval_end_callback=lambda param: ended.append(param.nbatch),
    )
    values = [value for _, value in module.score(Pairs(), ["rmse", "mae"])]
    return digests(module.get_params()[0]) + values + ended


PROGRAMS = (
    fit_with_momentum,
    fit_lenet_with_adam,
    fit_a_residual_network,
    loop_by_hand,
    stop_and_go_on,
    fine_tune,
    unrolled_lstm,
    first_state_of_zeros,
    several_losses,
    rates_of_single_parameters,
    two_networks_play,
    optimizers_by_hand,
    arrays_without_a_graph,
    sentences_in_buckets,
    state_from_batch_to_batch,
    actor_and_critic,
    boxes_in_pictures,
    factors_of_a_matrix,
)

ROOT = Path(__file__).resolve().parents[3]


def numbers_of_mxnet(script):
    """What the programs of a script print under the MXNet that MXLITE_MXNET_PYTHON names.

    On one thread: on several, 2 of 8 runs predicted other numbers from the same ImageDetIter.
    """
    run = subprocess.run(
        [os.environ["MXLITE_MXNET_PYTHON"], script, "mxnet"],
        env=os.environ
        | {"MXNET_SUBGRAPH_BACKEND": "NONE", "MXNET_ENGINE_TYPE": "NaiveEngine", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = (re.match(r'    "(\w+)": \[(.*)\],$', line) for line in run.stdout.splitlines())
    return {found[1]: [float(x) for x in found[2].split(",")] for found in lines if found}


def print_numbers(programs):
    """What each program gives under the framework that the command line names."""
    mx = importlib.import_module(sys.argv[1])
    for program in programs:
        with tempfile.TemporaryDirectory() as folder:
            values = [round(float(x), 5) for x in program(mx, folder)]
        print(f'    "{program.__name__}": {values},')


if __name__ == "__main__":
    print_numbers(PROGRAMS)
