"""Programs on sparse arrays as MXNet's users write them; each gives the numbers that it would print.

They get the framework as `mx` and run under MXNet itself, too: `python tests/mxnet_sparse.py mxnet FILE`
writes what MXNet 1.9.1 gives, which is how `golden/mxnet/sparse.json` was made.
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
            "trunc negative degrees radians zeros_like ones_like norm sum mean identity BlockGrad max transpose"
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


PROGRAMS = (two_arrays, one_array, products, creation, files, steps, lines_of_a_file)


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
