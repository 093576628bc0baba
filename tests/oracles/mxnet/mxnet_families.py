"""Programs of families that MXNet's examples had: segmentation, text in pictures, words in context, style,
adaptation; see `mxnet_programs.py`.

`python -m tests.oracles.mxnet.mxnet_families mxnet` prints what MXNet gives: the literals of
`test_mxnet_families.py`.
"""

import os

import numpy as np

from tests.oracles.mxnet.mxnet_programs import digest, digests, print_numbers, random_parameters, samples


def segmentation(mx, folder):
    """A fully convolutional network: scores of two layers, enlarged, cropped to fit, added."""
    data = mx.sym.Variable("data")
    layer = mx.sym.Convolution(data, kernel=(3, 3), pad=(10, 10), num_filter=4, name="conv1")
    layer = mx.sym.Activation(layer, act_type="relu")
    first = mx.sym.Pooling(layer, pool_type="max", kernel=(2, 2), stride=(2, 2), pooling_convention="full")
    layer = mx.sym.Convolution(first, kernel=(3, 3), pad=(1, 1), num_filter=6, name="conv2")
    layer = mx.sym.LeakyReLU(layer, act_type="leaky")
    layer = mx.sym.Pooling(layer, pool_type="max", kernel=(2, 2), stride=(2, 2))
    layer = mx.sym.Convolution(layer, kernel=(1, 1), num_filter=3, name="score2")
    how = dict(kernel=(4, 4), stride=(2, 2), num_filter=3, no_bias=True)
    layer = mx.sym.Deconvolution(layer, num_group=3, name="up", attr={"__lr_mult__": "0"}, **how)
    score = mx.sym.Convolution(first, kernel=(1, 1), num_filter=3, name="score1")
    layer = mx.sym.Crop(*[layer, score], name="fit") + score
    layer = mx.sym.Crop(
        *[mx.sym.Deconvolution(layer, name="large", **how), data], offset=(9, 9), name="score"
    )
    net = mx.sym.SoftmaxOutput(
        layer, multi_output=True, use_ignore=True, ignore_label=255, normalization="valid", name="softmax"
    )
    draw = np.random.RandomState(3)
    pixels, kinds = draw.rand(4, 3, 12, 12), draw.randint(0, 3, (4, 12, 12)).astype("float32")
    kinds[:, :2] = 255
    weights, _ = random_parameters(mx, net, data=(2, 3, 12, 12))
    known = {k: v for k, v in weights.items() if "conv" in k or "score" in k}

    class Right(mx.metric.EvalMetric):
        def __init__(self):
            super().__init__("right")

        def update(self, labels, preds):
            label, guess = labels[0].asnumpy(), preds[0].asnumpy().argmax(axis=1)
            self.sum_metric += (guess == label)[label != 255].sum()
            self.num_inst += (label != 255).sum()

    module, right = mx.mod.Module(net), Right()
    module.fit(
        mx.io.NDArrayIter(pixels, kinds, 2, label_name="softmax_label"),
        num_epoch=2,
        eval_metric=right,
        initializer=mx.init.Mixed(
            ["up.*|large.*", ".*"],
            [mx.init.Bilinear(), mx.init.Load(known, default_init=mx.init.Zero())],
        ),
        optimizer_params={"learning_rate": 0.5, "momentum": 0.9, "wd": 0.0005},
        epoch_end_callback=mx.callback.module_checkpoint(module, os.path.join(folder, "fcn")),
    )
    _, saved, _ = mx.model.load_checkpoint(os.path.join(folder, "fcn"), 2)
    return digests(saved) + [right.get()[1]] + digest(module.get_outputs()[0])


def text_in_pictures(mx, folder):
    """Columns of a picture through two LSTMs to letters, without being told which column is which."""
    steps, hidden, letters = 6, 5, 5
    stack = mx.rnn.SequentialRNNCell()
    for i in range(2):
        stack.add(mx.rnn.LSTMCell(num_hidden=hidden, prefix=f"lstm_l{i}_"))
    outputs, _ = stack.unroll(steps, inputs=mx.sym.Variable("data"), layout="NTC", merge_outputs=False)
    scores = mx.sym.FullyConnected(mx.sym.Concat(*outputs, dim=0), num_hidden=letters, name="scores")
    scores = mx.sym.Reshape(scores, shape=(steps, -1, letters))
    lost = mx.sym.MakeLoss(mx.contrib.symbol.ctc_loss(scores, mx.sym.Variable("label")), name="lost")
    net = mx.sym.Group([mx.sym.BlockGrad(mx.sym.softmax(scores, axis=2), name="chance"), lost])
    draw = np.random.RandomState(5)
    pictures, texts = draw.rand(8, steps, 4), draw.randint(1, letters, (8, 3)).astype("float32")
    texts[::2, 2] = 0
    module, losses = mx.mod.Module(net, label_names=("label",)), []
    module.fit(
        mx.io.NDArrayIter({"data": pictures}, {"label": texts}, 4),
        num_epoch=3,
        arg_params=random_parameters(mx, net, data=(4, steps, 4), label=(4, 3))[0],
        eval_metric=mx.metric.Loss(output_names=["lost_output"], label_names=[]),
        optimizer="AdaDelta",
        batch_end_callback=lambda p: losses.append(p.eval_metric.get()[1]),
    )
    return losses + digests(module.get_params()[0])


def words_in_context(mx, folder):
    """Noise-contrastive estimation: a word among others, told by the words around it."""
    words, size, others = 20, 4, 5
    table = mx.sym.Variable("embed_weight")
    around, among = (
        mx.sym.Embedding(mx.sym.Variable(n), weight=table, input_dim=words, output_dim=size, name=f"{n}s")
        for n in ("data", "label")
    )
    parts = mx.sym.SliceChannel(around, num_outputs=4, squeeze_axis=1)
    total = parts[0]
    for i in range(1, 4):
        total = total + parts[i]
    guess = mx.sym.broadcast_mul(mx.sym.Reshape(total, shape=(-1, 1, size)), among)
    net = mx.sym.LogisticRegressionOutput(mx.sym.sum(guess, axis=2), mx.sym.Variable("label_weight"))
    draw = np.random.RandomState(6)
    context, candidates = draw.randint(0, words, (12, 4)), draw.randint(0, words, (12, others))
    truth = np.zeros((12, others))
    truth[:, 0] = 1

    class Sentences(mx.io.DataIter):
        def __init__(self):
            super().__init__()
            self.provide_data = [("data", (4, 4))]
            self.provide_label = [("label", (4, others)), ("label_weight", (4, others))]

        def __iter__(self):
            for some in (slice(i, i + 4) for i in range(0, 12, 4)):
                labels = [mx.nd.array(candidates[some]), mx.nd.array(truth[some])]
                yield mx.io.DataBatch([mx.nd.array(context[some])], labels)

    class Rank(mx.metric.EvalMetric):
        def __init__(self):
            super().__init__("rank")

        def update(self, labels, preds):
            order = preds[0].asnumpy().argsort(axis=1, kind="stable")
            self.sum_metric += (order == 0).nonzero()[1].sum()
            self.num_inst += len(order)

    module, rank = mx.mod.Module(net, label_names=("label", "label_weight")), Rank()
    module.fit(
        Sentences(),
        num_epoch=3,
        optimizer_params={"learning_rate": 0.3, "momentum": 0.9, "wd": 1e-4},
        initializer=mx.init.Xavier(factor_type="in", magnitude=2.34),
        arg_params=random_parameters(mx, net, data=(4, 4), label=(4, others), label_weight=(4, others))[0],
        eval_metric=rank,
    )
    return digests(module.get_params()[0]) + [rank.get()[1]]


def style_of_a_picture(mx, folder):
    """A picture that is the parameter: features of one picture, their products of another, smooth."""
    data, shape = mx.sym.Variable("data"), (1, 3, 12, 12)
    layers = []
    for i, count in enumerate((4, 6)):
        data = mx.sym.Pooling(data, pool_type="avg", kernel=(2, 2), stride=(2, 2)) if i else data
        data = mx.sym.Convolution(data, num_filter=count, pad=(1, 1), kernel=(3, 3), name=f"conv{i}")
        data = mx.sym.Activation(data, act_type="relu", name=f"relu{i}")
        layers.append(data)
    style, products, scales = mx.sym.Group(layers), [], []
    for i, found in enumerate(style.infer_shape(data=shape)[1]):
        flat = mx.sym.Reshape(style[i], shape=(int(found[1]), int(np.prod(found[2:]))))
        products.append(mx.sym.FullyConnected(flat, flat, no_bias=True, num_hidden=found[1]))
        scales.append(float(np.prod(found[1:]) * found[1]))
    targets = [*products, layers[1]]
    weights, draw = random_parameters(mx, style, data=shape)[0], np.random.RandomState(2)
    known = dict(weights, data=mx.nd.array(draw.rand(*shape)))
    wanted = mx.sym.Group(targets).bind(mx.cpu(), args=dict(known), grad_req="null")
    wanted.forward()
    lost = mx.sym.Group(
        [mx.sym.sum(mx.sym.square(mx.sym.Variable(f"target{i}") - t)) for i, t in enumerate(targets)]
    )
    known.update({f"target{i}": out.copy() for i, out in enumerate(wanted.outputs)})
    picture = mx.nd.array(draw.rand(*shape))
    known["data"] = picture.copy()
    gradient = mx.nd.zeros(shape)
    names = lost.list_arguments()
    exe = lost.bind(
        mx.cpu(),
        args={n: known[n] for n in names},
        args_grad={"data": gradient},
        grad_req={n: "write" if n == "data" else "null" for n in names},
    )
    filters = mx.sym.Variable("kernel")
    smooth = mx.sym.Concat(
        *[
            mx.sym.Convolution(
                channel,
                weight=filters,
                num_filter=1,
                kernel=(3, 3),
                pad=(1, 1),
                no_bias=True,
            )
            for channel in mx.sym.SliceChannel(mx.sym.Variable("picture"), num_outputs=3)
        ]
    )
    kernel = np.array([[0, -1, 0], [-1, 4, -1], [0, -1, 0]]).reshape((1, 1, 3, 3)) / 8.0
    variation = (smooth * 0.1).bind(mx.cpu(), args={"picture": picture, "kernel": mx.nd.array(kernel)})
    schedule = mx.lr_scheduler.FactorScheduler(step=3, factor=0.9, base_lr=0.05)
    optimizer = mx.optimizer.SGD(learning_rate=0.05, wd=1e-4, momentum=0.9, lr_scheduler=schedule)
    state, seen = optimizer.create_state(0, picture), []
    for _ in range(6):
        picture.copyto(exe.arg_dict["data"])
        exe.forward(is_train=True)
        exe.backward([mx.nd.ones((1,)) / s for s in (*scales, 0.5)])
        length = mx.nd.norm(gradient).asscalar()
        if length > 1:
            gradient[:] *= 1 / length
        variation.forward()
        optimizer.update(0, picture, gradient + variation.outputs[0], state)
        seen.append(length)
    return seen + digest(picture) + [float(out.asnumpy().ravel()[0]) for out in exe.outputs]


def domains_told_apart_in_vain(mx, folder):
    """Features from which one head tells classes, and another one, in vain, where they are from."""
    layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="features")
    against = mx.sym.contrib.gradientmultiplier(layer, scalar=-0.5)
    domain = mx.sym.FullyConnected(against, num_hidden=1, name="domain")
    kinds = mx.sym.FullyConnected(layer, num_hidden=3, name="kinds")
    net = mx.sym.Group(
        [
            mx.sym.SoftmaxOutput(kinds, name="softmax"),
            mx.sym.LogisticRegressionOutput(domain, mx.sym.Variable("from_label"), name="from"),
        ]
    )
    x, y = samples((10,))
    labels = {"softmax_label": y, "from_label": (y > 1).reshape(-1, 1).astype("float32")}
    module = mx.mod.Module(net, label_names=list(labels))
    module.fit(
        mx.io.NDArrayIter({"data": x}, labels, 8),
        num_epoch=2,
        arg_params=random_parameters(mx, net, data=(8, 10))[0],
        optimizer_params={"learning_rate": 0.3},
        eval_metric=mx.metric.Accuracy(output_names=["softmax_output"], label_names=["softmax_label"]),
    )
    return digests(module.get_params()[0])


PROGRAMS = (
    segmentation,
    text_in_pictures,
    words_in_context,
    style_of_a_picture,
    domains_told_apart_in_vain,
)

if __name__ == "__main__":
    print_numbers(PROGRAMS)
