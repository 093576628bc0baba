"""Programs on sparse arrays as MXNet's users write them; each gives the numbers that it would print.

They get the framework as `mx` and run under MXNet itself, too:
`python tests/oracles/mxnet/mxnet_sparse.py mxnet FILE` writes what MXNet 1.9.1 gives,
which is how `golden/mxnet/sparse.json` was made.
"""

import importlib
import itertools
import json
import operator
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np

FORMS = ("default", "csr", "row_sparse")


def rounded(values):
    return [round(float(x), 5) for x in np.asarray(values, "float64").ravel()]


def told(array):
    """Storage type, and the values."""
    return [array.stype, list(array.shape), *rounded(array.asnumpy())]


def made(mx, seed, *shape, empty_row=None):
    x = np.random.RandomState(seed).randn(*shape).astype("float32")
    x[np.random.RandomState(seed + 100).rand(*shape) < 0.6] = 0
    if empty_row is not None:
        x[empty_row] = 0
    return x


def formed(mx, x, stype):
    return mx.nd.array(x) if stype == "default" else mx.nd.array(x).tostype(stype)


def two_arrays(mx, folder):
    """Sums and products of every pair of storage types."""
    a, b = made(mx, 0, 4, 5, empty_row=1), made(mx, 1, 4, 5, empty_row=2)
    found = []
    for one, other in itertools.product(FORMS, FORMS):
        x, y = formed(mx, a, one), formed(mx, b, other)
        for name in ("elemwise_add", "elemwise_sub", "elemwise_mul", "broadcast_add"):
            if not (name == "elemwise_mul" and one == other == "csr"):  # garbage in MXNet
                found.append(told(getattr(mx.nd, name)(x, y)))
        found += [
            told(f(x, y)) for f in (operator.add, operator.sub, mx.nd.sparse.add, mx.nd.sparse.subtract)
        ]
        if not one == other == "csr":
            found += [told(f(x, y)) for f in (operator.mul, mx.nd.sparse.multiply)]
    return found


def one_array(mx, folder):
    """Functions of one array, numbers, sums."""
    found = []
    for stype in FORMS[1:]:
        x = formed(mx, made(mx, 3, 4, 5, empty_row=1), stype)
        for act in (
            lambda x: x * 2,
            lambda x: x / 2,
            lambda x: x + 2,
            lambda x: x - 1,
            lambda x: 2 - x,
            lambda x: -x,
            lambda x: x > 0,
            lambda x: x == 0,
            lambda x: x != 0,
            lambda x: x**2,
        ):
            found.append(told(act(x)))
        for name in (
            "abs sign square cbrt sin cos tan arctan sinh tanh exp expm1 relu ceil floor round rint fix "
            "trunc negative degrees radians zeros_like ones_like norm sum mean identity BlockGrad max "
            "transpose"
        ).split():
            found.append([name, *told(getattr(mx.nd, name)(x))])
        found.append(told(mx.nd.clip(x, -0.5, 0.5)))
        for axis in (0, 1, (0, 1)):
            found += [told(getattr(mx.nd.sparse, name)(x, axis=axis)) for name in ("sum", "mean")]
            found.append(told(mx.nd.sparse.sum(x, axis=axis, keepdims=True)))
    csr = formed(mx, made(mx, 3, 4, 5), "csr")
    row, column = mx.nd.array([[1, 2, 3, 4, 5]]), mx.nd.array([[1], [2], [3], [4]])
    found += [told(mx.nd.broadcast_mul(csr, row)), told(mx.nd.sparse.multiply(csr, column))]
    found += [told(mx.nd.broadcast_div(csr, row)), told(mx.nd.sparse.add(csr, row))]
    found += [told(csr[1:3]), told(csr[2]), told(csr[-1]), told(mx.nd.slice(csr, begin=(1, 1), end=(4, 4)))]
    found.append(told(mx.nd.concat(csr, csr, dim=0)))
    rows = formed(mx, made(mx, 3, 4, 5, empty_row=1), "row_sparse")
    found += [told(mx.nd._internal._square_sum(rows, axis=a, keepdims=k)) for a in (0, 1) for k in (0, 1)]
    found += [told(mx.nd.sparse.add_n(rows, rows, rows)), told(mx.nd.add_n(rows, csr))]
    kept = mx.nd.sparse.retain(rows, mx.nd.array([0, 1, 3]))
    return [*found, told(kept), rounded(kept.indices.asnumpy()), rounded(kept.data.asnumpy())]


def products(mx, folder):
    """dot of every pair of storage types."""
    found = []
    x = made(mx, 5, 4, 6, empty_row=1)
    for one, other, left, right in itertools.product(FORMS, FORMS, (False, True), (False, True)):
        if other == "csr" and one != "default":
            continue
        shape = ((6, 3), (4, 3))[left]
        y = made(mx, 6, *(shape[::-1] if right else shape))
        result = mx.nd.sparse.dot(
            formed(mx, x, one), formed(mx, y, other), transpose_a=left, transpose_b=right
        )
        if one == other == "default":
            found.append(told(result))
            continue
        found.append(
            [*told(result), *([] if result.stype != "row_sparse" else rounded(result.indices.asnumpy()))]
        )
    return found


def creation(mx, folder):
    """The ways to make arrays, to look at them, and to put them in other forms."""
    csr = mx.nd.sparse.csr_matrix(([1, 2, 3], [1, 0, 2], [0, 1, 1, 3]), shape=(3, 4))
    rows = mx.nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 4]), shape=(6, 2))
    found = [told(x) for x in (csr, rows)]
    found.append([rounded(x.asnumpy()) for x in (csr.data, csr.indices, csr.indptr, rows.data, rows.indices)])
    found.append([str(np.dtype(x.dtype)) for x in (csr, csr.indices, csr.indptr, rows, rows.indices)])
    for x in (
        mx.nd.sparse.zeros("csr", (2, 3)),
        mx.nd.sparse.zeros("row_sparse", (2, 3)),
        mx.nd.zeros((2, 3), stype="csr"),
        mx.nd.sparse.csr_matrix((2, 3)),
        mx.nd.sparse.row_sparse_array((4, 2)),
        mx.nd.sparse.array(csr),
        mx.nd.array(rows),
        csr.astype("int32"),
        csr.copy(),
        rows.tostype("default"),
        csr.tostype("default"),
        mx.nd.cast_storage(csr, "default"),
        mx.nd.cast_storage(mx.nd.array([[0, 1], [0, 0]]), "row_sparse"),
        mx.nd.sparse.csr_matrix(np.array([[0, 1], [2, 0]])),
        mx.nd.sparse.row_sparse_array([[0, 0], [2, 1]]),
        mx.nd.sparse.csr_matrix(([1, 2, 3], [1, 1, 0], [0, 2, 3]), shape=(2, 3)),
        csr.copyto(mx.nd.zeros((3, 4))),
        mx.nd.ones((3, 4)).copyto(mx.nd.zeros((3, 4), stype="csr")),
    ):
        found.append([*told(x), str(np.dtype(x.dtype))])
    target = mx.nd.sparse.zeros("csr", (3, 4))
    target[:] = csr
    found.append(told(target))
    target[:] = mx.nd.ones((3, 4)) * 2
    found.append(told(target))
    target *= 3
    found.append(told(target))
    dense = mx.nd.ones((3, 4))
    csr.copyto(dense)
    return [*found, told(dense), isinstance(csr, mx.nd.NDArray), isinstance(csr, mx.nd.sparse.CSRNDArray)]


def files(mx, folder):
    """Sparse arrays out of a file that was written before."""
    path = os.path.join(folder, "arrays")
    csr, rows = formed(mx, made(mx, 8, 3, 4), "csr"), formed(mx, made(mx, 9, 5, 2, empty_row=0), "row_sparse")
    half = mx.nd.sparse.zeros("row_sparse", (3, 2), dtype="float64")
    mx.nd.waitall()  # MXNet writes how much is stored before it knows
    mx.nd.save(path, {"csr": csr, "rows": rows, "none": half, "dense": mx.nd.ones((2,))})
    with open(path, "rb") as file:
        written = file.read()
    back = mx.nd.load(path)
    return [*(told(back[n]) for n in sorted(back)), written.hex()]


def steps(mx, folder):
    """Updates by a row_sparse gradient: what is lazy, and what is not."""
    grad = mx.nd.sparse.row_sparse_array(([[1, 2], [3, -4]], [1, 3]), shape=(5, 2))
    found = []
    for name, given in (
        ("sgd", {"momentum": 0.9}),
        ("sgd", {}),
        ("sgd", {"momentum": 0.9, "lazy_update": False}),
        ("adam", {}),
        ("adam", {"lazy_update": False}),
        ("ftrl", {}),
        ("sgd", {"clip_gradient": 1.5}),
    ):
        for stype in ("default", "row_sparse"):
            optimizer = mx.optimizer.create(name, learning_rate=0.1, wd=0.1, **given)
            updater = mx.optimizer.get_updater(optimizer)
            weight = mx.nd.ones((5, 2)).tostype(stype)
            for _ in range(3):
                updater("w_weight", grad, weight)
            found.append([name, *told(weight)])
    optimizer = mx.optimizer.create("adagrad", learning_rate=0.1)
    updater, weight = mx.optimizer.get_updater(optimizer), mx.nd.ones((5, 2)).tostype("row_sparse")
    for _ in range(3):
        updater("w_weight", grad, weight)
    return [*found, told(weight)]


def lines_of_a_file(mx, folder):
    """LibSVMIter."""
    path, labels = os.path.join(folder, "rows"), os.path.join(folder, "labels")
    with open(path, "w") as file:
        file.write("1 0:1 3:2\n0 1:5\n1 2:1 4:.5\n")
    with open(labels, "w") as file:
        file.write("0 0:1 1:2\n0 1:5\n1 0:3\n")
    found = []
    for given in ({}, {"label_libsvm": labels, "label_shape": (2,)}):
        batches = mx.io.LibSVMIter(data_libsvm=path, data_shape=(5,), batch_size=2, **given)
        for _ in range(2):
            for batch in batches:
                found.append([told(batch.data[0]), told(batch.label[0]), batch.pad])
            batches.reset()
    return found


def batches_of_rows(mx, folder):
    """NDArrayIter over a csr matrix."""
    csr = formed(mx, made(mx, 12, 5, 4, empty_row=3), "csr")
    batches = mx.io.NDArrayIter(csr, np.arange(5), 2, last_batch_handle="discard")
    return [[told(b.data[0]), told(b.label[0]), b.pad] for b in batches]


def numbers(module):
    arguments, _ = module.get_params()
    return [[name, *rounded(arguments[name].asnumpy())] for name in sorted(arguments)]


def rows_of_features(seed, count, features, each=3):
    """A matrix with few features in each row, and a label of -1 or 1 for each."""
    draw = np.random.RandomState(seed)
    x = np.zeros((count, features), "float32")
    for row in x:
        row[draw.choice(features, each, replace=False)] = draw.randn(each)
    return x, (draw.rand(count) < 0.5).astype("float32")


def libsvm_file(folder, x, y):
    path = os.path.join(folder, "rows")
    with open(path, "w") as file:
        for row, label in zip(x, y):
            pairs = " ".join(f"{i}:{row[i]}" for i in np.flatnonzero(row))
            file.write(f"{label} {pairs}\n")
    return path


def starting(mx, module, seed=5):
    """Give every parameter its value out of numpy."""
    draw = np.random.RandomState(seed)
    shapes = {n: a.shape for n, a in module._exec_group.execs[0].arg_dict.items()}
    module.init_params(
        initializer=None,
        arg_params={n: mx.nd.array((draw.rand(*shapes[n]) - 0.5) * 0.4) for n in sorted(module._param_names)},
    )


def linear_classification(mx, folder):
    """csr data, a row_sparse weight, several optimizers, rows pulled before each batch."""
    x, y = rows_of_features(0, 12, 30)
    path, found = libsvm_file(folder, x, y), []
    for name, given in (
        ("sgd", {"momentum": 0.9, "wd": 0.01}),
        ("sgd", {"momentum": 0.9, "wd": 0.01, "lazy_update": False}),
        ("adam", {"wd": 0.01}),
        ("ftrl", {"wd": 0.01}),
        ("adagrad", {}),
    ):
        data = mx.sym.Variable("data", stype="csr")
        weight = mx.sym.Variable("weight", shape=(30, 2), stype="row_sparse")
        bias = mx.sym.Variable("bias", shape=(2,))
        scores = mx.sym.broadcast_add(mx.sym.sparse.dot(data, weight), bias)
        net = mx.sym.SoftmaxOutput(scores, mx.sym.Variable("softmax_label"), name="out")
        batches = mx.io.LibSVMIter(data_libsvm=path, data_shape=(30,), batch_size=4)
        module = mx.mod.Module(net, data_names=["data"], label_names=["softmax_label"])
        module.bind(data_shapes=batches.provide_data, label_shapes=batches.provide_label)
        starting(mx, module)
        store = mx.kv.create("local")
        given = {"learning_rate": 0.1, "rescale_grad": 0.25, **given}
        module.init_optimizer(kvstore=store, optimizer=name, optimizer_params=given)
        metric = mx.metric.create("nll_loss")
        for _ in range(2):
            for batch in batches:
                module.prepare(batch, sparse_row_id_fn=lambda b: {"weight": b.data[0].indices})
                module.forward_backward(batch)
                module.update()
                module.update_metric(metric, batch.label)
            batches.reset()
        found.append([name, round(metric.get()[1], 4), *numbers(module)])
    return found


def factorization_machine(mx, folder):
    """Two weights by rows, one of them used three times, one through its squares."""
    x, y = rows_of_features(1, 12, 20)
    data = mx.sym.Variable("data", stype="csr")
    factors = mx.sym.Variable("v", shape=(20, 4), stype="row_sparse")
    weight = mx.sym.Variable("w1_weight", shape=(20, 1), stype="row_sparse")
    first = mx.sym.broadcast_add(mx.sym.dot(data, weight), mx.sym.Variable("w1_bias", shape=(1,)))
    squares = mx.sym.dot(mx.sym.square(data), mx.sym._internal._square_sum(factors, axis=1, keepdims=True))
    pairs = mx.sym.Concat(first, 0.5 * mx.sym.square(mx.sym.dot(data, factors)), dim=1)
    score = mx.sym.sum(pairs, axis=1, keepdims=True) + 0.5 * mx.sym.negative(squares)
    net = mx.sym.LogisticRegressionOutput(score, mx.sym.Variable("softmax_label"), name="out")
    found = []
    for name, given in (("sgd", {"momentum": 0.9, "wd": 0.05}), ("adam", {"wd": 0.05})):
        csr = mx.nd.array(x).tostype("csr")
        batches = mx.io.NDArrayIter(csr, y.reshape(-1, 1), 4, last_batch_handle="discard")
        module = mx.mod.Module(net)
        module.bind(data_shapes=batches.provide_data, label_shapes=batches.provide_label)
        starting(mx, module)
        module.init_optimizer(optimizer=name, optimizer_params={"learning_rate": 0.05, **given})
        for _ in range(2):
            for batch in batches:
                module.forward_backward(batch)
                module.update()
            batches.reset()
        found.append([name, *numbers(module)])
    return found


def table(mx, number, what, size, sparse):
    weight = mx.sym.Variable(what + "_weight", stype="row_sparse" if sparse else "default")
    return mx.sym.Embedding(number, weight, input_dim=size, output_dim=3, sparse_grad=sparse, name=what)


def matrix_factorization(mx, folder):
    """Two embeddings with gradients by rows; weights that the gradient does not reach stay."""
    draw = np.random.RandomState(2)
    users, items = draw.randint(0, 9, 16).astype("float32"), draw.randint(0, 7, 16).astype("float32")
    scores = draw.rand(16).astype("float32")
    found = []
    for name, given, sparse in (
        ("sgd", {"momentum": 0.9, "wd": 0.1}, True),
        ("sgd", {"momentum": 0.9, "wd": 0.1}, False),
        ("adam", {"wd": 0.1}, True),
        ("ftrl", {"wd": 0.1}, True),
    ):
        user = table(mx, mx.sym.Variable("user"), "user_table", 12, sparse)
        item = table(mx, mx.sym.Variable("item"), "item_table", 10, sparse)
        item = mx.sym.FullyConnected(mx.sym.Activation(item, act_type="relu"), num_hidden=3, name="fc")
        score = mx.sym.Flatten(mx.sym.sum(user * item, axis=1))
        net = mx.sym.LinearRegressionOutput(score, mx.sym.Variable("score"), name="out")
        batches = mx.io.NDArrayIter({"user": users, "item": items}, {"score": scores}, 4)
        module = mx.mod.Module(net, data_names=["item", "user"], label_names=["score"])
        module.bind(data_shapes=batches.provide_data, label_shapes=batches.provide_label)
        starting(mx, module)
        module.init_optimizer(
            optimizer=name, optimizer_params={"learning_rate": 0.1, "rescale_grad": 0.25, **given}
        )
        for _ in range(2):
            for batch in batches:
                module.forward_backward(batch)
                module.update()
            batches.reset()
        found.append([name, *numbers(module)])
    return found


def wide_and_deep(mx, folder):
    """A linear part on csr data beside embeddings and dense layers; fit."""
    x, y = rows_of_features(4, 12, 15)
    draw = np.random.RandomState(6)
    deep = np.concatenate([draw.randint(0, 5, (12, 2)), draw.rand(12, 3)], axis=1).astype("float32")
    wide_data, dense_data = mx.sym.Variable("csr_data", stype="csr"), mx.sym.Variable("dns_data")
    wide_weight = mx.sym.Variable("linear_weight", stype="row_sparse", shape=(15, 2))
    wide = mx.sym.sparse.dot(wide_data, wide_weight)
    wide = mx.sym.broadcast_add(wide, mx.sym.Variable("linear_bias", shape=(2,)))
    parts = []
    for i in range(2):
        number = mx.sym.slice_axis(dense_data, axis=1, begin=i, end=i + 1)
        weight = mx.sym.Variable(f"embed_{i}_weight", stype="row_sparse")
        embedded = mx.sym.Embedding(number, weight, input_dim=8, output_dim=2, sparse_grad=True)
        parts.append(mx.sym.reshape(embedded, shape=(-1, 2)))
    parts.append(mx.sym.slice_axis(dense_data, axis=1, begin=2, end=5))
    hidden = mx.sym.FullyConnected(mx.sym.concat(*parts, dim=1), num_hidden=4, name="fc1")
    hidden = mx.sym.FullyConnected(mx.sym.relu(hidden), num_hidden=2, name="fc2")
    net = mx.sym.SoftmaxOutput(wide + hidden, mx.sym.Variable("softmax_label"), name="model")
    batches = mx.io.NDArrayIter(
        {"csr_data": mx.nd.array(x).tostype("csr"), "dns_data": deep}, y, 4, last_batch_handle="discard"
    )
    module = mx.mod.Module(net, data_names=["csr_data", "dns_data"], label_names=["softmax_label"])
    module.bind(data_shapes=batches.provide_data, label_shapes=batches.provide_label)
    starting(mx, module)
    module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.02, "wd": 0.1})
    for _ in range(3):
        for batch in batches:
            module.forward_backward(batch)
            module.update()
        batches.reset()
    return numbers(module)


def by_an_executor(mx, folder):
    """simple_bind, row_sparse gradients, and updates by hand."""
    data, weight = mx.sym.Variable("data", stype="csr"), mx.sym.Variable("weight", stype="row_sparse")
    net = mx.sym.LinearRegressionOutput(mx.sym.sparse.dot(data, weight), mx.sym.Variable("label"), name="out")
    exe = net.simple_bind(mx.cpu(), data=(3, 6), weight=(6, 2), label=(3, 2), grad_req={"weight": "write"})
    x = np.zeros((3, 6), "float32")
    x[0, 1], x[1, 4], x[2, 1] = 1, 2, -1
    exe.arg_dict["data"][:] = mx.nd.array(x).tostype("csr")
    mx.nd.ones((6, 2)).tostype("row_sparse").copyto(exe.arg_dict["weight"])
    exe.arg_dict["label"][:] = mx.nd.array([[1, 2], [3, 4], [5, 6]])
    found = []
    for name, given in (
        ("sgd", {"momentum": 0.9}),
        ("adam", {}),
        ("ftrl", {}),
        ("sgd", {"lazy_update": False}),
    ):
        updater = mx.optimizer.get_updater(mx.optimizer.create(name, learning_rate=0.1, wd=0.1, **given))
        for _ in range(2):
            exe.forward(is_train=True)
            exe.backward()
            grad = exe.grad_dict["weight"]
            updater("weight", grad, exe.arg_dict["weight"])
        found.append([name, *told(grad), rounded(grad.indices.asnumpy()), rounded(grad.data.asnumpy())])
        found.append([rounded(exe.arg_dict["weight"].asnumpy()), rounded(exe.outputs[0].asnumpy())])
    return found


def key_values(mx, folder):
    """A store of a row_sparse array: pushes of gradients by rows, pulls of some rows."""
    store = mx.kv.create("local")
    store.init("w", mx.nd.ones((5, 2)).tostype("row_sparse"))
    out = mx.nd.sparse.zeros("row_sparse", (5, 2))
    found = []
    store.row_sparse_pull("w", out=out, row_ids=mx.nd.array([3, 0, 3]))
    found += [told(out), rounded(out.indices.asnumpy())]
    grad = mx.nd.sparse.row_sparse_array(([[1, 2], [3, -4]], [1, 3]), shape=(5, 2))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=0.1))
    for _ in range(2):
        store.push("w", [grad, grad])
    store.row_sparse_pull("w", out=out, row_ids=mx.nd.array([0, 1, 2, 3, 4]))
    return [*found, told(out), rounded(out.indices.asnumpy())]


def rows_taken(mx, folder):
    """take of rows of a csr array, by any mode, and counts of what is stored."""
    x = formed(mx, made(mx, 7, 5, 4, empty_row=2), "csr")
    found = []
    for mode in ("clip", "wrap"):
        rows = mx.nd.take(x, mx.nd.array([1, 7, -1, 2, 1]), mode=mode)
        found += [told(rows), rounded(rows.indptr.asnumpy()), rounded(rows.indices.asnumpy())]
    for axis in (None, 1):
        count = mx.nd.contrib.getnnz(x, axis=axis)
        found.append([np.dtype(count.dtype).name, *told(count)])
    return found


PROGRAMS = (
    rows_taken,
    two_arrays,
    one_array,
    products,
    creation,
    files,
    steps,
    lines_of_a_file,
    batches_of_rows,
    linear_classification,
    factorization_machine,
    matrix_factorization,
    wide_and_deep,
    by_an_executor,
    key_values,
)


def run(mx, program):
    """What a program gives, as plain lists."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.loads(json.dumps(program(mx, folder)))


if __name__ == "__main__":
    # Each program by a process of its own: what MXNet reads beside its sparse arrays ends some later.
    if len(sys.argv) > 3:
        (program,) = [p for p in PROGRAMS if p.__name__ == sys.argv[3]]
        with open(sys.argv[2], "w") as file:
            json.dump(run(importlib.import_module(sys.argv[1]), program), file)
        os._exit(0)
    every = {}
    for program in PROGRAMS:
        for _ in range(9):  # LibSVMIter of MXNet's ends some, too
            if subprocess.run([sys.executable, *sys.argv, program.__name__]).returncode == 0:
                break
        with open(sys.argv[2]) as file:
            every[program.__name__] = json.load(file)
    with open(sys.argv[2], "w") as file:
        json.dump(every, file, separators=(",", ":"))
